//! The file of users: what is taken reads back to itself, and nothing makes its reader panic.

use sessions::acl::check_text;

/// An input is a file.
pub fn acl_files(data: &[u8]) {
    match check_text(data) {
        Ok(lines) => {
            let again = check_text(&lines);
            let shown = String::from_utf8_lossy(&lines);
            assert_eq!(again.as_ref().map(Vec::as_slice), Ok(&lines[..]), "{shown}");
        }
        Err(errors) => {
            let line_count = data.split(|byte| *byte == b'\n').count();
            assert!(!errors.is_empty());
            for error in &errors {
                assert!((1..=line_count).contains(&error.line), "{error}");
                assert!(!error.to_string().is_empty());
            }
        }
    }
}
