//! LATENCY: the durations of commands, and events that took too long.

use counters::LatencyCounts;
use counters::latency_monitor::{Event, graph, report};
use runtime::walks::Caller;
use wire::resp::{ArgIter, CommandId, Encoder, ErrorReply, Spec};

use crate::gather::Gather;

/// The maximum number of names in one command: each is looked up.
const NAMES_MAX: usize = 1024;

/// Runs one of these.
pub(super) fn latency<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    mut args: ArgIter<'a>,
) {
    gather.settle(caller.slot);
    if args.len() > NAMES_MAX {
        let text = format!("LATENCY takes at most {NAMES_MAX} names");
        return gather.fail(caller, &ErrorReply::Other(&text));
    }
    match id {
        CommandId::LatencyDoctor => {
            let monitor = &gather.core.shared.observations().latency_monitor;
            let text = report(monitor.threshold_ms(), &monitor.events());
            gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
        }
        CommandId::LatencyGraph => latency_graph(gather, caller, args.next().unwrap_or_default()),
        CommandId::LatencyHistogram => latency_histogram(gather, caller, args),
        CommandId::LatencyHistory => {
            let name = args.next().unwrap_or_default();
            let event = gather.core.shared.observations().latency_monitor.event(name);
            let (_, event) = event.unwrap_or_default();
            gather.say(caller, |encoder| encode_history(encoder, &event));
        }
        CommandId::LatencyReset => latency_reset(gather, caller, args),
        _ => {
            let events = gather.core.shared.observations().latency_monitor.events();
            gather.say(caller, |encoder| encode_latest(encoder, &events));
        }
    }
}

fn latency_graph<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, name: &'a [u8]) {
    match gather.core.shared.observations().latency_monitor.event(name) {
        Some((name, event)) => {
            let text = graph(name, &event, gather.core.now);
            gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
        }
        None => {
            let name = String::from_utf8_lossy(name);
            let text = format!("No samples available for event '{name}'");
            gather.fail(caller, &ErrorReply::Other(&text));
        }
    }
}

fn latency_reset<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, args: ArgIter<'a>) {
    let monitor = &gather.core.shared.observations().latency_monitor;
    let count = match args.len() {
        0 => monitor.reset_all(),
        _ => args.filter(|name| monitor.reset(name)).count(),
    };
    gather.say(caller, |encoder| encoder.integer(count as i64));
}

/// Without names it shows all commands that have run. A container stands for its subcommands.
fn latency_histogram<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, names: ArgIter<'a>) {
    let mut found: Vec<(&'static str, LatencyCounts)> = Vec::new();
    let mut add = |spec: &'static Spec| {
        let (shared, index) = (&gather.core.shared, spec.id as usize);
        let counts = shared.observations().durations_since_reset(index, shared.durations(index));
        if let Some(counts) = counts
            && !found.iter().any(|(name, _)| *name == spec.name)
        {
            found.push((spec.name, counts));
        }
    };
    if names.len() == 0 {
        Spec::all().iter().for_each(&mut add);
    }
    for spec in names.filter_map(Spec::by_name) {
        add(spec);
        spec.subcommands().for_each(&mut add);
    }
    gather.say(caller, |encoder| {
        encoder.map_header(found.len());
        for (name, counts) in &found {
            encoder.bulk(name.as_bytes());
            encode_histogram(encoder, counts);
        }
    });
}

fn encode_history(encoder: &mut Encoder<'_>, event: &Event) {
    encoder.array_header(event.samples.len());
    for sample in &event.samples {
        encoder.array_header(2);
        encoder.integer(sample.at_seconds.cast_signed());
        encoder.integer(sample.took_ms.cast_signed());
    }
}

fn encode_latest(encoder: &mut Encoder<'_>, events: &[(&'static str, Event)]) {
    encoder.array_header(events.len());
    for (name, event) in events {
        let last = event.samples.back().map_or((0, 0), |last| (last.at_seconds, last.took_ms));
        encoder.array_header(4);
        encoder.bulk(name.as_bytes());
        for number in [last.0, last.1, event.worst_ms] {
            encoder.integer(number.cast_signed());
        }
    }
}

/// Encodes the calls, and how many took at most so many microseconds: for doubling bounds, where
/// the count grows.
fn encode_histogram(encoder: &mut Encoder<'_>, counts: &LatencyCounts) {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for (end_ns, count) in counts.doublings() {
        if count > steps.last().map_or(0, |(_, before)| *before) {
            steps.push((end_ns / 1000, count));
        }
    }
    // The first bounds are below a microsecond.
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (end_us, count) in steps {
        match merged.last_mut() {
            Some(last) if last.0 == end_us => last.1 = count,
            _ => merged.push((end_us, count)),
        }
    }
    encoder.map_header(2);
    encoder.bulk(b"calls");
    encoder.integer(counts.samples.cast_signed());
    encoder.bulk(b"histogram_usec");
    encoder.map_header(merged.len());
    for (end_us, count) in merged {
        encoder.integer(end_us.cast_signed());
        encoder.integer(count.cast_signed());
    }
}

#[cfg(test)]
mod tests {
    use counters::LatencyCells;
    use wire::resp::Protocol;

    use super::*;

    #[test]
    fn a_histogram_counts_up_and_leaves_out_bounds_that_add_nothing() {
        let cells = LatencyCells::default();
        cells.record_many(1_500, 2);
        cells.record_many(40_000, 1);
        let counts = LatencyCounts::sum([&cells].into_iter());
        let mut out = Vec::new();
        encode_histogram(&mut Encoder::new(&mut out, Protocol::Resp3), &counts);
        let want =
            "%2\r\n$5\r\ncalls\r\n:3\r\n$14\r\nhistogram_usec\r\n%2\r\n:2\r\n:2\r\n:65\r\n:3\r\n";
        assert_eq!(String::from_utf8_lossy(&out), want);
    }
}
