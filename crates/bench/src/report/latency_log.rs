//! Writes the latencies as an HdrHistogram V2 log, which the usual plotters read.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use crate::error::BenchError;
use crate::plan::Plan;
use crate::report::table::title;
use crate::summary::Summary;

/// Maxima in the log are milliseconds, as its readers expect; the histogram is in nanoseconds.
const NS_PER_MS: f64 = 1e6;

pub(super) fn encode(plan: &Plan, summary: &Summary) -> Result<Vec<u8>, BenchError> {
    let length = Duration::from_secs_f64(summary.total.wall_seconds());
    let start = SystemTime::now().checked_sub(length).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment(&title(plan))
        .add_comment("values are nanoseconds")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NS_PER_MS);
    let failed = |reason: String| BenchError::Write {
        path: "the latency log".into(),
        source: std::io::Error::other(reason),
    };
    let mut writer = builder
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(|error| failed(error.to_string()))?;
    writer
        .write_histogram(&summary.total.latency_ns, Duration::ZERO, length, None)
        .map_err(|error| failed(format!("{error:?}")))?;
    Ok(bytes)
}
