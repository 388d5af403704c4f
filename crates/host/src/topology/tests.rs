//! NUMA nodes read from directories that imitate several machines' sysfs.

use super::*;

#[track_caller]
fn check_list(text: &str, want: Option<&[usize]>) {
    assert_eq!(parse_list(text).as_deref(), want, "{text:?}");
}

#[test]
fn a_list_is_numbers_and_ranges() {
    check_list("0\n", Some(&[0]));
    check_list("0-3,8,10-11\n", Some(&[0, 1, 2, 3, 8, 10, 11]));
    check_list("8,0-1,1-2", Some(&[0, 1, 2, 8]));
    check_list("", Some(&[]));
    check_list("\n", Some(&[]));
}

#[test]
fn what_is_no_list_is_refused() {
    let odd = [
        ",",
        "0,",
        "-",
        "1-",
        "-1",
        "3-1",
        "+1",
        "0--2",
        "0-1-2",
        "0x1",
        "a",
        "0 1",
        "0-7:1/2",
        "65536",
        "0-99999999999999999999",
        "18446744073709551616",
        "\u{661}",
    ];
    odd.iter().for_each(|text| check_list(text, None));
}

#[test]
fn any_bytes_are_a_list_or_none_and_never_many_numbers() {
    let alphabet = *b"0129-,:+ \nx";
    let mut state = 7_u64;
    for _ in 0..20_000 {
        let text: String = (0..8)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(alphabet[(state >> 33) as usize % alphabet.len()])
            })
            .collect();
        assert!(parse_list(&text).is_none_or(|numbers| numbers.len() <= NUMBER_MAX), "{text:?}");
    }
}

/// A directory that imitates the kernel's.
fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

const TWO_NODES: [(&str, &str); 5] = [
    ("has_memory", "0-1\n"),
    ("possible", "0-1\n"),
    ("node0/cpulist", "0-3\n"),
    ("node1/cpulist", "4-7\n"),
    ("power/control", "auto\n"),
];

fn node(id: u32, processors: &[usize]) -> Node {
    Node { id, processors: processors.to_vec() }
}

#[test]
fn only_nodes_with_memory_and_an_allowed_processor_count() {
    let two = machine(&TWO_NODES);
    let all: Vec<usize> = (0..8).collect();
    let both = [node(0, &[0, 1, 2, 3]), node(1, &[4, 5, 6, 7])];
    assert_eq!(nodes(two.path(), &all), both);
    assert_eq!(nodes(two.path(), &[1, 3]), [node(0, &[1, 3])]);
    let bare = [("has_memory", "0"), ("node0/cpulist", "0-3"), ("node1/cpulist", "4-7")];
    assert_eq!(nodes(machine(&bare).path(), &all), [node(0, &[0, 1, 2, 3])]);
    let unreadable = [("node0/cpulist", "0-3"), ("node1/cpulist", "4-"), ("nodeX/cpulist", "5")];
    assert_eq!(nodes(machine(&unreadable).path(), &all), [node(0, &[0, 1, 2, 3])]);
    assert_eq!(nodes(Path::new("/nowhere"), &all), []);
}

#[test]
fn memory_is_divided_by_the_workers_on_each_node() {
    let two = [node(0, &[0, 1, 2, 3]), node(1, &[4, 5])];
    let share = |node_id, weight| NodeShare { node_id, weight };
    assert_eq!(shares(Numa::Auto, &two, &[]), [share(0, 4), share(1, 2)]);
    assert_eq!(shares(Numa::Auto, &two, &[0, 4, 5]), [share(0, 1), share(1, 2)]);
    assert_eq!(shares(Numa::Auto, &two, &[0, 1]), [], "all workers are on one node");
    assert_eq!(shares(Numa::Auto, &two[..1], &[]), []);
    assert_eq!(shares(Numa::Off, &two, &[]), []);
    assert_eq!([3, 5, 9].map(|processor| node_of(&two, processor)), [Some(0), Some(1), None]);
}

#[test]
fn this_machine_has_a_node_or_no_list_of_them() {
    let here = nodes(Path::new(SYSFS_NODES), &(0..NUMBER_MAX).collect::<Vec<_>>());
    assert!(!here.is_empty() || !Path::new(SYSFS_NODES).join("node0").exists());
}
