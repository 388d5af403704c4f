//! A command that waits for the disk.

use crate::disk_thread::Pending;

/// The file being written.
#[derive(Clone, Copy)]
pub enum Written {
    /// ACL SAVE.
    Users,
    /// CONFIG REWRITE.
    Settings,
    /// SAVE.
    Log,
}

/// A command that waits for the disk.
pub struct DiskWait {
    pub written: Written,
    pub pending: Pending,
}
