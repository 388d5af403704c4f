//! CLUSTER and its subcommands: a client's questions about the cluster.

use super::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// `CLUSTER subcommand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterRequest<'a> {
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

impl ClusterRequest<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            ClusterRequest::Slots => CommandId::ClusterSlots,
            ClusterRequest::Shards => CommandId::ClusterShards,
            ClusterRequest::Nodes => CommandId::ClusterNodes,
            ClusterRequest::Info => CommandId::ClusterInfo,
            ClusterRequest::MyId => CommandId::ClusterMyId,
            ClusterRequest::MyShardId => CommandId::ClusterMyShardId,
            ClusterRequest::Links => CommandId::ClusterLinks,
            ClusterRequest::KeySlot { .. } => CommandId::ClusterKeySlot,
            ClusterRequest::CountKeysInSlot { .. } => CommandId::ClusterCountKeysInSlot,
            ClusterRequest::GetKeysInSlot { .. } => CommandId::ClusterGetKeysInSlot,
            ClusterRequest::CountFailureReports { .. } => CommandId::ClusterCountFailureReports,
            ClusterRequest::Replicas { id, .. } | ClusterRequest::Administer { id } => *id,
        }
    }
}
