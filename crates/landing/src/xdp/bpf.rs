//! The bpf(2) calls that the XDP program needs: a map of sockets, the program, the link.
//!
//! The link is a descriptor: when its last copy is closed, by `drop` or by the end of a killed
//! process, the kernel takes the program off the device.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::program::Instruction;

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// The length of the kernel's text about a program that it refuses.
const LOG_BYTES: usize = 16 << 10;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    /// Only read with a flag that says so.
    old_program: u32,
}

/// A map from places to AF_XDP sockets.
pub(super) fn socket_map(entries_max: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_bytes: 4,
        value_bytes: 4,
        entries_max,
        flags: 0,
    };
    // SAFETY: the attributes hold no addresses.
    descriptor(unsafe { bpf(MAP_CREATE, &mut attributes) })
}

/// Puts a socket at a place of the map.
pub(super) fn put_socket(map: &OwnedFd, place: u32, socket: RawFd) -> io::Result<()> {
    let mut attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const place) as u64,
        value: (&raw const socket) as u64,
        flags: 0,
    };
    // SAFETY: key and value are 4 bytes each, as the map was made, and live during the call.
    unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(drop)
}

/// Loads a program; the error contains the kernel's objections.
pub(super) fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let mut log = vec![0_u8; LOG_BYTES];
    let mut attributes = ProgramLoad {
        program_type: PROGRAM_TYPE_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 1,
        log_bytes: LOG_BYTES as u32,
        log: log.as_mut_ptr() as u64,
    };
    // SAFETY: the addresses lead to that many instructions, a C string and a log of that length,
    // all of which live during the call.
    let result = unsafe { bpf(PROGRAM_LOAD, &mut attributes) };
    descriptor(result.map_err(|error| {
        let text = String::from_utf8_lossy(&log);
        let said = text.trim_end_matches('\0').trim_end();
        if said.is_empty() {
            error
        } else {
            io::Error::new(error.kind(), format!("{error}: {said}"))
        }
    }))
}

/// Attaches a program to a device, in the driver if it can, as long as the link is open.
pub(super) fn attach(program: &OwnedFd, device: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let mut attributes = LinkCreate { program, device, attach_type: ATTACH_XDP, flags: 0 };
    // SAFETY: the attributes hold no addresses.
    descriptor(unsafe { bpf(LINK_CREATE, &mut attributes) })
}

/// Replaces the program of a link, between two frames.
pub(super) fn replace(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let (link, program) = (link.as_raw_fd() as u32, program.as_raw_fd() as u32);
    let mut attributes = LinkUpdate { link, program, flags: 0, old_program: 0 };
    // SAFETY: the attributes hold no addresses.
    unsafe { bpf(LINK_UPDATE, &mut attributes) }.map(drop)
}

fn descriptor(result: io::Result<RawFd>) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has made this descriptor for us alone.
    result.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// # Safety
/// `T` is what the command takes, and addresses in it are valid during the call.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads as many bytes as it is told; the caller answers for what they say.
    let code =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code as RawFd) }
}
