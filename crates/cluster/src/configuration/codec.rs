//! The byte format of the configuration, in the config store and between peers
//! (docs/formats/configuration.md).
//!
//! ```text
//!  0        4         6         8       16          20
//!  | "DTCF" | version | spare 0 | term  | CRC-32C   | members | shards | addresses |
//! ```
//!
//! Little-endian. The checksum covers everything but itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::addresses::{ADDRESS_MAX_BYTES, Addresses};
use crate::configuration::{Configuration, Shard};
use crate::crc::crc32c;
use crate::ids::{NodeId, Term};
use crate::slot::Slot;

const MAGIC: [u8; 4] = *b"DTCF";
/// Without ports of TLS, so that older releases read it.
const FORMAT_PLAIN: u16 = 2;
const FORMAT_VERSION: u16 = 3;
/// The bit of the host's length that says that ports of TLS follow the names.
const HAS_TLS: u16 = 1 << 15;
const HEAD_BYTES: usize = 20;
const CHECKSUM_AT: usize = 16;

/// Bits of a shard's flags.
const HAS_JOINING: u8 = 1;
const HAS_FILLING: u8 = 2;
const HAS_WAITING: u8 = 4;

/// The reason why bytes are not a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not begin like a configuration.
    NotOurs,
    /// Another release wrote it.
    UnknownVersion {
        /// The version found.
        found: u16,
        /// The version that this release reads.
        known: u16,
    },
    /// The checksum does not match, or the bytes end early.
    Damaged,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::NotOurs => formatter.write_str("this is no configuration of a cluster"),
            DecodeError::UnknownVersion { found, known } => write!(
                formatter,
                "the configuration has format {found}, this release reads {known}: use one release"
            ),
            DecodeError::Damaged => formatter.write_str("the configuration's bytes are damaged"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Configuration {
    /// Encodes the configuration.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 32 * self.shards.len());
        bytes.extend(MAGIC);
        let has_tls = self.addresses.values().any(|addresses| addresses.has_tls());
        let format = if has_tls { FORMAT_VERSION } else { FORMAT_PLAIN };
        bytes.extend(format.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.term.0.to_le_bytes());
        bytes.extend([0; 4]);
        put_nodes(&mut bytes, &self.members);
        bytes.extend((self.shards.len() as u16).to_le_bytes());
        for shard in &self.shards {
            put_shard(&mut bytes, shard);
        }
        bytes.extend((self.addresses.len() as u16).to_le_bytes());
        for (node, addresses) in &self.addresses {
            put_node(&mut bytes, *node);
            put_addresses(&mut bytes, addresses);
        }
        let checksum = checksum_of(&bytes);
        bytes[CHECKSUM_AT..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a configuration and checks everything, [`Configuration::validate`] included.
    pub fn decode(bytes: &[u8]) -> Result<Configuration, DecodeError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(DecodeError::NotOurs);
        }
        let mut reader = Reader { bytes: &bytes[MAGIC.len()..] };
        let found = reader.u16()?;
        if !(FORMAT_PLAIN..=FORMAT_VERSION).contains(&found) {
            return Err(DecodeError::UnknownVersion { found, known: FORMAT_VERSION });
        }
        reader.u16()?;
        let term = Term(reader.u64()?);
        if reader.u32()? != checksum_of(bytes) {
            return Err(DecodeError::Damaged);
        }
        let members = reader.nodes()?;
        let shard_count = reader.u16()?;
        let shards = (0..shard_count).map(|_| reader.shard()).collect::<Result<_, _>>()?;
        let addresses = reader.addresses_of_members()?;
        let configuration = Configuration { term, members, shards, addresses };
        let is_whole = reader.bytes.is_empty() && configuration.validate().is_ok();
        if is_whole { Ok(configuration) } else { Err(DecodeError::Damaged) }
    }
}

fn checksum_of(bytes: &[u8]) -> u32 {
    let mut covered = bytes[..CHECKSUM_AT].to_vec();
    covered.extend(&bytes[HEAD_BYTES..]);
    crc32c(&covered)
}

fn put_node(bytes: &mut Vec<u8>, node: NodeId) {
    bytes.extend(node.name.to_le_bytes());
    bytes.extend(node.incarnation.to_le_bytes());
}

fn put_nodes(bytes: &mut Vec<u8>, nodes: &[NodeId]) {
    bytes.extend((nodes.len() as u16).to_le_bytes());
    nodes.iter().for_each(|node| put_node(bytes, *node));
}

fn put_shard(bytes: &mut Vec<u8>, shard: &Shard) {
    bytes.extend(shard.first.0.to_le_bytes());
    bytes.extend(shard.last.0.to_le_bytes());
    bytes.extend(shard.epoch.to_le_bytes());
    let joining = if shard.joining.is_some() { HAS_JOINING } else { 0 };
    let filling = if shard.filling_from.is_some() { HAS_FILLING } else { 0 };
    let waiting = if shard.waiting.is_empty() { 0 } else { HAS_WAITING };
    bytes.push(joining | filling | waiting);
    bytes.push(0);
    put_node(bytes, shard.primary);
    put_nodes(bytes, &shard.backups);
    shard.joining.into_iter().chain(shard.filling_from).for_each(|node| put_node(bytes, node));
    if !shard.waiting.is_empty() {
        put_nodes(bytes, &shard.waiting);
    }
}

pub(crate) fn put_addresses(bytes: &mut Vec<u8>, addresses: &Addresses) {
    for port in [addresses.resp, addresses.memcached, addresses.native, addresses.admin] {
        bytes.extend(port.to_le_bytes());
    }
    let mark = if addresses.has_tls() { HAS_TLS } else { 0 };
    put_text(bytes, &addresses.host, mark);
    put_text(bytes, &addresses.peer, 0);
    if addresses.has_tls() {
        bytes.extend(addresses.tls_resp.to_le_bytes());
        bytes.extend(addresses.tls_memcached.to_le_bytes());
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str, mark: u16) {
    bytes.extend((text.len() as u16 | mark).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Decodes the addresses at the start of these bytes, and returns the rest.
pub(crate) fn split_addresses(bytes: &[u8]) -> Result<(Addresses, &[u8]), DecodeError> {
    let mut reader = Reader { bytes };
    Ok((reader.addresses()?, reader.bytes))
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const LEN: usize>(&mut self) -> Result<[u8; LEN], DecodeError> {
        let (head, rest) = self.bytes.split_first_chunk().ok_or(DecodeError::Damaged)?;
        self.bytes = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    fn node(&mut self) -> Result<NodeId, DecodeError> {
        Ok(NodeId { name: self.u16()?, incarnation: self.u32()? })
    }

    fn nodes(&mut self) -> Result<Vec<NodeId>, DecodeError> {
        let count = self.u16()?;
        (0..count).map(|_| self.node()).collect()
    }

    fn shard(&mut self) -> Result<Shard, DecodeError> {
        let (first, last, epoch) = (Slot(self.u16()?), Slot(self.u16()?), self.u16()?);
        let [flags, _] = self.take()?;
        if flags & !(HAS_JOINING | HAS_FILLING | HAS_WAITING) != 0 {
            return Err(DecodeError::Damaged);
        }
        let (primary, backups) = (self.node()?, self.nodes()?);
        let joining = if flags & HAS_JOINING == 0 { None } else { Some(self.node()?) };
        let filling_from = if flags & HAS_FILLING == 0 { None } else { Some(self.node()?) };
        let waiting = if flags & HAS_WAITING == 0 { Vec::new() } else { self.nodes()? };
        Ok(Shard { first, last, epoch, primary, backups, joining, filling_from, waiting })
    }

    fn addresses_of_members(&mut self) -> Result<BTreeMap<NodeId, Arc<Addresses>>, DecodeError> {
        let count = self.u16()?;
        let mut all = BTreeMap::new();
        for _ in 0..count {
            let node = self.node()?;
            if all.last_key_value().is_some_and(|(last, _)| *last >= node) {
                return Err(DecodeError::Damaged);
            }
            all.insert(node, Arc::new(self.addresses()?));
        }
        Ok(all)
    }

    fn addresses(&mut self) -> Result<Addresses, DecodeError> {
        let (resp, memcached) = (self.u16()?, self.u16()?);
        let (native, admin) = (self.u16()?, self.u16()?);
        let len_bytes = self.u16()?;
        let host = self.text(len_bytes & !HAS_TLS)?;
        let peer_len_bytes = self.u16()?;
        let peer = self.text(peer_len_bytes)?;
        let has_tls = len_bytes & HAS_TLS != 0;
        let (tls_resp, tls_memcached) = if has_tls { (self.u16()?, self.u16()?) } else { (0, 0) };
        if has_tls && (tls_resp, tls_memcached) == (0, 0) {
            return Err(DecodeError::Damaged); // Each value has one encoding.
        }
        Ok(Addresses { host, resp, tls_resp, memcached, tls_memcached, native, admin, peer })
    }

    fn text(&mut self, len_bytes: u16) -> Result<String, DecodeError> {
        let len_bytes = usize::from(len_bytes);
        if len_bytes > ADDRESS_MAX_BYTES || len_bytes > self.bytes.len() {
            return Err(DecodeError::Damaged);
        }
        let (text, rest) = self.bytes.split_at(len_bytes);
        self.bytes = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| DecodeError::Damaged)
    }
}
