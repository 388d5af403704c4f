//! The list of all figures, and the only place that knows their names.

use crate::figure::Figure;
use crate::{c4, c4_hot, joint, mica, minos, rowan};

/// What each model offers, in the order in which the list is printed.
const GROUPS: &[&[Figure]] =
    &[c4::FIGURES, c4_hot::FIGURES, minos::FIGURES, mica::FIGURES, rowan::FIGURES, joint::FIGURES];

/// All figures.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    GROUPS.iter().copied().flatten()
}

/// A name that is no figure.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is no figure: write one of {known}")]
pub struct UnknownFigure {
    /// The name.
    name: String,
    /// All names.
    known: String,
}

/// The figure of that name.
pub fn find(name: &str) -> Result<&'static Figure, UnknownFigure> {
    all().find(|figure| figure.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|figure| figure.name).collect();
        UnknownFigure { name: name.to_owned(), known: names.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::{all, find};

    #[test]
    fn names_are_found_and_are_file_names() {
        for figure in all() {
            assert_eq!(find(figure.name).map(|found| found.about).ok(), Some(figure.about));
            let is_plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(figure.name.bytes().all(is_plain), "{}", figure.name);
            assert!(!figure.about.is_empty() && !figure.about.contains('\n'), "{}", figure.name);
        }
        let mut names: Vec<&str> = all().map(|figure| figure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count(), "two figures have the same name");
    }

    #[test]
    fn a_wrong_name_is_told_the_right_ones() {
        let error = find("c4-fig99").map(|figure| figure.name).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("`c4-fig99` is no figure") && !message.contains('\n'));
        assert!(all().all(|figure| message.contains(figure.name)), "{message}");
    }
}
