//! libibverbs, loaded on first use: objects that close themselves, and calls that check their
//! results.
//!
//! ```text
//!   Device ◀── Domain ◀── Memory            a region that the device may reach
//!     ▲          ▲──────── SharedQueue      receives of all connections
//!     └─ Channel ◀─ CompletionQueue ◀─ QueuePair
//! ```
//!
//! An arrow is a reference that keeps the object it points to open. This module knows nothing about
//! the contents of the connections.

pub mod abi;
mod library;
mod memory;
mod queue_pair;
mod queues;

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use base::sync::Arc;

use self::library::Library;
pub use self::library::NotLoaded;
pub use self::memory::{Domain, Memory};
pub use self::queue_pair::{Exit, Peer, QueuePair, QueuePairSize, Timing, segment};
pub use self::queues::{Channel, CompletionQueue, SharedQueue};

/// An opened device.
pub struct Device {
    library: &'static Library,
    context: NonNull<abi::Context>,
    name: String,
}

// SAFETY: libibverbs locks what its objects share; a context may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The subject of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection with that number is broken.
    Broken(u32),
    /// The connection with that number, which was broken, takes no more receives.
    LastReceive(u32),
    /// Fewer receives are left in a shared queue than its limit; the limit is off now.
    LowWater,
    /// The device itself has failed.
    DeviceLost,
    /// Anything else: ports that go up and down, paths that migrate.
    Other,
}

impl Device {
    /// Opens the device of that name, or the first.
    pub fn open(name: Option<&str>) -> Result<Device, OpenError> {
        let library = Library::get()?;
        let devices = match DeviceList::new(library) {
            // The kernel has no RDMA at all.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                return Err(OpenError::NoDevice { seen: Vec::new() });
            }
            devices => devices.map_err(OpenError::Refused)?,
        };
        let mut seen = Vec::new();
        for device in devices.iter() {
            let found = devices.name(device);
            if name.is_none_or(|name| name == found) {
                // SAFETY: the device is one of the list, which is not freed yet.
                let context = unsafe { (library.open_device)(device) };
                let context = NonNull::new(context).ok_or_else(last_error);
                let context = context.map_err(OpenError::Refused)?;
                let device = Device { library, context, name: found };
                device.never_block_on_events().map_err(OpenError::Refused)?;
                return Ok(device);
            }
            seen.push(found);
        }
        Err(OpenError::NoDevice { seen })
    }

    /// Its name, as in /sys/class/infiniband.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limits.
    pub fn attributes(&self) -> io::Result<abi::DeviceAttributes> {
        // SAFETY: the structure is plain integers, for which zeros are a value.
        let mut attributes: abi::DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the library writes one structure of this layout.
        let code =
            unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attributes) };
        checked(code).map(|()| attributes)
    }

    /// A port's state.
    pub fn port(&self, port: u8) -> io::Result<abi::PortAttributes> {
        // SAFETY: the structure is plain integers, for which zeros are a value.
        let mut attributes: abi::PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the library writes at most one structure of this layout.
        let code =
            unsafe { (self.library.query_port)(self.context.as_ptr(), port, &raw mut attributes) };
        checked(code).map(|()| attributes)
    }

    /// One of a port's addresses.
    pub fn gid(&self, port: u8, index: u8) -> io::Result<[u8; 16]> {
        let mut gid = [0; 16];
        let context = self.context.as_ptr();
        // SAFETY: the context is open, and the library writes 16 bytes.
        let code = unsafe {
            (self.library.query_gid)(context, port, index.into(), gid.as_mut_ptr().cast())
        };
        checked(code).map(|()| gid)
    }

    /// The descriptor that is readable when there is an event.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open; the field is written when it is opened, and only then.
        let fd = unsafe { (*self.context.as_ptr()).async_fd };
        // SAFETY: the descriptor is open as long as the context, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next event, if there is one.
    pub fn next_event(&self) -> Option<Event> {
        let mut event = abi::AsyncEvent { element: std::ptr::null_mut(), kind: 0 };
        // SAFETY: the context is open, and the library writes one event of this layout.
        let code = unsafe { (self.library.get_event)(self.context.as_ptr(), &raw mut event) };
        if code != 0 {
            return None;
        }
        let number = || {
            // SAFETY: events of these kinds are about a queue pair, which is not destroyed before
            // its events are acknowledged; the number does not change.
            unsafe { (*event.element.cast::<abi::QueuePair>()).number }
        };
        let meaning = match event.kind {
            abi::EVENT_QUEUE_PAIR_FATAL
            | abi::EVENT_QUEUE_PAIR_REQUEST
            | abi::EVENT_QUEUE_PAIR_ACCESS => Event::Broken(number()),
            abi::EVENT_LAST_RECEIVE => Event::LastReceive(number()),
            abi::EVENT_SHARED_QUEUE_LIMIT => Event::LowWater,
            abi::EVENT_DEVICE_FATAL => Event::DeviceLost,
            _ => Event::Other,
        };
        // SAFETY: the event came from `get_event` and is acknowledged once.
        unsafe { (self.library.acknowledge_event)(&raw mut event) };
        Some(meaning)
    }

    fn never_block_on_events(&self) -> io::Result<()> {
        set_nonblocking(self.event_fd())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from the context has a reference to `self`, so all of it is gone.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library is not installed, or is too old.
    #[error(transparent)]
    NotLoaded(#[from] NotLoaded),
    /// There is no device, or none of that name.
    #[error("no such RDMA device; there are {seen:?}")]
    NoDevice {
        /// The names of the devices that exist.
        seen: Vec<String>,
    },
    /// The kernel or the provider refused.
    #[error("the RDMA device refuses: {0}")]
    Refused(io::Error),
}

/// The devices of this host, while one of them is being opened.
struct DeviceList {
    library: &'static Library,
    first: *mut *mut abi::Device,
    count: usize,
}

impl DeviceList {
    fn new(library: &'static Library) -> io::Result<DeviceList> {
        let mut count = 0;
        // SAFETY: the library writes how many there are, and returns an array of them.
        let first = unsafe { (library.get_device_list)(&raw mut count) };
        if first.is_null() {
            return Err(last_error());
        }
        Ok(DeviceList { library, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn iter(&self) -> impl Iterator<Item = *mut abi::Device> + '_ {
        // SAFETY: the array has `count` entries and is not freed before `self` goes.
        (0..self.count).map(|index| unsafe { *self.first.wrapping_add(index) })
    }

    fn name(&self, device: *mut abi::Device) -> String {
        // SAFETY: the device is one of the list.
        let name = unsafe { (self.library.get_device_name)(device) };
        // SAFETY: names are terminated strings that live as long as the list.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the array came from `get_device_list` and is freed once.
        unsafe { (self.library.free_device_list)(self.first) };
    }
}

/// The result of a call that returns an error number.
fn checked(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Some return -1 and set errno, some the number itself.
        -1 => Err(last_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// The result of a call that makes an object.
fn made<T>(object: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(object).ok_or_else(last_error)
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Every object keeps its device open.
type SharedDevice = Arc<Device>;
