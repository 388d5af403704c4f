//! The report that `dovetail bench --json` writes.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Reads and removes a report.
pub fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).context("dovetail bench wrote no report")?;
    let _ = std::fs::remove_file(path);
    serde_json::from_str(&text).context("the report is not JSON")
}

/// The number at `path` of a report.
pub fn number(report: &Value, path: &str) -> Result<f64> {
    let found = report.pointer(path).and_then(Value::as_f64);
    found.with_context(|| format!("the report has no {path}"))
}
