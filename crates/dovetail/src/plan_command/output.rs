//! The output of `plan`: the table, and the settings as TOML.

use std::fmt::Write;
use std::path::Path;

use sim::measure::CostTable;
use sim::plan::{NOT_SIMULATED, Plan, PlanOptions, Row, Workload, find};

use crate::failure::Failure;
use crate::settings;

/// The table and its assumptions.
pub(super) fn table(
    plan: &Plan,
    workload: &Workload,
    costs: &CostTable,
    options: &PlanOptions,
) -> String {
    let file = costs.file();
    let mut text = format!("{}\n", workload.about);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} cores, 99th percentile within {}; a request takes {}, {} of them beside the store",
        options.cores,
        time(plan.slo_ns),
        time(plan.service_mean_ns),
        time(options.request_ns),
    );
    let _ = writeln!(text, "costs of {} ({}, `{}`)", file.machine, file.date, file.command);
    if file.lines.is_none() {
        text.push_str("measured with one core: moving lines between cores is left out\n");
    }
    let at_common = format!("p99 at {}", rate(plan.common_rps));
    let _ = writeln!(
        text,
        "\n{:10} {:6} {:11} {:10} {:>6} {:>12} {:>10} {at_common:>14}",
        "preset", "writes", "dispatch", "compaction", "cr-threads", "under SLO", "p99 there"
    );
    for row in &plan.rows {
        let Some(preset) = find(row.preset) else { continue };
        let p99 = if row.throughput_rps > 0.0 { time(row.p99_ns as f64) } else { "-".to_owned() };
        let _ = writeln!(
            text,
            "{:10} {:6} {:11} {:10} {:>6} {:>12} {p99:>10} {:>14}",
            row.preset,
            preset.write_policy,
            row.dispatch,
            switch(preset.is_compacting),
            if row.dispatchers == 0 { "-".to_owned() } else { row.dispatchers.to_string() },
            rate(row.throughput_rps),
            row.p99_common_ns.map_or("overloaded".to_owned(), |ns| time(ns as f64)),
        );
    }
    text.push_str(
        "stealing costs a forwarding here; looking into the queues of others costs nothing\n",
    );
    for (name, reason) in NOT_SIMULATED {
        let _ = writeln!(text, "not simulated: {name}: {reason}");
    }
    text
}

/// The row's settings as TOML for `serve`; settings that it does not accept yet are comments.
pub(super) fn settings(row: &Row, options: &PlanOptions, workload: &str) -> String {
    let is_compacting = find(row.preset).is_some_and(|preset| preset.is_compacting);
    let write_policy =
        find(row.preset).map_or(String::new(), |preset| preset.write_policy.to_string());
    let mut pairs = vec![
        ("threads", options.cores.to_string()),
        ("batch", "32".to_owned()),
        ("write-policy", write_policy),
        ("dispatch", row.dispatch.to_string()),
        ("compaction", switch(is_compacting).to_owned()),
    ];
    if row.dispatchers > 0 {
        pairs.push(("cr-threads", row.dispatchers.to_string()));
    }
    if let Some(slo_ns) = options.slo_ns {
        pairs.push(("slo", time(slo_ns).replace(' ', "")));
    }
    let (active, waiting): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, value)| {
        settings::find(key).is_some_and(|setting| setting.kind.read(value).is_ok())
    });
    // Keeps the name of the workload on one line.
    let workload: String = workload.chars().filter(|letter| !letter.is_control()).collect();
    let mut text = format!(
        "# Recommended by `dovetail plan --workload {workload}` on {} cores: the preset `{}`, {} \
         requests a second.\n",
        options.cores,
        row.preset,
        rate(row.throughput_rps)
    );
    active.iter().for_each(|pair| text.push_str(&line(pair)));
    if !waiting.is_empty() {
        text.push_str("# Not accepted by `serve` yet; until then any worker serves any key:\n");
        waiting.iter().for_each(|pair| text.push_str(&format!("# {}", line(pair))));
    }
    text
}

/// Numbers have no quotes in TOML.
fn line((key, value): &(&str, String)) -> String {
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{key} = {value}\n")
    } else {
        format!("{key} = \"{value}\"\n")
    }
}

fn switch(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Requests a second, with three digits.
fn rate(per_second: f64) -> String {
    match per_second {
        1e6.. => format!("{} M", digits(per_second / 1e6)),
        1e3.. => format!("{} k", digits(per_second / 1e3)),
        _ => format!("{per_second:.0}"),
    }
}

/// A time, with three digits.
pub(super) fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{} s", digits(ns / 1e9)),
        1e6.. => format!("{} ms", digits(ns / 1e6)),
        1e3.. => format!("{} us", digits(ns / 1e3)),
        _ => format!("{} ns", digits(ns)),
    }
}

fn digits(number: f64) -> String {
    let places = match number {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{number:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `YYYY-MM-DD` of seconds since 1970 (Howard Hinnant's days-to-civil).
pub(super) fn date(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Checks before a long run that the file can be written; does not change it.
pub(super) fn check_file(path: &Path) -> Result<(), Failure> {
    let is_new = !path.exists();
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let checked = opened.and_then(|_| if is_new { std::fs::remove_file(path) } else { Ok(()) });
    checked.map_err(|error| Failure::Runtime(format!("plan: {}: {error}", path.display())))
}

/// Writes beside its place, then renames: an existing file is complete.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| Failure::Runtime(format!("plan: {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::{date, rate, time};

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (ns, want) in [(5.25, "5.25 ns"), (100_000.0, "100 us"), (1_234_567.0, "1.23 ms")] {
            assert_eq!(time(ns), want);
        }
        for (found, want) in [(0.0, "0"), (58_930_000.0, "58.9 M"), (150_000.0, "150 k")] {
            assert_eq!(rate(found), want);
        }
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_677_628_799, "2023-02-28"),
            (1_735_689_599, "2024-12-31"),
        ] {
            assert_eq!(date(seconds), want);
        }
    }
}
