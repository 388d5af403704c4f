//! The port and address of a device that connections leave by.

use std::io;

use crate::RdmaConfig;
use crate::verbs::{Device, Exit, abi};

/// The kind of address that peers can be reached by.
const ROCE_V2: &str = "RoCE v2";
const GIDS_MAX: i32 = 256;
/// The maximum number of reads at a time: more than one batch is rarely on the way.
const READS_MAX: i32 = 16;

/// A port with the address that was chosen for it.
#[derive(Clone, Copy)]
pub struct Port {
    /// The port and address that connections leave by.
    pub exit: Exit,
    /// Our address.
    pub gid: [u8; 16],
    /// Our local id.
    pub lid: u16,
}

impl Port {
    /// The port and address that the configuration names, or the best available.
    pub fn choose(
        device: &Device,
        limits: &abi::DeviceAttributes,
        config: &RdmaConfig,
    ) -> io::Result<Port> {
        let attributes = device.port(config.port)?;
        let is_ethernet = attributes.link_layer == abi::LINK_LAYER_ETHERNET;
        let gid_index = match config.gid_index {
            Some(index) => index,
            None if is_ethernet => best_gid(device, config.port, attributes.gid_count)?,
            None => 0,
        };
        let reads = limits.reads_answered_max.min(limits.reads_asked_max).clamp(0, READS_MAX);
        Ok(Port {
            exit: Exit {
                port: config.port,
                gid_index,
                is_ethernet,
                mtu: attributes.mtu_active.clamp(1, 5) as u8,
                reads_max: reads as u8,
            },
            gid: device.gid(config.port, gid_index)?,
            lid: attributes.lid,
        })
    }
}

/// The first address of the best kind.
fn best_gid(device: &Device, port: u8, gid_count: i32) -> io::Result<u8> {
    let folder = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/types", device.name());
    let mut best = None;
    for index in 0..gid_count.clamp(0, GIDS_MAX) as usize {
        // An entry that is not used cannot be read.
        let Ok(kind) = std::fs::read_to_string(format!("{folder}/{index}")) else { continue };
        let Ok(gid) = device.gid(port, index as u8) else { continue };
        let rank = rank(kind.trim(), &gid);
        if rank > best.map_or(0, |(_, rank)| rank) {
            best = Some((index as u8, rank));
        }
    }
    let found = best.map(|(index, _)| index);
    found.ok_or_else(|| io::Error::other("the RDMA port has no RoCE v2 address: give it an IP"))
}

/// IPv4 before IPv6 before link-local; 0: unusable.
fn rank(kind: &str, gid: &[u8; 16]) -> u8 {
    let is_ipv4 = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
    match () {
        () if kind != ROCE_V2 || *gid == [0; 16] => 0,
        () if is_ipv4 => 3,
        () if gid[0] == 0xfe && gid[1] & 0xc0 == 0x80 => 1,
        () => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_comes_before_ipv6_before_link_local() {
        let mut link_local = [0; 16];
        link_local[..2].copy_from_slice(&[0xfe, 0x80]);
        let global = [0x20; 16];
        let ipv4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let ranks = [[0; 16], link_local, global, ipv4].map(|gid| rank(ROCE_V2, &gid));
        assert_eq!(ranks, [0, 1, 2, 3]);
        assert_eq!(rank("IB/RoCE v1", &ipv4), 0);
    }
}
