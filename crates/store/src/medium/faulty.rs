//! A simulated disk with faults: at a crash, writes that were not synced suffer any fate that a
//! disk allows. A seed decides, so a second run repeats the first exactly.
//!
//! ```text
//!  write_at ──▶ pending writes ──sync──▶ kept
//!                    │
//!                  crash: each 512 bytes of each pending write is there, or not
//! ```

use super::memory::index_of;
use super::{Medium, MediumError, MemoryMedium};

/// The bytes that a disk writes as a unit.
const SECTOR_BYTES: u64 = 512;

/// The faults to simulate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The disk is full after this many bytes of writes; `None`: never.
    pub full_after_bytes: Option<u64>,
    /// The sync with this number, counted from 0, fails; its writes count as not synced, and later
    /// syncs succeed without them, as the kernel's do.
    pub failing_sync: Option<u64>,
    /// The disk accepts no writes.
    pub is_read_only: bool,
    /// The disk reports success for syncs that it does not do.
    pub lies: bool,
}

/// A disk in memory that can lose and damage what was written.
#[derive(Clone, Debug)]
pub struct FaultyMedium {
    kept: MemoryMedium,
    pending: Vec<(u64, Vec<u8>)>,
    /// The faults from now on.
    pub faults: Faults,
    state: u64,
    sync_count: u64,
    written_bytes: u64,
}

impl FaultyMedium {
    /// An empty disk whose crashes follow from `seed`.
    pub fn new(seed: u64, faults: Faults) -> FaultyMedium {
        FaultyMedium::over(MemoryMedium::default(), seed, faults)
    }

    /// A disk with contents.
    pub fn over(kept: MemoryMedium, seed: u64, faults: Faults) -> FaultyMedium {
        let pending = Vec::new();
        FaultyMedium { kept, pending, faults, state: seed, sync_count: 0, written_bytes: 0 }
    }

    /// The number of syncs so far, successful and failed.
    pub fn sync_count(&self) -> u64 {
        self.sync_count
    }

    /// The bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Simulates a power loss: each sector that was not synced is kept or lost. Returns what is
    /// left.
    pub fn crash(mut self) -> MemoryMedium {
        for (offset, bytes) in std::mem::take(&mut self.pending) {
            let mut at = 0;
            while at < bytes.len() {
                let sector_end = (offset + at as u64 + 1).next_multiple_of(SECTOR_BYTES);
                let end = bytes.len().min((sector_end - offset) as usize);
                if self.next() & 1 == 0 {
                    // Memory does not fail.
                    let _ = self.kept.write_at(offset + at as u64, &bytes[at..end]);
                }
                at = end;
            }
        }
        self.kept
    }

    /// Simulates the death of the process while the machine goes on: every write is kept.
    pub fn kill(mut self) -> MemoryMedium {
        self.settle();
        self.kept
    }

    fn settle(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.pending) {
            // Memory does not fail.
            let _ = self.kept.write_at(offset, &bytes);
        }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Medium for FaultyMedium {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        if self.faults.is_read_only {
            return Err(MediumError::ReadOnly);
        }
        let room_bytes = match self.faults.full_after_bytes {
            None => u64::MAX,
            Some(max) => max.saturating_sub(self.written_bytes),
        };
        let fitting = bytes.len().min(usize::try_from(room_bytes).unwrap_or(usize::MAX));
        self.written_bytes += fitting as u64;
        self.pending.push((offset, bytes[..fitting].to_vec()));
        if fitting < bytes.len() { Err(MediumError::Full) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.kept.read_at(offset, bytes)?;
        let (start, end) = (index_of(offset)?, index_of(offset)? + bytes.len());
        for (at, written) in &self.pending {
            let at = index_of(*at)?;
            let (from, to) = (start.max(at), end.min(at + written.len()));
            if from < to {
                bytes[from - start..to - start].copy_from_slice(&written[from - at..to - at]);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        let number = self.sync_count;
        self.sync_count += 1;
        if self.faults.failing_sync == Some(number) {
            // Part of it is on the disk, and the kernel will never write the rest.
            let seed = self.next();
            let pending = std::mem::take(&mut self.pending);
            let kept = std::mem::take(&mut self.kept);
            let torn = FaultyMedium { pending, ..FaultyMedium::over(kept, seed, self.faults) };
            self.kept = torn.crash();
            return Err(MediumError::Failed("input/output error".to_owned()));
        }
        if !self.faults.lies {
            self.settle();
        }
        Ok(())
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        let pending = self.pending.iter().map(|(offset, bytes)| offset + bytes.len() as u64);
        Ok(pending.max().unwrap_or(0).max(self.kept.len_bytes()?))
    }

    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError> {
        if self.faults.is_read_only {
            return Err(MediumError::ReadOnly);
        }
        self.kept.reserve(len_bytes)
    }
}
