//! Memory that a device may access.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

use base::sync::Arc;
use landing::Region;

use super::{SharedDevice, abi, made};

/// A protection domain: only its own connections reach its memory.
pub struct Domain {
    pub(super) domain: NonNull<abi::ProtectionDomain>,
    pub(super) device: SharedDevice,
}

// SAFETY: libibverbs locks what its objects share; a domain may be used from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// A domain of the device.
    pub fn new(device: SharedDevice) -> io::Result<Domain> {
        // SAFETY: the context is open as long as the device.
        let domain = unsafe { (device.library.alloc_domain)(device.context.as_ptr()) };
        Ok(Domain { domain: made(domain)?, device })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything made in the domain has a reference to it, so all of it is gone.
        unsafe { (self.device.library.free_domain)(self.domain.as_ptr()) };
    }
}

/// A registered part of a region. It keeps the region until the device has released it.
pub struct Memory {
    registered: NonNull<abi::MemoryRegion>,
    domain: Arc<Domain>,
    region: Arc<Region>,
}

// SAFETY: a registration is two numbers and a region, which may be sent and shared itself.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// All of the region, to be written by messages of the domain's connections.
    pub fn landing(domain: &Arc<Domain>, region: &Arc<Region>) -> io::Result<Memory> {
        let len_bytes = region.len_bytes();
        Memory::register(domain, region, len_bytes, abi::ACCESS_LOCAL_WRITE)
    }

    /// Its first bytes, to be read by peers that have the key.
    pub fn readable(
        domain: &Arc<Domain>,
        region: &Arc<Region>,
        len_bytes: usize,
    ) -> io::Result<Memory> {
        Memory::register(domain, region, len_bytes, abi::ACCESS_REMOTE_READ)
    }

    fn register(
        domain: &Arc<Domain>,
        region: &Arc<Region>,
        len_bytes: usize,
        access: c_int,
    ) -> io::Result<Memory> {
        assert!(len_bytes <= region.len_bytes(), "what is registered lies in the region");
        let start = region.start().as_ptr().cast();
        // SAFETY: the range is mapped as long as the region, which is kept; the code that posts
        // requests with it says which thread or device may touch which byte when.
        let registered = unsafe {
            (domain.device.library.register)(domain.domain.as_ptr(), start, len_bytes, access)
        };
        let registered = made(registered).map_err(|error| explain(error, len_bytes))?;
        Ok(Memory { registered, domain: domain.clone(), region: region.clone() })
    }

    /// The key for requests on this host.
    pub fn local_key(&self) -> u32 {
        // SAFETY: the registration lives as long as `self`, and its keys do not change.
        unsafe { (*self.registered.as_ptr()).local_key }
    }

    /// The key for peers.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.registered.as_ptr()).remote_key }
    }

    /// The address of a byte of its region.
    pub fn address(&self, offset_bytes: usize) -> u64 {
        assert!(offset_bytes <= self.region.len_bytes(), "addresses stay inside the region");
        self.region.start().as_ptr() as u64 + offset_bytes as u64
    }
}

fn explain(error: io::Error, len_bytes: usize) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let message = format!(
        "{len_bytes} bytes cannot be locked in memory for RDMA: raise RLIMIT_MEMLOCK (systemd: \
         LimitMEMLOCK=infinity)"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, message)
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the registration was made by `register` and is given back once.
        let code = unsafe { (self.domain.device.library.unregister)(self.registered.as_ptr()) };
        if code != 0 {
            // The device may still write there, so the memory stays for good.
            std::mem::forget(self.region.clone());
        }
    }
}
