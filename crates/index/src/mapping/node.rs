//! The kernel's memory policy for a range of addresses: `mbind`, which no crate here wraps.
//!
//! The policy applies to pages that are not resident yet; nothing is moved. It is "preferred", not
//! "bind": a full node must not end the process while another has memory left.

use std::io;

/// The most nodes that the kernel can name.
pub const NODES_MAX: u32 = 1024;

/// One bit for each node.
type NodeMask = [libc::c_ulong; NODES_MAX as usize / libc::c_ulong::BITS as usize];

/// The kernel reads one bit less than it is told.
const MASK_BITS: libc::c_ulong = NODES_MAX as libc::c_ulong + 1;

/// Asks the kernel to take the range's non-resident pages from `node_id`, while that node has some.
pub(super) fn prefer(start: *mut u8, len_bytes: usize, node_id: u32) -> io::Result<()> {
    if cfg!(miri) || node_id >= NODES_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut mask: NodeMask = [0; _];
    let bits = libc::c_ulong::BITS;
    mask[(node_id / bits) as usize] = 1 << (node_id % bits);
    let (mode, flags) = (libc::MPOL_PREFERRED, 0_u32);
    // SAFETY: the mask is as long as the kernel is told and outlives the call; a policy changes no
    // byte, and the kernel checks the addresses.
    let answer = unsafe {
        libc::syscall(libc::SYS_mbind, start, len_bytes, mode, mask.as_ptr(), MASK_BITS, flags)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The node that the page at `address` is to come from; `None`: it has no policy of its own.
#[cfg(all(test, not(any(loom, miri))))]
pub(super) fn preferred(address: *mut u8) -> io::Result<Option<u32>> {
    /// `MPOL_F_ADDR`: the policy of an address, not of the thread.
    const OF_ADDRESS: libc::c_ulong = 1 << 1;
    let (mut mode, mut mask): (libc::c_int, NodeMask) = (0, [0; _]);
    let (mode_pointer, mask_pointer) = (&raw mut mode, mask.as_mut_ptr());
    // SAFETY: mode and mask are as long as the kernel is told and outlive the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            mode_pointer,
            mask_pointer,
            MASK_BITS,
            address,
            OF_ADDRESS,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let first = mask.iter().position(|word| *word != 0);
    let node_id = first.map(|at| at as u32 * libc::c_ulong::BITS + mask[at].trailing_zeros());
    Ok(node_id.filter(|_| mode == libc::MPOL_PREFERRED))
}
