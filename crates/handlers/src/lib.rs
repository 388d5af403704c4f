//! What RESP and memcached commands do. A handler is a function of (gather, caller, command).
//!
//! ```text
//!  feed_resp, feed_memcached ─▶ wire: next_command ─▶ checks (pause, login, ACL, cluster, MULTI)
//!     ─▶ a handler
//!         ├─▶ Gather::single ─▶ flush: Engine::execute_batch ─▶ ReplySink ─▶ connection's output
//!         ├─▶ Gather::reply_to   answered at once, behind what was gathered (K10)
//!         └─▶ a walk             in slices, over many turns (K28)
//! ```
//!
//! The engine is a `&mut dyn runtime::engine::Engine`: the worker's session, keys under the locks
//! of an EXEC, or a dispatcher (decision 0106). A handler asks it only whether it routes, and
//! whether keys are locked. It reads no socket; memcached's UDP port (`memcached::udp`) is the one
//! of this crate.

#![forbid(unsafe_code)]

pub mod gather;
pub mod memcached;
pub mod resp;
