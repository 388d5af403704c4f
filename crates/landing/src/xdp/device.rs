//! A network device: its index, its Ethernet address, its longest packet.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::headers::Mac;

/// A device by name, with its properties when it was looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) mac: Mac,
    pub(super) packet_bytes_max: usize,
}

impl Device {
    pub(super) fn find(name: &str) -> io::Result<Device> {
        let c_name = CString::new(name)?;
        // SAFETY: the name is a C string that lives during the call.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let socket: OwnedFd =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?.into();
        let request = ask(&socket, name, libc::SIOCGIFHWADDR)?;
        // SAFETY: the call has filled in the address.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            let message = format!("{name} is no Ethernet device");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let mac = std::array::from_fn(|at| address.sa_data[at] as u8);
        let request = ask(&socket, name, libc::SIOCGIFMTU)?;
        // SAFETY: the call has filled in the length.
        let packet_bytes_max = unsafe { request.ifr_ifru.ifru_mtu } as usize;
        Ok(Device { index, mac, packet_bytes_max })
    }
}

fn ask(socket: &OwnedFd, name: &str, question: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: a request of zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *target = byte as libc::c_char;
    }
    // SAFETY: both questions read the name and write an answer into the same structure.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
}
