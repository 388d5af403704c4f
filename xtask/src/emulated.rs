//! An emulated machine, for features that the host's kernel lacks: soft-RoCE, persistent memory.
//!
//! ```text
//!  host's programs ─┐
//!  a kernel's modules ┼─▶ initramfs ─▶ qemu ─▶ console: the tests' own lines, `machine: exit 0`
//!  test binaries ───┘
//! ```

pub mod initramfs;
pub mod machine;
pub mod packages;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use steps::{Step, target};

use self::initramfs::Initramfs;
use self::machine::Boot;
use self::packages::Kernel;

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// Install the Debian packages that are missing, and unpack a kernel below target
    #[arg(long)]
    pub install: bool,
}

/// The requirements of a command.
pub struct Needs {
    /// The description of the skipped tests.
    pub what: &'static str,
    /// The command that installs it with `--install`; also the folder below target.
    pub command: &'static str,
    /// Programs, and the packages that have them; qemu and busybox are needed by all.
    pub programs: &'static [(&'static str, &'static str)],
    /// Modules of the kernel.
    pub modules: &'static [&'static str],
}

impl Needs {
    /// The directory for the unpacked kernel and the machine's files.
    pub fn folder(&self, root: &Path) -> PathBuf {
        target(root).join(self.command.trim_start_matches("test-"))
    }

    /// The step of a command, whose tests count as if they ran here, or what this machine lacks.
    pub fn step(
        &self,
        name: &'static str,
        missing: Option<String>,
    ) -> std::result::Result<Step, String> {
        let line = format!("cargo xtask {}", self.command);
        missing.map_or_else(|| Ok(Step::new(name, &line)), Err)
    }

    /// Boots the unpacked kernel with these files; returns true if the tests passed.
    pub fn boot(
        &self,
        root: &Path,
        kernel: &Kernel,
        files: Initramfs,
        boot: &Boot,
    ) -> Result<bool> {
        let archive = self.folder(root).join("initramfs");
        std::fs::write(&archive, files.finish())
            .with_context(|| format!("cannot write {}", archive.display()))?;
        machine::run(&kernel.image, &archive, boot)
    }

    /// The modules in their order, and a list of them that `init` reads.
    pub fn add_modules(&self, initramfs: &mut Initramfs, kernel: &Kernel) -> Result<()> {
        let mut order = String::new();
        for module in kernel.modules(self.modules)? {
            let inside = format!("modules/{}.ko", module.name);
            order.push_str(&format!("/{inside}\n"));
            initramfs.add(&inside, module.bytes);
        }
        initramfs.add("modules/order", order.into_bytes());
        Ok(())
    }
}

/// Adds test binaries below `tests`, where `init` finds them.
pub fn add_tests(initramfs: &mut Initramfs, tests: &[PathBuf]) -> Result<()> {
    for test in tests {
        let name = test.file_name().context("a test has a name")?.to_string_lossy().into_owned();
        initramfs.add_program(&format!("tests/{name}"), test)?;
    }
    Ok(())
}

/// The integration tests of a package, built.
pub fn tests(root: &Path, package: &str) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    steps::programs::forget_package(&mut cargo);
    let output = cargo
        .args(["test", "--locked", "-p", package, "--test", "main", "--no-run"])
        .arg("--message-format=json")
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests of {package} do not build");
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_test = message.get("profile")?.get("test")?.as_bool()?;
        is_test.then(|| message.get("executable")?.as_str().map(PathBuf::from))?
    };
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().filter_map(executable).next().context("cargo named no test binary")
}
