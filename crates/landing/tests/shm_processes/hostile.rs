//! A client that first follows the format by hand (docs/formats/shm-ring.md), and then violates it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

const REQUESTS_TAIL_WORD: usize = 0;
const REPLIES_TAIL_WORD: usize = 32;
const REQUESTS_WORD: usize = 512;

/// A connection without any of the crate's code.
pub struct Raw {
    socket: UnixStream,
    file: OwnedFd,
    words: &'static [AtomicU64],
}

impl Raw {
    pub fn connect(path: &Path) -> Raw {
        let socket = UnixStream::connect(path).unwrap();
        let mut welcome = [0; 32];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut welcome)];
        rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::empty()).unwrap();
        assert_eq!(&welcome[..8], b"dovetail");
        let region_bytes = u64::from_le_bytes(welcome[24..32].try_into().unwrap()) as usize;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let file = file.expect("the region comes with the welcome");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                region_bytes,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let start = start.unwrap().cast::<AtomicU64>();
        // SAFETY: the mapping is as long, lives until the process ends, and is used atomically.
        let words = unsafe { std::slice::from_raw_parts(start, region_bytes / 8) };
        Raw { socket, file, words }
    }

    fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::SeqCst);
    }

    fn ring(&self) {
        rustix::io::write(&self.socket, &[0]).unwrap();
    }

    /// Publishes a frame of any length, even an invalid one, as far as it fits into the region.
    pub fn publish_frame(&self, bytes: &[u8]) {
        self.store(REQUESTS_WORD, bytes.len() as u64);
        let words = &self.words[REQUESTS_WORD + 1..];
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            let mut full = [0; 8];
            full[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(full), Ordering::Relaxed);
        }
        self.store(REQUESTS_TAIL_WORD, 8 + bytes.len().next_multiple_of(8) as u64);
    }

    /// The length and a part of the frame are written, the index is not, and the client dies.
    pub fn die_in_the_middle_of_a_frame(self) {
        self.store(REQUESTS_WORD, 64);
        self.store(REQUESTS_WORD + 1, u64::MAX);
        self.ring();
        std::process::abort();
    }

    /// Every way to make the server's mapping end in SIGBUS, and then an honest request.
    pub fn try_to_cut_the_memory(self) {
        assert!(rustix::fs::ftruncate(&self.file, 0).is_err());
        assert!(rustix::fs::ftruncate(&self.file, 4096).is_err());
        assert!(rustix::fs::ftruncate(&self.file, 1 << 30).is_err());
        assert!(rustix::fs::fcntl_add_seals(&self.file, SealFlags::WRITE).is_err());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len_bytes = self.words.len() as u64 * 8;
        rustix::fs::fallocate(&self.file, punch, 0, len_bytes).unwrap();
        self.store(REQUESTS_WORD, 8);
        self.store(REQUESTS_WORD + 1, 0x1234);
        self.store(REQUESTS_TAIL_WORD, 16);
        self.ring();
        while self.words[REPLIES_TAIL_WORD].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }

    /// Random words into the whole region, again and again; indexes get values that look valid.
    pub fn scribble(self) {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        loop {
            let word = match random() % 4 {
                0 => random() as usize % 96,
                _ => REQUESTS_WORD + random() as usize % (self.words.len() - REQUESTS_WORD),
            };
            let value = match random() % 4 {
                0 => random(),
                1 => random() % 4096,
                _ => random() % 512 * 8,
            };
            self.store(word, value);
            // The server may have closed this client, and the socket may be full.
            let _ = rustix::net::send(&self.socket, &[0], rustix::net::SendFlags::DONTWAIT);
        }
    }

    pub fn ring_without_end(self) {
        loop {
            let _ = rustix::net::send(&self.socket, &[0], rustix::net::SendFlags::DONTWAIT);
        }
    }
}
