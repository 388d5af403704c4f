//! CLUSTER and its subcommands, and the connection commands of cluster clients.

use super::{Read, next, next_i64};
use crate::resp::args::ArgIter;
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::table::CommandId;

/// Hash slots of Redis Cluster.
const SLOT_COUNT: u16 = 16_384;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A subcommand of CLUSTER, or a command of the client of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterCommand<'a> {
    /// `READONLY`.
    ReadOnly,
    /// `READWRITE`.
    ReadWrite,
    /// `ASKING`.
    Asking,
    /// `SLOTS`.
    Slots,
    /// `SHARDS`.
    Shards,
    /// `NODES`.
    Nodes,
    /// `INFO`.
    Info,
    /// `MYID`.
    MyId,
    /// `MYSHARDID`.
    MyShardId,
    /// `LINKS`.
    Links,
    /// `KEYSLOT key`.
    KeySlot { key: &'a [u8] },
    /// `COUNTKEYSINSLOT slot`; the slot is valid.
    CountKeysInSlot { slot: u16 },
    /// `GETKEYSINSLOT slot count`; the slot is valid.
    GetKeysInSlot { slot: u16, count: u64 },
    /// `COUNT-FAILURE-REPORTS node`.
    CountFailureReports { node: &'a [u8] },
    /// `REPLICAS node` and SLAVES.
    Replicas { node: &'a [u8], id: CommandId },
    /// Subcommands that change a Redis cluster: ADDSLOTS, MEET, FAILOVER and similar ones.
    Administer { id: CommandId },
}

impl ClusterCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            ClusterCommand::ReadOnly => CommandId::ReadOnly,
            ClusterCommand::ReadWrite => CommandId::ReadWrite,
            ClusterCommand::Asking => CommandId::Asking,
            ClusterCommand::Slots => CommandId::ClusterSlots,
            ClusterCommand::Shards => CommandId::ClusterShards,
            ClusterCommand::Nodes => CommandId::ClusterNodes,
            ClusterCommand::Info => CommandId::ClusterInfo,
            ClusterCommand::MyId => CommandId::ClusterMyId,
            ClusterCommand::MyShardId => CommandId::ClusterMyShardId,
            ClusterCommand::Links => CommandId::ClusterLinks,
            ClusterCommand::KeySlot { .. } => CommandId::ClusterKeySlot,
            ClusterCommand::CountKeysInSlot { .. } => CommandId::ClusterCountKeysInSlot,
            ClusterCommand::GetKeysInSlot { .. } => CommandId::ClusterGetKeysInSlot,
            ClusterCommand::CountFailureReports { .. } => CommandId::ClusterCountFailureReports,
            ClusterCommand::Replicas { id, .. } | ClusterCommand::Administer { id } => *id,
        }
    }
}

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(Command::Cluster(match id {
        CommandId::ReadOnly => ClusterCommand::ReadOnly,
        CommandId::ReadWrite => ClusterCommand::ReadWrite,
        CommandId::Asking => ClusterCommand::Asking,
        CommandId::ClusterHelp => return Ok(Command::Help { id }),
        CommandId::ClusterSlots => ClusterCommand::Slots,
        CommandId::ClusterShards => ClusterCommand::Shards,
        CommandId::ClusterNodes => ClusterCommand::Nodes,
        CommandId::ClusterInfo => ClusterCommand::Info,
        CommandId::ClusterMyId => ClusterCommand::MyId,
        CommandId::ClusterMyShardId => ClusterCommand::MyShardId,
        CommandId::ClusterLinks => ClusterCommand::Links,
        CommandId::ClusterKeySlot => ClusterCommand::KeySlot { key: next(args) },
        CommandId::ClusterCountKeysInSlot => {
            let slot = slot_of(next_i64(args)?).ok_or(ErrorReply::InvalidSlot)?;
            ClusterCommand::CountKeysInSlot { slot }
        }
        CommandId::ClusterGetKeysInSlot => {
            let (slot, count) = (next_i64(args)?, next_i64(args)?);
            match (slot_of(slot), u64::try_from(count)) {
                (Some(slot), Ok(count)) => ClusterCommand::GetKeysInSlot { slot, count },
                _ => return Err(ErrorReply::InvalidSlotOrCount),
            }
        }
        CommandId::ClusterCountFailureReports => {
            ClusterCommand::CountFailureReports { node: next(args) }
        }
        CommandId::ClusterReplicas | CommandId::ClusterSlaves => {
            ClusterCommand::Replicas { node: next(args), id }
        }
        _ => ClusterCommand::Administer { id },
    }))
}

fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOT_COUNT)
}
