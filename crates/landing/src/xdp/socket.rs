//! AF_XDP sockets: the calls that make them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::Mode;

/// One AF_XDP socket.
pub(super) struct Socket(OwnedFd);

/// The queue and the device that a socket is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) device: u32,
    pub(super) queue: u32,
}

impl Socket {
    pub(super) fn new() -> io::Result<Socket> {
        // SAFETY: no addresses are passed.
        let code = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(code)?;
        // SAFETY: the kernel has made this descriptor for us alone.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(code) }))
    }

    /// Registers memory for frames.
    pub(super) fn register(&self, start: *mut u8, len: usize, frame: u32) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: start as u64,
            len: len as u64,
            chunk_size: frame,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::XDP_UMEM_REG, &registration)
    }

    /// Sets the length of one of its rings.
    pub(super) fn make_ring(&self, option: libc::c_int, len: u32) -> io::Result<()> {
        self.set(option, &len)
    }

    pub(super) fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        self.get(libc::XDP_MMAP_OFFSETS)
    }

    /// Binds the first socket of a queue, with zero-copy if the driver supports it, unless `mode`
    /// says otherwise.
    pub(super) fn bind(&self, place: Place, mode: Mode) -> io::Result<()> {
        let wanted = match mode {
            Mode::Auto => 0,
            Mode::Copy => libc::XDP_COPY,
            Mode::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        self.bind_with(place, wanted | libc::XDP_USE_NEED_WAKEUP, 0)
    }

    /// Binds a further socket of a queue, which shares the first one's memory and rings of frames.
    pub(super) fn bind_beside(&self, place: Place, first: &Socket) -> io::Result<()> {
        self.bind_with(place, libc::XDP_SHARED_UMEM, first.0.as_raw_fd() as u32)
    }

    fn bind_with(&self, place: Place, flags: u16, shared: u32) -> io::Result<()> {
        let name = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: place.device,
            sxdp_queue_id: place.queue,
            sxdp_shared_umem_fd: shared,
        };
        let len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: the name is of that length and lives during the call.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const name).cast(), len) })
    }

    /// Whether the driver reads and writes the frames itself.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let options: libc::xdp_options = self.get(libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.get(libc::XDP_STATISTICS)
    }

    /// Makes the kernel look at the send ring.
    pub(super) fn kick_send(&self) -> io::Result<()> {
        let (null, none) = (std::ptr::null(), libc::MSG_DONTWAIT);
        // SAFETY: nothing is passed; the frames are in the ring.
        let code = unsafe { libc::sendto(self.0.as_raw_fd(), null, 0, none, std::ptr::null(), 0) };
        if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the kernel look at the fill ring.
    pub(super) fn kick_fill(&self) {
        let (null, none) = (std::ptr::null_mut(), libc::MSG_DONTWAIT);
        // SAFETY: no room for data is passed.
        let _ = unsafe { libc::recv(self.0.as_raw_fd(), null, 0, none) };
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        let value = (&raw const *value).cast();
        // SAFETY: the value is of that length and lives during the call.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_XDP, option, value, len) })
    }

    /// `T` is one of libc's structures of integers.
    fn get<T: Copy>(&self, option: libc::c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        let (pointer, len) = (value.as_mut_ptr().cast(), &raw mut len);
        // SAFETY: the kernel writes at most `len` bytes to the value.
        check(unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_XDP, option, pointer, len)
        })?;
        // SAFETY: zeros are a value of it, and so is what the kernel wrote over them.
        Ok(unsafe { value.assume_init() })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
