//! "Did you mean": the closest of a few names by edit distance.

/// The candidate closest to `name`, if it is close enough to be a typing mistake.
pub fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let distance_max = (name.len() / 3).max(1);
    candidates
        .map(|candidate| (edit_distance(&name, candidate), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in bytes, one row at a time.
fn edit_distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, left_byte) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right_byte) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(left_byte != right_byte);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, want: Option<&str>) {
        assert_eq!(closest(name, ["memory", "memcached", "mode"].into_iter()), want, "{name}");
    }

    #[test]
    fn a_mistyped_name_finds_its_neighbour() {
        check("memroy", Some("memory"));
        check("Memory", Some("memory"));
        check("memcache", Some("memcached"));
        check("mod", Some("mode"));
    }

    #[test]
    fn a_strange_name_finds_nothing() {
        check("replication", None);
        check("", None);
    }

    #[test]
    fn distance_counts_single_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
