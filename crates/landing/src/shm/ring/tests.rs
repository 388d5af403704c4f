//! A ring against a queue of frames, and against a peer that writes arbitrary words.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::shm::layout::RingSize;

const RING_BYTES: usize = 4096;
const FRAME_LEN_MAX: usize = RING_BYTES / 4 - 8;

fn ends() -> (Arc<Region>, Lane, Reader, Writer) {
    let ring = RingSize::new(RING_BYTES as u64).unwrap();
    let lane = Lane::requests(ring);
    let region = Arc::new(Region::on_heap(ring.region_bytes() / WORD_BYTES));
    let reader = Reader::new(Arc::clone(&region), lane);
    let writer = Writer::new(Arc::clone(&region), lane);
    (region, lane, reader, writer)
}

#[derive(Clone, Debug)]
enum Op {
    Write { len_bytes: usize },
    Publish,
    Take { room_bytes: usize },
    Release,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len_bytes = prop_oneof![1..=64_usize, 1..=FRAME_LEN_MAX, Just(FRAME_LEN_MAX)];
    let op = prop_oneof![
        4 => len_bytes.prop_map(|len_bytes| Op::Write { len_bytes }),
        3 => Just(Op::Publish),
        4 => prop_oneof![3 => Just(FRAME_LEN_MAX), 1 => 0..64_usize]
            .prop_map(|room_bytes| Op::Take { room_bytes }),
        3 => Just(Op::Release),
    ];
    let op_count_max = if cfg!(miri) { 40 } else { 400 };
    proptest::collection::vec(op, 1..op_count_max)
}

/// The model of a ring: frames written, of which the first `shown` can be taken, and room.
#[derive(Default)]
struct Model {
    frames: VecDeque<Vec<u8>>,
    shown: usize,
    used_bytes: usize,
    taken_bytes: usize,
    written: u8,
}

fn bytes_in_ring(len_bytes: usize) -> usize {
    8 + len_bytes.div_ceil(8) * 8
}

impl Model {
    fn apply(&mut self, op: &Op, reader: &mut Reader, writer: &mut Writer) {
        match *op {
            Op::Write { len_bytes } => {
                self.written = self.written.wrapping_add(1);
                let frame: Vec<u8> =
                    (0..len_bytes).map(|at| self.written.wrapping_add(at as u8)).collect();
                let has_room = self.used_bytes + bytes_in_ring(len_bytes) <= RING_BYTES;
                assert_eq!(writer.has_room(len_bytes), Ok(has_room));
                assert_eq!(writer.write(&frame), Ok(has_room));
                if has_room {
                    self.used_bytes += bytes_in_ring(len_bytes);
                    self.frames.push_back(frame);
                }
            }
            Op::Publish => {
                writer.publish();
                self.shown = self.frames.len();
            }
            Op::Take { room_bytes } => self.take(room_bytes, reader),
            Op::Release => {
                reader.release();
                self.used_bytes -= std::mem::take(&mut self.taken_bytes);
            }
        }
    }

    fn take(&mut self, room_bytes: usize, reader: &mut Reader) {
        let mut into = vec![0xee; room_bytes];
        let want = match self.frames.front() {
            Some(frame) if self.shown > 0 && frame.len() <= room_bytes => {
                Taken::Frame { len_bytes: frame.len() }
            }
            Some(_) if self.shown > 0 => Taken::TooShort,
            _ => Taken::Empty,
        };
        assert_eq!(reader.has_frames(), Ok(self.shown > 0));
        assert_eq!(reader.take(&mut into), Ok(want));
        if let Taken::Frame { len_bytes } = want {
            let frame = self.frames.pop_front().unwrap();
            assert_eq!(into[..len_bytes], frame);
            assert!(into[len_bytes..].iter().all(|byte| *byte == 0xee), "nothing behind it");
            self.shown -= 1;
            self.taken_bytes += bytes_in_ring(len_bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_ring_is_a_queue_of_frames(ops in ops()) {
        let (_region, _lane, mut reader, mut writer) = ends();
        let mut model = Model::default();
        for op in &ops {
            model.apply(op, &mut reader, &mut writer);
        }
    }

    #[test]
    fn whatever_the_writer_stores_the_reader_takes_whole_frames_or_finds_a_fault(
        stores in proptest::collection::vec((0..3_usize, 0..600_usize, hostile_word()), 1..60)
    ) {
        let (region, lane, mut reader, _writer) = ends();
        let mut into = vec![0; FRAME_LEN_MAX];
        for (place, at, word) in stores {
            let ring_words = RING_BYTES / WORD_BYTES;
            let target = match place {
                0 => lane.tail_word,
                1 => lane.head_word,
                _ => lane.data_word + at % ring_words,
            };
            region.words()[target].store(word, Ordering::Relaxed);
            let before = reader.head;
            match reader.take(&mut into) {
                Ok(Taken::Frame { len_bytes }) => {
                    prop_assert!((1..=FRAME_LEN_MAX).contains(&len_bytes));
                    prop_assert_eq!(reader.head, before + record_bytes(len_bytes));
                    prop_assert!(reader.head <= reader.tail, "R1");
                }
                Ok(Taken::TooShort) => prop_assert!(false, "the buffer holds any frame"),
                Ok(Taken::Empty) | Err(_) => prop_assert_eq!(reader.head, before),
            }
        }
    }

    #[test]
    fn whatever_the_reader_stores_the_writer_stays_within_the_ring(
        stores in proptest::collection::vec((hostile_word(), 1..=FRAME_LEN_MAX), 1..60)
    ) {
        let (region, lane, _reader, mut writer) = ends();
        for (word, len_bytes) in stores {
            region.words()[lane.head_word].store(word, Ordering::Relaxed);
            // A fault or a full ring is fine; the test checks R1, and that nothing panics.
            let _ = writer.write(&vec![1; len_bytes]);
            prop_assert!(writer.tail - writer.head <= RING_BYTES as u64, "R1");
        }
        let words = region.words();
        let behind = &words[lane.data_word + RING_BYTES / WORD_BYTES..];
        prop_assert!(behind.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}

/// Words close to valid ones, and invalid words.
fn hostile_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..600_u64).prop_map(|word| word * 8),
        0..2000_u64,
        any::<u64>(),
        Just(u64::MAX),
        Just(u64::MAX - 7),
    ]
}

#[track_caller]
fn check_fault(tail: u64, length: u64, want: Result<Taken, Fault>) {
    let (region, lane, mut reader, _writer) = ends();
    region.words()[lane.data_word].store(length, Ordering::Relaxed);
    region.words()[lane.tail_word].store(tail, Ordering::Relaxed);
    assert_eq!(reader.take(&mut [0; FRAME_LEN_MAX]), want);
}

#[test]
fn an_index_or_a_length_that_cannot_be_is_a_fault() {
    let index = |stored| Err(Fault::Index { stored, own: 0 });
    let length = |word| Err(Fault::Length { word });
    check_fault(16, 8, Ok(Taken::Frame { len_bytes: 8 }));
    check_fault(0, 8, Ok(Taken::Empty));
    check_fault(4096, FRAME_LEN_MAX as u64, Ok(Taken::Frame { len_bytes: FRAME_LEN_MAX }));
    check_fault(4104, 8, index(4104));
    check_fault(12, 8, index(12));
    check_fault(u64::MAX - 7, 8, index(u64::MAX - 7));
    check_fault(16, 0, length(0));
    check_fault(16, 9, length(9));
    check_fault(4096, FRAME_LEN_MAX as u64 + 1, length(FRAME_LEN_MAX as u64 + 1));
    check_fault(4096, u64::MAX, length(u64::MAX));
    check_fault(4096, 1 << 32 | 8, length(1 << 32 | 8));
}

#[test]
fn an_index_that_moves_back_is_a_fault() {
    let (region, lane, mut reader, mut writer) = ends();
    assert_eq!(writer.write(b"frame"), Ok(true));
    writer.publish();
    assert_eq!(reader.take(&mut [0; 8]), Ok(Taken::Frame { len_bytes: 5 }));
    region.words()[lane.tail_word].store(8, Ordering::Relaxed);
    assert_eq!(reader.take(&mut [0; 8]), Err(Fault::Index { stored: 8, own: 16 }));
}

#[test]
fn a_reader_that_takes_more_than_was_written_is_a_fault() {
    let (region, lane, _reader, mut writer) = ends();
    while writer.write(&[1; FRAME_LEN_MAX]) == Ok(true) {}
    region.words()[lane.head_word].store(4104, Ordering::Relaxed);
    assert_eq!(writer.write(&[1]), Err(Fault::Index { stored: 4104, own: 4096 }));
}
