//! Files and directories that only the server's own user may read, whatever the umask.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o700;
/// The mode of such files.
pub const FILE_MODE: u32 = 0o600;

/// Makes a directory and its parents if they are missing; an existing one keeps its mode.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Warns if users other than the server's own can enter or list this directory.
pub fn warn_if_open_to_others(path: &Path) {
    let Ok(status) = path.metadata() else { return };
    let mode = status.permissions().mode() & 0o777;
    if mode & !DIRECTORY_MODE != 0 {
        let path = path.display();
        tracing::warn!("{path}: its mode is 0{mode:03o}: other users can enter it; chmod 700 it");
    }
}

/// Creates an empty file, replacing an existing one.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    // An older version may have left a file that others can read.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}
