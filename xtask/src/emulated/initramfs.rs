//! Builds the archive that a kernel unpacks into memory at its start (cpio, "newc").

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const FOLDER_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_755;

/// Files by their path without the first slash; folders follow from them.
#[derive(Default)]
pub struct Initramfs {
    files: BTreeMap<String, Vec<u8>>,
}

impl Initramfs {
    /// Adds a file.
    pub fn add(&mut self, path: &str, bytes: Vec<u8>) {
        self.files.insert(path.to_owned(), bytes);
    }

    /// Adds a file of the host if it exists, and the libraries that it loads.
    pub fn add_at_its_place(&mut self, file: &Path) -> Result<()> {
        let path = file.to_string_lossy().trim_start_matches('/').to_owned();
        self.add_program(&path, file)
    }

    /// Adds a file of the host, and the libraries that it loads, at their paths.
    pub fn add_program(&mut self, path: &str, file: &Path) -> Result<()> {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        self.add(path, bytes);
        // For files that are not programs, or load nothing, its output is useless.
        let output = Command::new("ldd").arg(file).output().context("cannot start ldd")?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            let bytes =
                std::fs::read(&library).with_context(|| format!("cannot read {library}"))?;
            self.add(library.trim_start_matches('/'), bytes);
        }
        Ok(())
    }

    /// The archive.
    pub fn finish(self) -> Vec<u8> {
        let mut archive = Vec::new();
        let mut folders = std::collections::BTreeSet::new();
        for path in self.files.keys() {
            folders.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
        }
        for folder in &folders {
            entry(&mut archive, folder, FOLDER_MODE, &[]);
        }
        for (path, bytes) in &self.files {
            entry(&mut archive, path, FILE_MODE, bytes);
        }
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        archive
    }
}

/// One member: a head of hexadecimal numbers, the name, the bytes, each padded to four bytes.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, bytes: &[u8]) {
    let links = 1 + u32::from(mode == FOLDER_MODE);
    let (size, name_len) = (bytes.len() as u32, name.len() as u32 + 1);
    // inode, mode, user, group, links, time, size, device (2), its device (2), name, checksum
    let numbers = [0, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_len, 0];
    archive.extend_from_slice(b"070701");
    for number in numbers {
        archive.extend_from_slice(format!("{number:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(bytes);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// The files that `ldd` names.
fn libraries(text: &str) -> Vec<String> {
    let file =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    text.lines().filter_map(file).map(|file| file.trim_end_matches(':').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_what_ldd_names() {
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tnot a dynamic executable\n";
        assert_eq!(libraries(text), ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }

    #[test]
    fn an_archive_has_folders_before_what_is_in_them() {
        let mut initramfs = Initramfs::default();
        initramfs.add("a/b/file", b"hello".to_vec());
        initramfs.add("init", Vec::new());
        let archive = initramfs.finish();
        let at = |name: &str| {
            let name = format!("{name}\0");
            archive.windows(name.len()).position(|window| window == name.as_bytes()).unwrap()
        };
        assert!(at("a") < at("a/b") && at("a/b") < at("a/b/file") && at("init") < at("TRAILER!!!"));
        assert_eq!(archive.len() % 4, 0);
        assert_eq!(&archive[..14], b"07070100000000");
        let bytes = at("a/b/file") + "a/b/file\0".len();
        assert_eq!(&archive[bytes.next_multiple_of(4)..][..8], b"hello\0\0\0");
    }
}
