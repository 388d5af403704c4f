//! The conditions of a run: date, commit, machine, and its priority over other sessions; its page.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// The day, in UTC.
pub fn date(root: &Path) -> Result<String> {
    output_of(root, "date", &["-u", "+%F"])
}

/// The commit.
pub fn commit(root: &Path) -> Result<String> {
    output_of(root, "git", &["describe", "--always", "--dirty"])
}

/// Processor, cores and kernel.
pub fn machine(root: &Path) -> Result<String> {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.unwrap_or_default().trim_start_matches([' ', '\t', ':']).to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(format!("{model}, {cores} cores, {}", output_of(root, "uname", &["-sr"])?))
}

/// Writes a page of results into a folder, which it makes.
pub fn write_page(folder: &Path, name: &str, page: &str) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(name);
    std::fs::write(&path, page)?;
    println!("wrote {}", path.display());
    Ok(())
}

/// The output of a program.
pub fn output_of(root: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).current_dir(root).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Puts this session before others; says so where that is not allowed.
pub fn raise_priority() {
    if std::fs::write("/proc/self/autogroup", "-20").is_err() {
        println!("no priority over other sessions: /proc/self/autogroup cannot be written");
    }
}
