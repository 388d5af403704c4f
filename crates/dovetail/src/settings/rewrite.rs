//! CONFIG REWRITE: writes values into the configuration file and keeps everything else in it:
//! comments, order, spacing, and unchanged settings.
//!
//! ```text
//!  dovetail.toml ─▶ edited ─▶ dovetail.toml.PID.tmp ─fsync─ rename ─▶ dovetail.toml
//! ```
//!
//! # Invariants
//! I1: a reader of the file sees the complete old file or the complete new one.
//! I2: a file that already has the values is not written.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use host::small_file;
use toml_edit::{DocumentMut, Item};

use crate::settings::find;
use crate::settings::value::Value;

/// Only the server's own user reads the file, whatever the umask.
const MODE: u32 = 0o600;

/// Rewrites the file at `path`, which may be a link. A missing file is refused: one with only the
/// changes since the start would begin the next server without the other settings.
pub fn rewrite(path: &Path, changes: &BTreeMap<&'static str, String>) -> io::Result<()> {
    let failed = |error: io::Error| {
        let advice = match error.kind() {
            ErrorKind::NotFound => "; the file that the server began with is gone: put it back",
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{advice}", path.display()))
    };
    let path = fs::canonicalize(path).map_err(failed)?;
    let text = small_file::read_text(&path, small_file::SETTINGS_MAX_BYTES).map_err(failed)?;
    let edited = edit(&text, changes).map_err(io::Error::other)?;
    if edited == text { Ok(()) } else { replace(&path, &edited) }
}

/// Writes the file atomically (I1).
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = write(path, &temporary, text);
    if written.is_err() {
        // A leftover temporary file does no harm; the error says what happened.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write(path: &Path, temporary: &Path, text: &str) -> io::Result<()> {
    // Removes a file left over by a process with the same number.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(MODE).open(temporary)?;
    if let Ok(old) = fs::metadata(path) {
        // It may hold a password from now on: it never gets more than `MODE`.
        file.set_permissions(Permissions::from_mode(old.permissions().mode() & MODE))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.map_or_else(|| PathBuf::from("."), Path::to_owned))?.sync_all()
}

/// The file with those values; keys that it does not have are added at the end.
fn edit(text: &str, changes: &BTreeMap<&'static str, String>) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        format!("the file is no TOML any more: {}", error.message().replace('\n', ", "))
    })?;
    for (key, text) in changes {
        let wanted = spell(key, text)?;
        match document.get_mut(key) {
            Some(Item::Value(value)) => {
                if !is_same(value, &wanted) {
                    let decor = value.decor().clone();
                    *value = wanted;
                    *value.decor_mut() = decor;
                }
            }
            Some(_) => return Err(format!("`{key}` is no value in the file")),
            None => {
                document.insert(key, Item::Value(wanted));
            }
        }
    }
    Ok(document.to_string())
}

/// The value in the form of `--print-config`.
fn spell(key: &str, text: &str) -> Result<toml_edit::Value, String> {
    let setting = find(key).ok_or_else(|| format!("there is no setting `{key}`"))?;
    Ok(match setting.kind.read(text)? {
        Value::Count(count) => i64::try_from(count).map_err(|error| error.to_string())?.into(),
        value => value.to_string().into(),
    })
}

/// Whether the file has the value already, in any spelling of its type.
fn is_same(present: &toml_edit::Value, wanted: &toml_edit::Value) -> bool {
    match (present.as_integer(), present.as_str()) {
        (Some(present), _) => wanted.as_integer() == Some(present),
        (_, Some(present)) => wanted.as_str() == Some(present),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(changes: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
        changes.iter().map(|(key, text)| (*key, (*text).to_owned())).collect()
    }

    #[track_caller]
    fn check(text: &str, changed: &[(&'static str, &str)], want: &str) {
        assert_eq!(edit(text, &changes(changed)).unwrap(), want);
        assert!(super::super::file::parse(Path::new("f"), want).is_ok(), "it reads back");
    }

    #[test]
    fn a_value_changes_where_it_stands_and_nothing_else_does() {
        let text = "# Ours.\nthreads = 4   # of 8\n\nmode='store'\n[other]\nkey = 1\n";
        let want = "# Ours.\nthreads = 2   # of 8\n\nmode='store'\n[other]\nkey = 1\n";
        assert_eq!(edit(text, &changes(&[("threads", "2")])).unwrap(), want);
        check("slo = \"1ms\" # p99\n", &[("slo", "500us")], "slo = \"500us\" # p99\n");
        check("cr-threads = 2\n", &[("cr-threads", "auto")], "cr-threads = \"auto\"\n");
        check("hot-set = 'off'\n", &[("hot-set", "off")], "hot-set = 'off'\n");
        check("threads = 0x4\n", &[("threads", "4")], "threads = 0x4\n");
    }

    #[test]
    fn a_key_that_is_not_there_comes_last_and_trailing_comments_stay() {
        check("", &[("threads", "2")], "threads = 2\n");
        check("mode = \"store\"", &[("slo", "1s")], "mode = \"store\"\nslo = \"1s\"\n");
        check(
            "mode = \"store\"\n# End.\n",
            &[("slo", "off"), ("max-connections", "5")],
            "mode = \"store\"\nmax-connections = 5\nslo = \"off\"\n# End.\n",
        );
    }

    #[test]
    fn a_file_that_was_broken_meanwhile_is_left_alone() {
        let error = edit("threads = = 2\n", &changes(&[("threads", "2")])).unwrap_err();
        assert!(error.starts_with("the file is no TOML any more: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn the_file_is_replaced_as_a_whole_through_links_and_is_its_owners_alone() {
        use std::os::unix::fs::{MetadataExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["real.toml", "link.toml"].map(|name| folder.path().join(name));
        fs::write(&file, "requirepass = \"x\"\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&file, &link).unwrap();
        let mut held_open = File::open(&file).unwrap();
        rewrite(&link, &changes(&[("threads", "3")])).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "requirepass = \"x\"\nthreads = 3\n");
        assert_eq!(io::read_to_string(&mut held_open).unwrap(), "requirepass = \"x\"\n", "I1");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let number = fs::metadata(&file).unwrap().ino();
        rewrite(&link, &changes(&[("threads", "3")])).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().ino(), number, "I2");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
    }

    #[test]
    fn a_file_that_is_no_file_of_settings_any_more_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dovetail.toml");
        let text = format!("threads = 3\n#{}\n", "x".repeat(1 << 20));
        fs::write(&path, &text).unwrap();
        let error = rewrite(&path, &changes(&[("threads", "2")])).unwrap_err();
        let want = "too long: it has 1048590 bytes, and at most 1MiB are read";
        assert_eq!(error.to_string(), format!("{}: {want}", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let error = rewrite(Path::new("/dev/zero"), &changes(&[("threads", "2")])).unwrap_err();
        let want = "/dev/zero: no regular file: name one, no pipe or device";
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn a_file_that_is_gone_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["dovetail.toml", "no/dovetail.toml"] {
            let path = folder.path().join(name);
            let error = rewrite(&path, &changes(&[("threads", "3")])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let (text, start) = (error.to_string(), path.display().to_string());
            assert!(text.starts_with(&start) && text.contains("is gone: put it back"), "{text}");
            assert!(!path.exists());
        }
    }
}
