//! `cargo xtask test-rdma`: the RDMA transport over soft-RoCE, in an emulated machine.
//!
//! ```text
//!  host's busybox, rdma, libibverbs ─┐
//!  a kernel's modules ───────────────┼─▶ initramfs ─▶ qemu ─▶ console: the tests' own lines,
//!  test binaries ────────────────────┘                         then `machine: exit 0`
//! ```
//!
//! Nothing is installed unless that is asked for; where something is missing, one line says what.

mod initramfs;
mod machine;
mod packages;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use self::initramfs::Initramfs;

/// Files of the host that go into the machine; libraries that they load follow.
const PROVIDER: &str = "libibverbs/librxe-";
const PROVIDER_FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
const PROVIDER_SETTINGS: &str = "/etc/libibverbs.d/rxe.driver";
/// What soft-RoCE needs of a kernel, with what these need.
const MODULES: [&str; 3] = ["crc32_generic", "dummy", "rdma_rxe"];
/// What layouts are held against, where it is there.
const HEADER: &str = "/usr/include/infiniband/verbs.h";

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// Install the Debian packages that are missing, and unpack a kernel below target
    #[arg(long)]
    install: bool,
}

/// Runs the tests; true if they pass, or if this machine cannot say.
pub fn run(root: &Path, args: Args) -> Result<bool> {
    let folder = folder(root);
    if args.install {
        packages::install(&folder)?;
    }
    if let Some(reason) = missing(root) {
        println!("skipped: {reason}");
        return Ok(true);
    }
    check_layout(root)?;
    let kernel = packages::kernel(&folder).context("no kernel is unpacked")?;
    let archive = folder.join("initramfs");
    std::fs::write(&archive, build(root, &kernel)?.finish())
        .with_context(|| format!("cannot write {}", archive.display()))?;
    machine::run(&kernel.image, &archive)
}

/// What this machine lacks, in one line.
pub fn missing(root: &Path) -> Option<String> {
    packages::missing(&folder(root))
}

/// Where the kernel is unpacked and the machine is put together.
fn folder(root: &Path) -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into);
    target.join("rdma")
}

/// Everything that the machine's memory holds when it starts.
fn build(root: &Path, kernel: &packages::Kernel) -> Result<Initramfs> {
    let mut initramfs = Initramfs::default();
    initramfs.add("init", include_bytes!("rdma/init.sh").to_vec());
    for name in ["busybox", "rdma"] {
        let program = packages::program(name).with_context(|| format!("{name} is gone"))?;
        let inside = if name == "busybox" { "bin/busybox" } else { "usr/bin/rdma" };
        initramfs.add_program(inside, &program)?;
    }
    let provider = provider().context("the rxe provider of libibverbs is gone")?;
    initramfs.add_at_its_place(&provider)?;
    initramfs.add_at_its_place(Path::new(PROVIDER_SETTINGS))?;
    let mut order = String::new();
    for module in kernel.modules(&MODULES)? {
        let inside = format!("modules/{}.ko", module.name);
        order.push_str(&format!("/{inside}\n"));
        initramfs.add(&inside, module.bytes);
    }
    initramfs.add("modules/order", order.into_bytes());
    for test in tests(root)? {
        let name = test.file_name().context("a test has a name")?.to_string_lossy().into_owned();
        initramfs.add_program(&format!("tests/{name}"), &test)?;
    }
    Ok(initramfs)
}

fn provider() -> Option<PathBuf> {
    let folders = PROVIDER_FOLDERS.iter().map(|folder| Path::new(folder).join(PROVIDER));
    folders.filter_map(|prefix| first_with_prefix(&prefix)).next()
}

fn first_with_prefix(prefix: &Path) -> Option<PathBuf> {
    let start = prefix.file_name()?.to_str()?;
    let entries = std::fs::read_dir(prefix.parent()?).ok()?;
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// The crate's integration tests, built.
fn tests(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("cargo")
        .args(["test", "--locked", "-p", "landing-rdma", "--test", "*", "--no-run"])
        .arg("--message-format=json")
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests of landing-rdma do not build");
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    };
    let tests: Vec<_> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).collect();
    ensure!(!tests.is_empty(), "cargo named no test binary");
    Ok(tests)
}

/// Holds the layouts that the crate declares against the library's header, where both a compiler
/// and the header are there.
fn check_layout(root: &Path) -> Result<()> {
    if !Path::new(HEADER).exists() {
        println!("skipped: layouts of verbs.h; libibverbs-dev has it");
        return Ok(());
    }
    let mut command = Command::new("cc");
    command.args(["-fsyntax-only", "crates/landing-rdma/tests/layout.c"]).current_dir(root);
    match command.status() {
        Err(_) => println!("skipped: layouts of verbs.h; there is no cc"),
        Ok(status) if status.success() => println!("layouts are those of verbs.h"),
        Ok(_) => bail!("src/verbs/abi.rs does not say what verbs.h says"),
    }
    Ok(())
}
