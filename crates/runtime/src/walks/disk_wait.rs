//! A command that waits for the disk.

use host::disk_thread::Pending;

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
    /// What is to be on the disk.
    pub written: Written,
    /// The question to the disk thread.
    pub pending: Pending,
}
