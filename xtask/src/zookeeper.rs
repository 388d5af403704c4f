//! `cargo xtask test-zookeeper`: runs the config store's tests against a real ZooKeeper.
//!
//! ```text
//!  pom.xml ─ mvn ─▶ target/zookeeper/lib/*.jar ─▶ tests, which each start a server of their own
//! ```
//!
//! Nothing is installed: Maven puts the jars below `target`. If Java or Maven is missing, or Maven
//! cannot download, one line says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use steps::{Report, Step, programs, target};

const POM: &str = include_str!("zookeeper/pom.xml");

/// Runs the tests; returns true if they pass, or if this machine cannot run them.
pub fn run(root: &Path) -> bool {
    let mut report = Report::default();
    let is_good = report.take_if(step(root), root);
    report.finish();
    is_good
}

/// The step, with the jars in place, or what this machine lacks.
pub fn step(root: &Path) -> Result<Step, String> {
    let jars = jars(root)?;
    let line = "cargo test --locked -p config-store-zookeeper --test ensemble -- --ignored \
                --test-threads 2";
    Ok(Step::new("ZooKeeper", line).with("DOVETAIL_ZOOKEEPER_JARS", jars.display().to_string()))
}

/// The folder of ZooKeeper's jars, which Maven fills once, or what this machine lacks.
pub fn jars(root: &Path) -> Result<PathBuf, String> {
    let folder = target(root).join("zookeeper");
    let jars = folder.join("lib");
    // Written last, so that an incomplete download is not taken for a complete one.
    let whole = folder.join("pom.xml");
    if std::fs::read_to_string(&whole).is_ok_and(|found| found == POM) {
        return Ok(jars);
    }
    for program in ["java", "mvn"] {
        if !programs::succeeds(program, &["-version"]) {
            return Err(format!("ZooKeeper's tests: `{program}` is not installed"));
        }
    }
    let failed =
        |error: std::io::Error| format!("ZooKeeper's tests: {}: {error}", folder.display());
    let asked = folder.join("asked");
    std::fs::create_dir_all(&asked).map_err(failed)?;
    std::fs::write(asked.join("pom.xml"), POM).map_err(failed)?;
    let fetched = Command::new("mvn")
        .args(["-q", "-B", "dependency:copy-dependencies"])
        .arg(format!("-DoutputDirectory={}", jars.display()))
        .current_dir(&asked)
        .status();
    if !fetched.is_ok_and(|status| status.success()) {
        return Err("ZooKeeper's tests: Maven could not fetch ZooKeeper".to_owned());
    }
    std::fs::write(&whole, POM).map_err(failed)?;
    Ok(jars)
}
