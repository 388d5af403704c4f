//! The binary interface of libibverbs: structures, constants and functions (IBVERBS_1.1).
//!
//! The interface is that of `infiniband/verbs.h`. Since 2007 it has only changed by additions at
//! the ends of structures that the library itself allocates. Structures of which only the head is
//! needed are declared up to that point: no code here makes or copies one. `cargo xtask test-rdma`
//! compares sizes and offsets with the header's.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;

/// An opened device. The head of the C structure.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub operations: Operations,
    pub command_fd: c_int,
    pub async_fd: c_int,
}

/// The operations that the provider executes without the kernel, amid entries that are not used
/// here.
#[repr(C)]
pub struct Operations {
    before_poll: [*mut c_void; 11],
    pub poll_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    pub request_notify: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    before_post_srq: [*mut c_void; 7],
    pub post_srq_receive: unsafe extern "C" fn(
        *mut SharedQueue,
        *mut ReceiveRequest,
        *mut *mut ReceiveRequest,
    ) -> c_int,
    before_post_send: [*mut c_void; 4],
    pub post_send:
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    after_post_send: [*mut c_void; 6],
}

/// A device that may be opened; its fields are read by functions.
#[repr(C)]
pub struct Device {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct ProtectionDomain {
    pub context: *mut Context,
    pub handle: u32,
}

#[repr(C)]
pub struct MemoryRegion {
    pub context: *mut Context,
    pub domain: *mut ProtectionDomain,
    pub address: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub local_key: u32,
    pub remote_key: u32,
}

/// The head of the C structure.
#[repr(C)]
pub struct CompletionChannel {
    pub context: *mut Context,
    pub fd: c_int,
}

/// The head of the C structure.
#[repr(C)]
pub struct CompletionQueue {
    pub context: *mut Context,
}

/// The head of the C structure.
#[repr(C)]
pub struct SharedQueue {
    pub context: *mut Context,
}

/// The head of the C structure.
#[repr(C)]
pub struct QueuePair {
    pub context: *mut Context,
    pub user_context: *mut c_void,
    pub domain: *mut ProtectionDomain,
    pub send_queue: *mut CompletionQueue,
    pub receive_queue: *mut CompletionQueue,
    pub shared_queue: *mut SharedQueue,
    pub handle: u32,
    pub number: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttributes {
    pub firmware: [c_char; 64],
    pub node_guid: u64,
    pub system_guid: u64,
    pub region_bytes_max: u64,
    pub page_sizes: u64,
    pub vendor: u32,
    pub vendor_part: u32,
    pub hardware_version: u32,
    pub queue_pairs_max: c_int,
    pub send_requests_max: c_int,
    pub capabilities: c_uint,
    pub segments_max: c_int,
    pub read_segments_max: c_int,
    pub completion_queues_max: c_int,
    pub completions_max: c_int,
    pub regions_max: c_int,
    pub domains_max: c_int,
    pub reads_answered_max: c_int,
    between: [c_int; 2],
    pub reads_asked_max: c_int,
    to_shared: [c_int; 13],
    pub shared_queues_max: c_int,
    pub shared_requests_max: c_int,
    pub shared_segments_max: c_int,
    pub partition_keys_max: u16,
    pub acknowledge_delay: u8,
    pub port_count: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PortAttributes {
    pub state: c_uint,
    pub mtu_max: c_uint,
    pub mtu_active: c_uint,
    pub gid_count: c_int,
    pub capabilities: u32,
    pub message_bytes_max: u32,
    pub bad_key_count: u32,
    pub violation_count: u32,
    pub key_count: u16,
    pub lid: u16,
    pub manager_lid: u16,
    pub lid_mask: u8,
    pub lanes_max: u8,
    pub manager_level: u8,
    pub subnet_timeout: u8,
    pub init_reply: u8,
    pub width: u8,
    pub speed: u8,
    pub physical_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub more_capabilities: u16,
}

/// Aligned as its address is in C, where that is also two words.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct GlobalRoute {
    pub destination: [u8; 16],
    pub flow_label: u32,
    pub source_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AddressAttributes {
    pub route: GlobalRoute,
    pub destination_lid: u16,
    pub service_level: u8,
    pub source_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SharedQueueAttributes {
    pub requests_max: u32,
    pub segments_max: u32,
    pub limit: u32,
}

#[repr(C)]
pub struct SharedQueueInit {
    pub user_context: *mut c_void,
    pub attributes: SharedQueueAttributes,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct QueuePairSizes {
    pub send_requests_max: u32,
    pub receive_requests_max: u32,
    pub send_segments_max: u32,
    pub receive_segments_max: u32,
    pub inline_bytes_max: u32,
}

#[repr(C)]
pub struct QueuePairInit {
    pub user_context: *mut c_void,
    pub send_queue: *mut CompletionQueue,
    pub receive_queue: *mut CompletionQueue,
    pub shared_queue: *mut SharedQueue,
    pub sizes: QueuePairSizes,
    pub kind: c_uint,
    pub signals_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct QueuePairAttributes {
    pub state: c_uint,
    pub current_state: c_uint,
    pub path_mtu: c_uint,
    pub migration_state: c_uint,
    pub key: u32,
    pub receive_packet: u32,
    pub send_packet: u32,
    pub destination: u32,
    pub access: c_uint,
    pub sizes: QueuePairSizes,
    pub address: AddressAttributes,
    pub other_address: AddressAttributes,
    pub key_index: u16,
    pub other_key_index: u16,
    pub notifies_drained: u8,
    pub is_draining: u8,
    pub reads_asked_max: u8,
    pub reads_answered_max: u8,
    pub not_ready_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retry_count: u8,
    pub not_ready_retry_count: u8,
    pub other_port: u8,
    pub other_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    pub address: u64,
    pub length: u32,
    pub local_key: u32,
}

#[repr(C)]
pub struct ReceiveRequest {
    pub id: u64,
    pub next: *mut ReceiveRequest,
    pub segments: *mut Segment,
    pub segment_count: c_int,
}

/// A request to send; of the unions only the member for reads is declared, and room for the rest.
#[repr(C)]
pub struct SendRequest {
    pub id: u64,
    pub next: *mut SendRequest,
    pub segments: *mut Segment,
    pub segment_count: c_int,
    pub operation: c_uint,
    pub flags: c_uint,
    pub immediate: u32,
    pub remote_address: u64,
    pub remote_key: u32,
    pub rest: [u64; 9],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct WorkCompletion {
    pub id: u64,
    pub status: c_uint,
    pub operation: c_uint,
    pub vendor_error: u32,
    pub len_bytes: u32,
    pub immediate: u32,
    pub queue_pair: u32,
    pub source: u32,
    pub flags: c_uint,
    pub key_index: u16,
    pub source_lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
}

#[repr(C)]
pub struct AsyncEvent {
    /// A queue pair, a queue or a port, depending on the kind.
    pub element: *mut c_void,
    pub kind: c_uint,
}

pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;

pub const LINK_LAYER_ETHERNET: u8 = 2;

pub const SHARED_QUEUE_LIMIT: c_int = 1 << 1;

pub const KIND_RELIABLE: c_uint = 2;

pub const STATE_INIT: c_uint = 1;
pub const STATE_READY_TO_RECEIVE: c_uint = 2;
pub const STATE_READY_TO_SEND: c_uint = 3;
pub const STATE_ERROR: c_uint = 6;

pub const MASK_STATE: c_int = 1;
pub const MASK_ACCESS: c_int = 1 << 3;
pub const MASK_KEY_INDEX: c_int = 1 << 4;
pub const MASK_PORT: c_int = 1 << 5;
pub const MASK_ADDRESS: c_int = 1 << 7;
pub const MASK_PATH_MTU: c_int = 1 << 8;
pub const MASK_TIMEOUT: c_int = 1 << 9;
pub const MASK_RETRY_COUNT: c_int = 1 << 10;
pub const MASK_NOT_READY_RETRY: c_int = 1 << 11;
pub const MASK_RECEIVE_PACKET: c_int = 1 << 12;
pub const MASK_READS_ASKED: c_int = 1 << 13;
pub const MASK_NOT_READY_TIMER: c_int = 1 << 15;
pub const MASK_SEND_PACKET: c_int = 1 << 16;
pub const MASK_READS_ANSWERED: c_int = 1 << 17;
pub const MASK_DESTINATION: c_int = 1 << 20;

pub const OPERATION_SEND: c_uint = 2;
pub const OPERATION_READ: c_uint = 4;

pub const SEND_SIGNALED: c_uint = 1 << 1;
pub const SEND_INLINE: c_uint = 1 << 3;

pub const STATUS_SUCCESS: c_uint = 0;
pub const STATUS_LENGTH: c_uint = 1;
pub const STATUS_INVALID_REQUEST: c_uint = 9;

pub const EVENT_QUEUE_PAIR_FATAL: c_uint = 1;
pub const EVENT_QUEUE_PAIR_REQUEST: c_uint = 2;
pub const EVENT_QUEUE_PAIR_ACCESS: c_uint = 3;
pub const EVENT_DEVICE_FATAL: c_uint = 8;
pub const EVENT_SHARED_QUEUE_LIMIT: c_uint = 15;
pub const EVENT_LAST_RECEIVE: c_uint = 16;

// tests/layout.c checks the same of the header; `cargo xtask test-rdma` compiles it.
const _: () = {
    assert!(offset_of!(Context, operations) == 8);
    assert!(offset_of!(Context, command_fd) == 264);
    assert!(offset_of!(Context, async_fd) == 268);
    assert!(size_of::<Operations>() == 256);
    assert!(offset_of!(Operations, poll_cq) == 88);
    assert!(offset_of!(Operations, request_notify) == 96);
    assert!(offset_of!(Operations, post_srq_receive) == 160);
    assert!(offset_of!(Operations, post_send) == 200);
    assert!(size_of::<MemoryRegion>() == 48);
    assert!(offset_of!(MemoryRegion, local_key) == 36);
    assert!(offset_of!(MemoryRegion, remote_key) == 40);
    assert!(offset_of!(CompletionChannel, fd) == 8);
    assert!(offset_of!(QueuePair, number) == 52);
    assert!(size_of::<DeviceAttributes>() == 232);
    assert!(offset_of!(DeviceAttributes, send_requests_max) == 112);
    assert!(offset_of!(DeviceAttributes, reads_answered_max) == 144);
    assert!(offset_of!(DeviceAttributes, reads_asked_max) == 156);
    assert!(offset_of!(DeviceAttributes, shared_requests_max) == 216);
    assert!(offset_of!(DeviceAttributes, port_count) == 227);
    assert!(size_of::<PortAttributes>() == 52);
    assert!(offset_of!(PortAttributes, mtu_active) == 8);
    assert!(offset_of!(PortAttributes, lid) == 34);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<GlobalRoute>() == 24);
    assert!(offset_of!(GlobalRoute, source_index) == 20);
    assert!(size_of::<AddressAttributes>() == 32);
    assert!(offset_of!(AddressAttributes, is_global) == 29);
    assert!(offset_of!(AddressAttributes, port) == 30);
    assert!(size_of::<SharedQueueInit>() == 24);
    assert!(size_of::<QueuePairInit>() == 64);
    assert!(offset_of!(QueuePairInit, sizes) == 32);
    assert!(offset_of!(QueuePairInit, kind) == 52);
    assert!(size_of::<QueuePairAttributes>() == 144);
    assert!(offset_of!(QueuePairAttributes, address) == 56);
    assert!(offset_of!(QueuePairAttributes, key_index) == 120);
    assert!(offset_of!(QueuePairAttributes, not_ready_timer) == 128);
    assert!(offset_of!(QueuePairAttributes, not_ready_retry_count) == 132);
    assert!(size_of::<Segment>() == 16);
    assert!(size_of::<ReceiveRequest>() == 32);
    assert!(size_of::<SendRequest>() == 128);
    assert!(offset_of!(SendRequest, remote_address) == 40);
    assert!(offset_of!(SendRequest, remote_key) == 48);
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(offset_of!(WorkCompletion, len_bytes) == 20);
    assert!(offset_of!(WorkCompletion, queue_pair) == 28);
    assert!(size_of::<AsyncEvent>() == 16);
    assert!(offset_of!(AsyncEvent, kind) == 8);
};
