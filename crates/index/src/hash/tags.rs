//! Matches one tag against the seven slots of a bucket at once.
//!
//! ```text
//!  16-byte load:  | slot 2k ............ tag | slot 2k+1 .......... tag |
//!  compare words: |  ?     ?     ?      0/-1 |  ?     ?     ?      0/-1 |
//!  sign bits of the 8-byte lanes: two bits of the mask
//! ```
//!
//! Every x86-64 processor has SSE2, so [`match_line`] is inlined wherever a bucket is searched (+8
//! % GETs on 4 M 8/8 items against one slot at a time). The executor's second stage exists in two
//! versions and checks once a batch whether the processor has AVX2: [`first_match_avx2`] takes 9
//! instructions instead of 23 (decision 0011).
//!
//! # Concurrency
//! Slots are atomics that other threads may be storing to. The vector loads are therefore made by
//! inline assembly, which the compiler neither splits nor assumes anything about; each aligned
//! 8-byte slot is read whole. The result is a *hint*: readers load the slot again, with Acquire,
//! and check its tag. A slot stored before the load is never missed.

use super::slot::Tag;

/// A bit for each slot whose tag is `tag`, by 16-byte loads of the whole line: its word and the
/// seven slots behind it.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn match_line(line: &super::bucket::Bucket, tag: Tag) -> u32 {
    use std::arch::asm;
    use std::arch::x86_64::_mm_set1_epi16;
    use std::arch::x86_64::{__m128i, _mm_castsi128_pd, _mm_cmpeq_epi16, _mm_movemask_pd};

    let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: the bucket is 64 bytes, aligned to 64, and lives as long as the reference; the
    // block reads those bytes and writes nothing.
    unsafe {
        asm!(
            "movdqa {a}, [{line}]",
            "movdqa {b}, [{line} + 16]",
            "movdqa {c}, [{line} + 32]",
            "movdqa {d}, [{line} + 48]",
            line = in(reg) std::ptr::from_ref(line),
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            options(nostack, preserves_flags),
        );
    }
    let wanted = _mm_set1_epi16(tag.bits().cast_signed());
    let lanes = |pair| {
        let equal = _mm_castsi128_pd(_mm_cmpeq_epi16(pair, wanted));
        _mm_movemask_pd(equal).cast_unsigned()
    };
    // Lane 0 is the bucket's word, not a slot.
    (lanes(a) | lanes(b) << 2 | lanes(c) << 4 | lanes(d) << 6) >> 1
}

/// The first slot that [`match_line`] would find, with 32-byte loads.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[inline]
#[target_feature(enable = "avx2,bmi1")]
pub(super) fn first_match_avx2(line: &super::bucket::Bucket, tag: Tag) -> Option<u32> {
    use std::arch::asm;
    use std::arch::x86_64::{__m256i, _mm256_set1_epi16};

    let wanted: __m256i = _mm256_set1_epi16(tag.bits().cast_signed());
    let (mut low, mut high): (u64, u64);
    // SAFETY: the bucket is 64 bytes, aligned to 64, and lives as long as the reference; the
    // block reads those bytes and writes nothing.
    unsafe {
        asm!(
            "vpcmpeqw {a}, {wanted}, [{line}]",
            "vpcmpeqw {b}, {wanted}, [{line} + 32]",
            "vpmovmskb {low:e}, {a}",
            "vpmovmskb {high:e}, {b}",
            line = in(reg) std::ptr::from_ref(line),
            wanted = in(ymm_reg) wanted,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            low = out(reg) low,
            high = out(reg) high,
            options(nostack, preserves_flags, readonly),
        );
    }
    // A bit for each byte; for each slot only the topmost counts. The word's lane is left out.
    let tops = (low | high << 32) & 0x8080_8080_8080_8000;
    (tops != 0).then(|| (tops.trailing_zeros() >> 3) - 1)
}
