//! Writes files that are complete or absent: each is written beside its place, then renamed into
//! it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::SimError;

/// Makes the directory and tries a file in it, so that a long run does not end in vain.
pub fn check_directory(directory: &Path, name: &str) -> Result<(), SimError> {
    let failed = |source| error(directory, source);
    fs::create_dir_all(directory).map_err(failed)?;
    let partial = partial_path(directory, name, "csv");
    fs::write(&partial, b"").and_then(|()| fs::remove_file(&partial)).map_err(failed)
}

/// Writes `NAME.EXTENSION` for each file: first all of them, then the names change together.
pub fn write_all(
    directory: &Path,
    name: &str,
    files: &[(&str, String)],
) -> Result<Vec<PathBuf>, SimError> {
    fs::create_dir_all(directory).map_err(|source| error(directory, source))?;
    let partials: Vec<PathBuf> =
        files.iter().map(|(extension, _)| partial_path(directory, name, extension)).collect();
    let written = write_and_rename(directory, name, files, &partials);
    if written.is_err() {
        // What was renamed already is gone from here; there is nothing more to do about the rest.
        partials.iter().for_each(|partial| drop(fs::remove_file(partial)));
    }
    written
}

/// Writes one file under the name that the user gave.
pub(super) fn write_one(path: &Path, text: &str) -> Result<PathBuf, SimError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, path));
    if let Err(source) = written {
        // The failure is what matters; the partial file may not even be there.
        let _ = fs::remove_file(&partial);
        return Err(error(path, source));
    }
    Ok(path.to_owned())
}

fn write_and_rename(
    directory: &Path,
    name: &str,
    files: &[(&str, String)],
    partials: &[PathBuf],
) -> Result<Vec<PathBuf>, SimError> {
    for ((_, text), partial) in files.iter().zip(partials) {
        fs::write(partial, text).map_err(|source| error(partial, source))?;
    }
    let mut paths = Vec::new();
    for ((extension, _), partial) in files.iter().zip(partials) {
        let path = directory.join(format!("{name}.{extension}"));
        fs::rename(partial, &path).map_err(|source| error(&path, source))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Hidden, and of this process alone: two runs into one directory do not meet.
fn partial_path(directory: &Path, name: &str, extension: &str) -> PathBuf {
    directory.join(format!(".{name}.{extension}.{}.partial", std::process::id()))
}

fn error(path: &Path, source: io::Error) -> SimError {
    SimError::Write { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_replace_what_was_there_and_leave_nothing_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("new/out");
        check_directory(&inner, "sample").unwrap();
        assert!(names(&inner).is_empty());
        for text in ["first", "second"] {
            let files = [("csv", text.to_owned()), ("md", text.to_owned())];
            let paths = write_all(&inner, "sample", &files).unwrap();
            assert_eq!(names(&inner), ["sample.csv", "sample.md"]);
            assert!(paths.iter().all(|path| fs::read_to_string(path).unwrap() == text));
        }
    }

    #[test]
    fn a_failure_names_the_path_and_leaves_nothing_half() {
        let directory = tempfile::tempdir().unwrap();
        let occupied = directory.path().join("file");
        fs::write(&occupied, "kept").unwrap();
        let message = check_directory(&occupied, "sample").unwrap_err().to_string();
        assert!(message.contains("file"), "{message}");

        // A directory stands where the second file would go.
        fs::create_dir(directory.path().join("sample.md")).unwrap();
        let files = [("csv", "x".to_owned()), ("md", "x".to_owned())];
        let message = write_all(directory.path(), "sample", &files).unwrap_err().to_string();
        assert!(message.contains("sample.md"), "{message}");
        assert_eq!(names(directory.path()), ["file", "sample.csv", "sample.md"]);
    }
}
