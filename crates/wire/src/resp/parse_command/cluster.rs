//! CLUSTER and its subcommands, and the connection commands of cluster clients.

use super::{Read, next, next_i64};
use crate::resp::args::ArgIter;
use crate::resp::cluster::ClusterRequest;
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::table::CommandId;

/// Hash slots of Redis Cluster.
const SLOT_COUNT: u16 = 16_384;

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(Command::Cluster(match id {
        CommandId::ReadOnly => return Ok(Command::ReadOnly),
        CommandId::ReadWrite => return Ok(Command::ReadWrite),
        CommandId::Asking => return Ok(Command::Asking),
        CommandId::ClusterHelp => return Ok(Command::Help { id }),
        CommandId::ClusterSlots => ClusterRequest::Slots,
        CommandId::ClusterShards => ClusterRequest::Shards,
        CommandId::ClusterNodes => ClusterRequest::Nodes,
        CommandId::ClusterInfo => ClusterRequest::Info,
        CommandId::ClusterMyId => ClusterRequest::MyId,
        CommandId::ClusterMyShardId => ClusterRequest::MyShardId,
        CommandId::ClusterLinks => ClusterRequest::Links,
        CommandId::ClusterKeySlot => ClusterRequest::KeySlot { key: next(args) },
        CommandId::ClusterCountKeysInSlot => {
            let slot = slot_of(next_i64(args)?).ok_or(ErrorReply::InvalidSlot)?;
            ClusterRequest::CountKeysInSlot { slot }
        }
        CommandId::ClusterGetKeysInSlot => {
            let (slot, count) = (next_i64(args)?, next_i64(args)?);
            match (slot_of(slot), u64::try_from(count)) {
                (Some(slot), Ok(count)) => ClusterRequest::GetKeysInSlot { slot, count },
                _ => return Err(ErrorReply::InvalidSlotOrCount),
            }
        }
        CommandId::ClusterCountFailureReports => {
            ClusterRequest::CountFailureReports { node: next(args) }
        }
        CommandId::ClusterReplicas | CommandId::ClusterSlaves => {
            ClusterRequest::Replicas { node: next(args), id }
        }
        _ => ClusterRequest::Administer { id },
    }))
}

fn slot_of(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOT_COUNT)
}
