//! The reports of a run: a table, a JSON object, a chart, a latency log.

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
        // If stderr is closed, the JSON is still written.
        let _ = write!(std::io::stderr(), "{table}");
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

/// Checks before the run that its files can be written: a long run must not end in vain.
pub(crate) fn check_files(plan: &Plan) -> Result<(), BenchError> {
    let outputs = &plan.outputs;
    let json = outputs.json.as_ref().filter(|_| !outputs.json_owns_stdout());
    for path in [json, outputs.svg.as_ref(), outputs.latency_log.as_ref()].into_iter().flatten() {
        check_file(path).map_err(|source| BenchError::Write { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// Leaves an existing file unchanged, and creates none.
fn check_file(path: &Path) -> std::io::Result<()> {
    let is_new = match fs::metadata(path) {
        // Opening a pipe twice would show its reader two ends.
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => return Ok(()),
        Ok(_) => false,
        Err(_) => true,
    };
    fs::OpenOptions::new().append(true).create(true).open(path)?;
    if is_new { fs::remove_file(path) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_checked_before_a_run_without_a_trace() {
        let directory = std::env::temp_dir().join(format!("bench-report-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (old, new) = (directory.join("old.json"), directory.join("new.json"));
        fs::write(&old, "kept").unwrap();
        assert!(check_file(&old).is_ok() && check_file(&new).is_ok());
        assert_eq!(fs::read(&old).unwrap(), b"kept");
        assert!(!new.exists());
        assert!(check_file(&directory).is_err());
        assert!(check_file(&directory.join("absent/new.json")).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
