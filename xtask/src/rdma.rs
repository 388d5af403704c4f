//! `cargo xtask test-rdma`: tests the RDMA transport over soft-RoCE, in an emulated machine.
//!
//! ```text
//!  host's busybox, rdma, libibverbs ─┐
//!  a kernel's modules ───────────────┼─▶ initramfs ─▶ qemu ─▶ console: the tests' own lines,
//!  test binaries ────────────────────┘                         then `machine: exit 0`
//! ```
//!
//! Nothing is installed without the flag for it; a missing package is reported in one line.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use steps::Step;

use crate::emulated::initramfs::Initramfs;
use crate::emulated::machine::Boot;
use crate::emulated::{Args, Needs, add_tests, packages, tests};

/// Files of the host that go into the machine; libraries that they load follow.
const PROVIDER: &str = "libibverbs/librxe-";
const PROVIDER_FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
const PROVIDER_SETTINGS: &str = "/etc/libibverbs.d/rxe.driver";
const NEEDS: Needs = Needs {
    what: "RDMA over soft-RoCE",
    command: "test-rdma",
    programs: &[("rdma", "iproute2")],
    modules: &["crc32_generic", "dummy", "rdma_rxe"],
};
const BOOT: Boot = Boot { memory_mib: 768, processor: "qemu64", parameters: "" };
/// The header for checking layouts, if it is installed.
const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Runs the tests; returns true if they pass, or if this machine cannot run them.
pub fn run(root: &Path, args: Args) -> Result<bool> {
    let folder = NEEDS.folder(root);
    if args.install {
        let mut packages = missing_packages();
        if !Path::new(HEADER).exists() {
            packages.push("libibverbs-dev");
        }
        packages::install(&NEEDS, &folder, packages)?;
    }
    if let Some(reason) = missing(root) {
        println!("skipped: {reason}");
        return Ok(true);
    }
    check_layout(root)?;
    let kernel = packages::kernel(&folder).context("no kernel is unpacked")?;
    NEEDS.boot(root, &kernel, build(root, &kernel)?, &BOOT)
}

/// The step, or what this machine lacks.
pub fn step(root: &Path) -> std::result::Result<Step, String> {
    NEEDS.step("RDMA over soft-RoCE", missing(root))
}

/// What this machine lacks, in one line.
fn missing(root: &Path) -> Option<String> {
    packages::missing(&NEEDS, &NEEDS.folder(root), missing_packages())
}

fn missing_packages() -> Vec<&'static str> {
    let mut packages = packages::missing_packages(&NEEDS);
    packages.extend(provider().is_none().then_some("ibverbs-providers"));
    packages
}

/// All files in the machine's memory when it starts.
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
    NEEDS.add_modules(&mut initramfs, kernel)?;
    add_tests(&mut initramfs, &[tests(root, "landing-rdma")?])?;
    Ok(initramfs)
}

fn provider() -> Option<PathBuf> {
    let folders = PROVIDER_FOLDERS.iter().map(|folder| Path::new(folder).join(PROVIDER));
    folders.filter_map(|prefix| packages::first_with_prefix(&prefix)).next()
}

/// Checks the layouts declared by the crate against the library's header, if a compiler and the
/// header are installed.
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
