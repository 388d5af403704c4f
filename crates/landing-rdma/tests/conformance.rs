//! What every transport promises, run against RDMA: the scenarios are those of `landing`.
//!
//! Both ends are on one device, as `cargo xtask test-rdma` runs them over soft-RoCE.
//! DOVETAIL_RDMA_DEVICE names it; unless it does, each test says so in one line and passes.

conforms! {
    rdma: rigs::Connected,
}
