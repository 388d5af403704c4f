//! The functions of libibverbs, found at run time: a host without it runs the same binary.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::abi;

/// The library is not installed, or lacks a function.
#[derive(Clone, Debug, thiserror::Error)]
#[error("RDMA needs libibverbs (Debian's ibverbs-providers): {reason}")]
pub struct NotLoaded {
    reason: String,
}

const NAME: &CStr = c"libibverbs.so.1";
const V1_0: &CStr = c"IBVERBS_1.0";
const V1_1: &CStr = c"IBVERBS_1.1";

macro_rules! functions {
    ($($name:ident = $symbol:literal of $version:ident: $signature:ty;)*) => {
        /// The library's functions, loaded once and never unloaded.
        pub struct Library {
            $(pub $name: $signature,)*
        }

        impl Library {
            fn load() -> Result<Library, NotLoaded> {
                let handle = open()?;
                $(
                    let found = find(handle, $symbol, $version)?;
                    // SAFETY: the symbol of that name and version has this signature in C, and the
                    // library is never unloaded.
                    let $name = unsafe { std::mem::transmute::<*mut c_void, $signature>(found) };
                )*
                Ok(Library { $($name,)* })
            }
        }
    };
}

functions! {
    get_device_list = c"ibv_get_device_list" of V1_1:
        unsafe extern "C" fn(*mut c_int) -> *mut *mut abi::Device;
    free_device_list = c"ibv_free_device_list" of V1_1:
        unsafe extern "C" fn(*mut *mut abi::Device);
    get_device_name = c"ibv_get_device_name" of V1_1:
        unsafe extern "C" fn(*mut abi::Device) -> *const c_char;
    open_device = c"ibv_open_device" of V1_1:
        unsafe extern "C" fn(*mut abi::Device) -> *mut abi::Context;
    close_device = c"ibv_close_device" of V1_1:
        unsafe extern "C" fn(*mut abi::Context) -> c_int;
    query_device = c"ibv_query_device" of V1_1:
        unsafe extern "C" fn(*mut abi::Context, *mut abi::DeviceAttributes) -> c_int;
    query_port = c"ibv_query_port" of V1_1:
        unsafe extern "C" fn(*mut abi::Context, u8, *mut abi::PortAttributes) -> c_int;
    query_gid = c"ibv_query_gid" of V1_1:
        unsafe extern "C" fn(*mut abi::Context, u8, c_int, *mut c_void) -> c_int;
    get_event = c"ibv_get_async_event" of V1_1:
        unsafe extern "C" fn(*mut abi::Context, *mut abi::AsyncEvent) -> c_int;
    acknowledge_event = c"ibv_ack_async_event" of V1_1:
        unsafe extern "C" fn(*mut abi::AsyncEvent);
    alloc_domain = c"ibv_alloc_pd" of V1_1:
        unsafe extern "C" fn(*mut abi::Context) -> *mut abi::ProtectionDomain;
    free_domain = c"ibv_dealloc_pd" of V1_1:
        unsafe extern "C" fn(*mut abi::ProtectionDomain) -> c_int;
    register = c"ibv_reg_mr" of V1_1:
        unsafe extern "C" fn(*mut abi::ProtectionDomain, *mut c_void, usize, c_int)
            -> *mut abi::MemoryRegion;
    unregister = c"ibv_dereg_mr" of V1_1:
        unsafe extern "C" fn(*mut abi::MemoryRegion) -> c_int;
    create_channel = c"ibv_create_comp_channel" of V1_0:
        unsafe extern "C" fn(*mut abi::Context) -> *mut abi::CompletionChannel;
    destroy_channel = c"ibv_destroy_comp_channel" of V1_0:
        unsafe extern "C" fn(*mut abi::CompletionChannel) -> c_int;
    create_queue = c"ibv_create_cq" of V1_1:
        unsafe extern "C" fn(
            *mut abi::Context, c_int, *mut c_void, *mut abi::CompletionChannel, c_int,
        ) -> *mut abi::CompletionQueue;
    destroy_queue = c"ibv_destroy_cq" of V1_1:
        unsafe extern "C" fn(*mut abi::CompletionQueue) -> c_int;
    get_queue_event = c"ibv_get_cq_event" of V1_1:
        unsafe extern "C" fn(
            *mut abi::CompletionChannel, *mut *mut abi::CompletionQueue, *mut *mut c_void,
        ) -> c_int;
    acknowledge_queue_events = c"ibv_ack_cq_events" of V1_1:
        unsafe extern "C" fn(*mut abi::CompletionQueue, c_uint);
    create_shared_queue = c"ibv_create_srq" of V1_1:
        unsafe extern "C" fn(*mut abi::ProtectionDomain, *mut abi::SharedQueueInit)
            -> *mut abi::SharedQueue;
    modify_shared_queue = c"ibv_modify_srq" of V1_1:
        unsafe extern "C" fn(*mut abi::SharedQueue, *mut abi::SharedQueueAttributes, c_int)
            -> c_int;
    destroy_shared_queue = c"ibv_destroy_srq" of V1_1:
        unsafe extern "C" fn(*mut abi::SharedQueue) -> c_int;
    create_pair = c"ibv_create_qp" of V1_1:
        unsafe extern "C" fn(*mut abi::ProtectionDomain, *mut abi::QueuePairInit)
            -> *mut abi::QueuePair;
    modify_pair = c"ibv_modify_qp" of V1_1:
        unsafe extern "C" fn(*mut abi::QueuePair, *mut abi::QueuePairAttributes, c_int) -> c_int;
    destroy_pair = c"ibv_destroy_qp" of V1_1:
        unsafe extern "C" fn(*mut abi::QueuePair) -> c_int;
}

impl Library {
    /// The library, loaded by the first call.
    pub fn get() -> Result<&'static Library, NotLoaded> {
        static LIBRARY: OnceLock<Result<Library, NotLoaded>> = OnceLock::new();
        LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)
    }
}

fn open() -> Result<*mut c_void, NotLoaded> {
    // SAFETY: the name is a terminated string; the library's constructors have no preconditions.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(NotLoaded { reason: load_error() }) } else { Ok(handle) }
}

/// Finds a function by version, since older ones of the same name have other arguments.
fn find(handle: *mut c_void, symbol: &CStr, version: &CStr) -> Result<*mut c_void, NotLoaded> {
    // SAFETY: the handle is open, and both names are terminated strings.
    let found = unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
    if found.is_null() { Err(NotLoaded { reason: load_error() }) } else { Ok(found) }
}

fn load_error() -> String {
    // SAFETY: the call has no preconditions; its text is this thread's until the next such call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: it is not null, so it is a terminated string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
