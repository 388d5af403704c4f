//! The board alone, then model-checked.

use super::*;
use crate::{Landed, Lane, ZoneSize};

fn zone(completions_max: usize) -> Zone {
    let size = ZoneSize { buffer_bytes: 4096, buffer_count: 2, completions_max };
    Zone::ring(size, Box::new(|_| true)).unwrap()
}

fn land(zone: &mut Zone, value: u8) {
    zone.window_mut().unwrap()[0] = value;
    assert_eq!(zone.land(Lane(u32::from(value)).into(), 0, 1), Landed::Completed);
}

#[cfg(not(loom))]
mod alone {
    use super::*;

    fn pass_on(poster: &mut Poster, zone: &mut Zone, count: u8) {
        for value in 0..count {
            land(zone, value);
        }
        poster.pass_on(zone);
    }

    fn take_all(reader: &mut Reader) -> Vec<u64> {
        std::iter::from_fn(|| reader.take()).map(|completion| completion.number()).collect()
    }

    #[test]
    fn the_first_owned_number_is_found() {
        for reader_count in 1..7 {
            for from in 0..20 {
                for index in 0..reader_count {
                    let want = (from..).find(|number| number % reader_count == index).unwrap();
                    assert_eq!(first_owned(from, index, reader_count), want);
                }
            }
        }
    }

    #[test]
    fn a_plan_comes_back_as_it_was() {
        for plan in [
            Plan { at: 0, reader_count: 1, parity: 0 },
            Plan { at: (1 << 53) - 1, reader_count: READERS_MAX, parity: 1 },
        ] {
            assert_eq!(Plan::of_word(plan.word()), plan);
        }
    }

    #[test]
    fn each_reader_takes_its_own_numbers() {
        let mut zone = zone(64);
        let (mut poster, mut readers) = board(&zone, 3, 3);
        pass_on(&mut poster, &mut zone, 8);
        assert_eq!(take_all(&mut readers[2]), [2, 5]);
        assert_eq!(take_all(&mut readers[0]), [0, 3, 6]);
        assert_eq!(take_all(&mut readers[1]), [1, 4, 7]);
    }

    #[test]
    fn bytes_and_senders_arrive_with_the_numbers() {
        let mut zone = zone(64);
        let (mut poster, mut readers) = board(&zone, 2, 2);
        pass_on(&mut poster, &mut zone, 4);
        readers[1].take();
        let completion = readers[1].take().unwrap();
        assert_eq!(readers[1].bytes(&completion), [3]);
        assert_eq!(completion.sender().as_lane(), Some(Lane(3)));
    }

    #[test]
    fn nothing_is_released_before_its_reader_gives_it_back() {
        let mut zone = zone(8);
        let (mut poster, mut readers) = board(&zone, 2, 2);
        pass_on(&mut poster, &mut zone, 8);
        assert_eq!(zone.completions_free(), 0);
        take_all(&mut readers[1]);
        readers[1].release_taken();
        poster.pass_on(&mut zone);
        assert_eq!(zone.completions_free(), 0, "number 0 is not read");
        take_all(&mut readers[0]);
        poster.pass_on(&mut zone);
        assert_eq!(zone.completions_free(), 0, "number 0 is not given back");
        readers[0].release_taken();
        poster.pass_on(&mut zone);
        assert_eq!(zone.completions_free(), 8);
    }

    #[test]
    fn readers_change_at_the_next_number() {
        let mut zone = zone(64);
        let (mut poster, mut readers) = board(&zone, 4, 2);
        pass_on(&mut poster, &mut zone, 5);
        assert_eq!(poster.change_readers(3), Ok(5));
        pass_on(&mut poster, &mut zone, 6);
        assert_eq!(poster.change_readers(1), Err(ChangePending { at: 5 }));
        assert_eq!(take_all(&mut readers[0]), [0, 2, 4, 6, 9]);
        assert_eq!(take_all(&mut readers[1]), [1, 3, 7, 10]);
        assert_eq!(take_all(&mut readers[2]), [5, 8]);
        assert_eq!(take_all(&mut readers[3]), []);
        assert_eq!(poster.change_readers(1), Ok(11));
        for reader in &mut readers {
            reader.release_taken();
            assert_eq!(reader.take(), None);
        }
        assert!(poster.is_settled());
        pass_on(&mut poster, &mut zone, 2);
        assert_eq!(take_all(&mut readers[0]), [11, 12]);
        assert!(readers[1].is_idle() && readers[2].is_idle());
    }

    #[test]
    fn a_reader_that_has_not_passed_the_change_holds_what_will_be_its_own() {
        let mut zone = zone(64);
        let (mut poster, mut readers) = board(&zone, 2, 2);
        pass_on(&mut poster, &mut zone, 2);
        for reader in &mut readers {
            take_all(reader);
            reader.release_taken();
        }
        // Reader 1 goes on to 3 under two readers; under one, 2 and 3 are reader 0's.
        poster.change_readers(1).unwrap();
        pass_on(&mut poster, &mut zone, 2);
        assert_eq!(zone.outstanding(), 2);
        assert_eq!(take_all(&mut readers[1]), []);
        assert_eq!(take_all(&mut readers[0]), [2, 3]);
    }
}

/// Two readers and a change while numbers are published: each number is taken once, in order, and
/// nothing is released before.
#[cfg(loom)]
mod model {
    use super::*;
    use loom::thread;

    fn check(from: u16, to: u16) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let mut zone = zone(4);
            let (mut poster, readers) = board(&zone, 2, from);
            let threads: Vec<_> =
                readers.into_iter().map(|reader| thread::spawn(|| read(reader))).collect();
            for value in 0..3 {
                if value == 1 {
                    poster.change_readers(to).unwrap();
                }
                land(&mut zone, value);
                poster.pass_on(&mut zone);
            }
            let results: Vec<_> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let mut seen = Vec::new();
            for (mut reader, mut numbers) in results {
                assert!(numbers.is_sorted());
                while let Some(completion) = reader.take() {
                    assert_eq!(reader.bytes(&completion), [completion.number() as u8]);
                    numbers.push(completion.number());
                }
                assert!(numbers.is_sorted(), "O2");
                seen.extend(numbers);
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2], "O1");
        });
    }

    fn read(mut reader: Reader) -> (Reader, Vec<u64>) {
        let mut numbers = Vec::new();
        for _ in 0..2 {
            if let Some(completion) = reader.take() {
                // Bytes that were released too early would be another number's.
                assert_eq!(reader.bytes(&completion), [completion.number() as u8]);
                numbers.push(completion.number());
                reader.release_taken();
            }
        }
        (reader, numbers)
    }

    #[test]
    fn loom_a_second_reader_joins() {
        check(1, 2);
    }

    #[test]
    fn loom_the_second_reader_leaves() {
        check(2, 1);
    }

    /// One completion may be outstanding: each number overwrites the slot of the one before.
    #[test]
    fn loom_a_slot_is_reused_only_when_its_reader_is_done() {
        loom::model(|| {
            let mut zone = zone(1);
            let (mut poster, mut readers) = board(&zone, 1, 1);
            let mut reader = readers.remove(0);
            land(&mut zone, 0);
            poster.pass_on(&mut zone);
            let thread = thread::spawn(move || {
                let completion = reader.take().unwrap();
                assert_eq!(completion.sender().as_lane(), Some(Lane(0)));
                reader.release_taken();
                reader
            });
            poster.pass_on(&mut zone);
            if zone.completions_free() == 1 {
                land(&mut zone, 1);
                poster.pass_on(&mut zone);
            }
            let mut reader = thread.join().unwrap();
            let next = reader.take().map(|completion| completion.sender().as_lane().unwrap());
            assert!(next.is_none_or(|lane| lane == Lane(1)));
        });
    }
}
