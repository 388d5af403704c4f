//! The disks of the servers: a small file system in a file for each, which can be filled.
//!
//! ```text
//!  n1.img ─ loop ─▶ ext2 at n1-disk/ ┬ data/   the server's --data-dir
//!                                    └ fill    as long as there is room: the disk is full
//! ```
//!
//! ext2 cannot reserve blocks for a file, so any write may be the one that does not fit. If this
//! user may not mount, servers write to plain directories, and no disk is ever full.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// A server of 128 MiB writes a log of that length and some more.
const DISK_BYTES: u64 = 320 << 20;

/// See the module's page.
#[derive(Debug)]
pub struct Disks {
    folder: PathBuf,
    count: usize,
    is_mounted: bool,
    /// Keeps the contents, as evidence.
    pub is_kept: bool,
}

impl Disks {
    /// Creates this many disks; none for 0.
    pub fn make(folder: &Path, count: usize) -> Result<Disks> {
        let mut disks =
            Disks { folder: folder.to_owned(), count, is_mounted: true, is_kept: false };
        if let Err(error) = disks.mount() {
            disks.unmount();
            disks.is_mounted = false;
            println!("no disks of their own, so none is filled: {error:#}");
        }
        for index in 0..count {
            std::fs::create_dir_all(disks.folder(index))?;
        }
        Ok(disks)
    }

    /// Whether there are disks that can be filled.
    pub fn can_fill(&self) -> bool {
        self.is_mounted && self.count > 0
    }

    fn root(&self, index: usize) -> PathBuf {
        self.folder.join(format!("n{}-disk", index + 1))
    }

    /// The data directory of a server.
    pub fn folder(&self, index: usize) -> PathBuf {
        self.root(index).join("data")
    }

    fn mount(&self) -> Result<()> {
        for index in 0..self.count {
            let (image, root) = (self.folder.join(format!("n{}.img", index + 1)), self.root(index));
            File::create(&image)?.set_len(DISK_BYTES)?;
            std::fs::create_dir_all(&root)?;
            run(Command::new("mkfs.ext2").args(["-q", "-F", "-m", "0"]).arg(&image))?;
            run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&root))?;
        }
        Ok(())
    }

    /// Fills the disk.
    pub fn fill(&self, index: usize) -> Result<()> {
        let mut file = File::create(self.root(index).join("fill"))?;
        // Large pieces first: the last blocks go one by one.
        for piece in [1 << 20, 4096, 512] {
            while file.write_all(&vec![0xff; piece]).is_ok() {}
        }
        Ok(())
    }

    /// Frees the disk.
    pub fn empty(&self, index: usize) -> Result<()> {
        Ok(std::fs::remove_file(self.root(index).join("fill"))?)
    }

    fn unmount(&self) {
        for index in (0..self.count).filter(|_| self.is_mounted) {
            let mut command = Command::new("umount");
            command.arg("-l").arg(self.root(index)).stdout(Stdio::null()).stderr(Stdio::null());
            // An error is expected if the disk was never mounted.
            let _ = command.status();
            if !self.is_kept {
                let _ = std::fs::remove_file(self.folder.join(format!("n{}.img", index + 1)));
            }
        }
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}
