//! What a run leaves behind: a table, a JSON object, a chart, a latency log.

mod chart;
mod json;
mod latency_log;
mod table;

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::BenchError;
use crate::plan::Plan;
use crate::summary::Summary;

/// Writes every report that the plan asks for.
pub(crate) fn write(plan: &Plan, summary: &Summary) -> Result<(), BenchError> {
    let outputs = &plan.outputs;
    if let Some(path) = &outputs.svg {
        write_file(path, chart::draw(plan, summary)?.as_bytes())?;
    }
    if let Some(path) = &outputs.latency_log {
        write_file(path, &latency_log::encode(plan, summary)?)?;
    }
    let table = table::format(plan, summary);
    if outputs.json_owns_stdout() {
        eprint!("{table}");
    } else {
        print(&table)?;
    }
    if let Some(path) = &outputs.json {
        let mut text = json(plan, summary)?;
        text.push('\n');
        if outputs.json_owns_stdout() { print(&text)? } else { write_file(path, text.as_bytes())? }
    }
    Ok(())
}

/// The JSON object alone.
pub(crate) fn json(plan: &Plan, summary: &Summary) -> Result<String, BenchError> {
    json::encode(plan, summary)
}

fn print(text: &str) -> Result<(), BenchError> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|source| BenchError::Write { path: "stdout".into(), source })
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    fs::write(path, bytes).map_err(|source| BenchError::Write { path: path.to_owned(), source })
}
