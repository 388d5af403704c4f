//! `cargo xtask test-dax`: tests the log on persistent memory, in an emulated machine whose kernel
//! treats part of its memory as persistent, with ext4 and DAX on it.

use std::path::Path;

use anyhow::{Context, Result};
use steps::Step;

use crate::emulated::initramfs::Initramfs;
use crate::emulated::machine::Boot;
use crate::emulated::{Args, Needs, add_tests, packages, tests};

const NEEDS: Needs = Needs {
    what: "the log on persistent memory",
    command: "test-dax",
    programs: &[("mke2fs", "e2fsprogs")],
    // The kernel's drivers for persistent memory, and the file system on it with its checksums.
    modules: &["nd_e820", "nd_pmem", "crc32c_generic", "ext4"],
};
/// 128 MiB of it, from 512 MiB on.
const BOOT: Boot = Boot { memory_mib: 1024, processor: "max", parameters: "memmap=128M!512M" };

/// Runs the tests; returns true if they pass, or if this machine cannot run them.
pub fn run(root: &Path, args: Args) -> Result<bool> {
    let folder = NEEDS.folder(root);
    if args.install {
        packages::install(&NEEDS, &folder, packages::missing_packages(&NEEDS))?;
    }
    if let Some(reason) = missing(root) {
        println!("skipped: {reason}");
        return Ok(true);
    }
    let kernel = packages::kernel(&folder).context("no kernel is unpacked")?;
    let mut initramfs = Initramfs::default();
    initramfs.add("init", include_bytes!("dax/init.sh").to_vec());
    for (name, inside) in [("busybox", "bin/busybox"), ("mke2fs", "usr/sbin/mke2fs")] {
        let program = packages::program(name).with_context(|| format!("{name} is gone"))?;
        initramfs.add_program(inside, &program)?;
    }
    NEEDS.add_modules(&mut initramfs, &kernel)?;
    add_tests(&mut initramfs, &[tests(root, "store")?])?;
    NEEDS.boot(root, &kernel, initramfs, &BOOT)
}

/// The step, or what this machine lacks.
pub fn step(root: &Path) -> std::result::Result<Step, String> {
    NEEDS.step("persistent memory", missing(root))
}

/// What this machine lacks, in one line.
fn missing(root: &Path) -> Option<String> {
    packages::missing(&NEEDS, &NEEDS.folder(root), packages::missing_packages(&NEEDS))
}
