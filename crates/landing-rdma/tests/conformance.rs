//! The guarantees of every transport, tested on RDMA: the scenarios are those of `landing`.
//!
//! Both ends are on one device, as `cargo xtask test-rdma` runs them over soft-RoCE.
//! DOVETAIL_RDMA_DEVICE names the device; without it, each test says so in one line and passes.

conforms! {
    rdma: rigs::Connected,
}
