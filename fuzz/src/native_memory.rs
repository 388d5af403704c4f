//! What a server remembers of native sessions: writes and parts in any order, repeated and lost.

use std::collections::HashMap;

use base::Instant;
use wire::native::{
    Admission, Once, Part, PartLimits, PartOutcome, PartsIn, Remembered, SessionId, Status,
};

/// Steps of four bytes: what, and three that say with which numbers. Properties: no write is
/// executed twice, or below the low-water mark; a value that is complete is the value that was
/// sent; memory is bounded.
pub fn native_memory(data: &[u8]) {
    let Some((window, steps)) = data.split_first() else { return };
    let mut once = Once::new(u32::from(*window));
    let window = u32::from(*window).max(1);
    let mut model: HashMap<u32, Option<Remembered>> = HashMap::new();
    let mut low_water = 0;
    let limits = PartLimits {
        budget_bytes: 20_000,
        session_max_bytes: 9000,
        value_max_bytes: 8000,
        transfer_count_max: 4,
        idle_ns: 40,
    };
    let mut parts = PartsIn::new(limits);
    for (tick, step) in steps.chunks_exact(4).enumerate() {
        let (first, second) = (u32::from(step[1]), u32::from(step[2]));
        let sequence = first * 2;
        match step[0] % 6 {
            0 | 1 => {
                let admission = once.admit(sequence);
                assert_eq!(admission, wanted(&model, low_water, window, sequence));
                if admission == Admission::Execute {
                    model.insert(sequence, None);
                }
            }
            2 => {
                let number = (second > 99).then_some(i64::from(second) - 200);
                let status = Status::from_byte(step[3]).unwrap_or(Status::Ok);
                let version = Some(u64::from(second)).filter(|version| *version != 0);
                let outcome = Remembered { status, version, number };
                once.record(sequence, outcome);
                if let Some(slot @ None) = model.get_mut(&sequence) {
                    *slot = Some(outcome);
                }
            }
            3 => {
                once.raise_low_water(first * 3);
                low_water = low_water.max(first * 3);
            }
            4 => accept_part(&mut parts, tick as u64, step),
            _ => drop(parts.expire(Instant { ns: tick as u64 })),
        }
        once.validate();
        parts.validate();
    }
}

fn wanted(
    model: &HashMap<u32, Option<Remembered>>,
    low_water: u32,
    window: u32,
    sequence: u32,
) -> Admission {
    if sequence < low_water {
        return Admission::BelowLowWater;
    }
    if sequence - low_water >= window {
        return Admission::OutsideWindow;
    }
    match model.get(&sequence) {
        None => Admission::Execute,
        Some(None) => Admission::UnderWay,
        Some(Some(outcome)) => Admission::Again(*outcome),
    }
}

/// The byte of every value at an offset, so that a complete one can be checked.
fn value_byte(offset: usize) -> u8 {
    (offset / 64) as u8
}

fn accept_part(parts: &mut PartsIn, now_ns: u64, step: &[u8]) {
    let session = SessionId(u64::from(step[1] % 3));
    // A few lengths for each name, most of them the same.
    let total = 200 + u32::from(step[1]) * 40 + u32::from(step[3] > 250);
    let offset = u32::from(step[2]) * if step[3] > 240 { 33 } else { 64 };
    let len_bytes = (usize::from(step[3] % 32) * 64).min(total.saturating_sub(offset) as usize);
    let start = offset as usize;
    let value: Vec<u8> = (start..start + len_bytes).map(value_byte).collect();
    let name = (session, u32::from(step[1]));
    let part = Part { offset, total };
    match parts.accept(Instant { ns: now_ns }, name, part, &value) {
        PartOutcome::Taken { missing_bytes } => assert!(missing_bytes > 0),
        PartOutcome::Complete(value) => {
            assert_eq!(value.len(), total as usize);
            assert!(value.iter().enumerate().all(|(at, byte)| *byte == value_byte(at)));
        }
        PartOutcome::Refused(_) => {}
    }
}
