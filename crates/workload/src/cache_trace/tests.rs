//! Tests of the trace readers: what they read, what they refuse, and that no input makes them
//! panic.

use std::io::Cursor;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn csv(text: &str, columns: &str) -> Result<Vec<CacheRequest>, TraceError> {
    let columns: Columns = columns.parse()?;
    read(Cursor::new(text.as_bytes().to_vec()), Format::Csv, &columns)?.collect()
}

fn look(time_ms: u64, key: u64, value_len_bytes: u32) -> CacheRequest {
    CacheRequest { time_ms, key, key_len_bytes: 0, value_len_bytes, ttl_s: 0, access: Access::Look }
}

#[track_caller]
fn check(text: &str, columns: &str, want: &[CacheRequest]) {
    assert_eq!(csv(text, columns).unwrap(), want, "{text:?} {columns}");
}

#[track_caller]
fn check_error(text: &str, columns: &str, want: &str) {
    let message = csv(text, columns).unwrap_err().to_string();
    assert!(message.contains(want) && !message.contains('\n'), "found `{message}`, want `{want}`");
}

#[test]
fn a_header_names_the_columns() {
    let text = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,6656,0\n";
    check(text, "", &[look(5_633_898_000, 42_932_745, 512), look(5_633_899_000, 0, 6656)]);
    check("Key;TIME\r\n\r\n\"7\"; 1.5 \r\n", "delimiter=;", &[look(1500, 7, 1)]);
}

#[test]
fn columns_are_chosen_by_number_or_by_word() {
    let want = [look(2, 9, 4)];
    check("9,2,4\n", "key=1,time=2,size=3,time-unit=ms", &want);
    check("9\t2\t4", "obj-id-col=1,time-col=2,obj-size-col=3,delimiter=tab,time-unit=ms", &want);
    check("a,b,c\n9,2,4", "key=A,time=b,size=3,time-unit=ms", &want);
    check("1,9,2,4\n", "has-header=no,key=2,time=3,size=4,time-unit=ms", &want);
    check("1,1,1\n9,2,4\n", "has-header=yes,key=1,time=2,size=3,time-unit=ms", &want);
}

#[test]
fn the_published_traces_of_twitter_need_no_columns() {
    let request = |access, ttl_s| CacheRequest {
        key_len_bytes: 8,
        ttl_s,
        access,
        key: 5,
        ..look(1000, 5, 92)
    };
    let text = "1,5,8,92,1,get,0\n1,5,8,92,1,set,60\n1,5,8,92,1,delete,0\n1,5,8,92,1,gets,0\n";
    let want = [
        request(Access::Look, 0),
        request(Access::Write, 60),
        request(Access::Delete, 0),
        request(Access::Look, 0),
    ];
    check(text, "", &want);
}

#[test]
fn keys_that_are_no_numbers_are_told_apart() {
    let keys = csv("key\nabc\nabd\nabc\n007\n7\n18446744073709551616\n", "").unwrap();
    let keys: Vec<u64> = keys.iter().map(|request| request.key).collect();
    assert_eq!(keys[0], keys[2]);
    assert!(keys[0] != keys[1] && keys[3] != keys[4] && keys[4] == 7);
}

#[test]
fn errors_say_where_and_what() {
    check_error("time,key,size\n1,2,3\nx,2,3\n", "", "line 3: `x` is no time");
    check_error("time,key,size\n-1,2,3\n", "", "line 2: `-1` is no time");
    check_error("time,key,size\n1,2,-3\n", "", "line 2: `-3` is no size");
    check_error("time,key,size\n1,2,4294967296\n", "", "no size: write 0 to 4294967295");
    check_error("time,key,size\n1,2\n", "", "line 2: 2 fields, the last that is needed is 3");
    check_error("time,key\n1,\n", "", "line 2: the key is empty");
    check_error("time,size\n1,2\n", "", "no column for key");
    check_error("time,key\n1,2\n", "size=bytes", "no column for size");
    check_error("1,2,3\n", "", "no column for key");
    check_error(&"x".repeat(100_000), "", "line 1: longer than");
    for wrong in ["key=0", "key", "colour=3", "key=", "delimiter=ab", "has-header=so", "=1"] {
        check_error("", wrong, &format!("`{wrong}` is no column"));
    }
}

#[test]
fn a_reader_ends_after_an_error() {
    let columns = Columns::default();
    let source = Cursor::new(b"time,key\nx,1\n2,2\n".to_vec());
    let mut requests = read(source, Format::Csv, &columns).unwrap();
    assert!(requests.next().unwrap().is_err());
    assert!(requests.next().is_none());
}

/// A record as libCacheSim writes it.
fn record(time_s: u32, key: u64, size: u32, next: i64) -> Vec<u8> {
    let parts: [&[u8]; 4] =
        [&time_s.to_le_bytes(), &key.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()];
    parts.concat()
}

#[test]
fn records_are_read_and_a_cut_one_is_told() {
    let columns = Columns::default();
    let mut bytes = [record(7, 1 << 63, 512, 2), record(8, 3, u32::MAX, -1)].concat();
    let all = |bytes: Vec<u8>| read(Cursor::new(bytes), Format::OracleGeneral, &columns).unwrap();
    let want = [look(7000, 1 << 63, 512), look(8000, 3, u32::MAX)];
    assert_eq!(all(bytes.clone()).collect::<Result<Vec<_>, _>>().unwrap(), want);
    bytes.truncate(40);
    let message = all(bytes).nth(1).unwrap().unwrap_err().to_string();
    assert_eq!(message, "record 2: the file ends after 16 of 24 bytes");
}

#[test]
fn names_of_files_tell_the_format() {
    for (name, want) in [
        ("a.csv", Format::Csv),
        ("w92.oracleGeneral.bin.zst", Format::OracleGeneral),
        ("x.oracleGeneral", Format::OracleGeneral),
        ("trace.bin", Format::OracleGeneral),
        ("trace.csv.zst", Format::Csv),
        ("trace", Format::Csv),
    ] {
        assert_eq!(Format::of_path(Path::new(name)), want, "{name}");
    }
}

#[test]
fn compressed_files_read_as_what_is_in_them() {
    // `printf 'time,key,size\n1,2,3\n' | zstd`, two frames one after the other.
    let text = b"time,key,size\n1,2,3\n";
    let frame = ruzstd::encoding::compress_to_vec(
        text.as_slice(),
        ruzstd::encoding::CompressionLevel::Uncompressed,
    );
    let second = ruzstd::encoding::compress_to_vec(
        b"4,5,6\n".as_slice(),
        ruzstd::encoding::CompressionLevel::Uncompressed,
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv.zst");
    std::fs::write(&path, [frame.clone(), second].concat()).unwrap();
    let columns = Columns::default();
    let found: Result<Vec<_>, _> = open(&path, Format::Csv, &columns).unwrap().collect();
    assert_eq!(found.unwrap(), [look(1000, 2, 3), look(4000, 5, 6)]);
    std::fs::write(&path, &frame[..frame.len() - 6]).unwrap();
    let is_error = match open(&path, Format::Csv, &columns) {
        Ok(mut requests) => requests.any(|request| request.is_err()),
        Err(_) => true,
    };
    assert!(is_error, "a cut frame is an error");
}

/// Valid lines with damage, and plain noise: T2 and T3.
#[test]
fn damaged_traces_end_in_requests_or_one_error() {
    const PIECES: [&[u8]; 14] = [
        b"time,key,size\n",
        b"1,2,3\n",
        b"1,abc,3,get,60\n",
        b",",
        b"\n",
        b"\"",
        b"-",
        b"1e309",
        b"99999999999999999999",
        b"\xff\xfe",
        b"nan",
        b"version,time,op,size,lbn\n",
        b" ",
        b"\r\n",
    ];
    for seed in 0..20_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = Vec::new();
        for _ in 0..random.random_range(0..12) {
            bytes.extend_from_slice(PIECES[random.random_range(0..PIECES.len())]);
            if random.random_range(0..4) == 0 {
                bytes.push(random.random());
            }
        }
        let specs = ["", "key=1", "key=2,time=1", "key=300", "has-header=no,key=3,ttl=1"];
        let columns: Columns = specs[random.random_range(0..specs.len())].parse().unwrap();
        for format in [Format::Csv, Format::OracleGeneral] {
            let Ok(requests) = read(Cursor::new(bytes.clone()), format, &columns) else { continue };
            let found: Vec<_> = requests.collect();
            let errors = found.iter().filter(|request| request.is_err()).count();
            let last_is_error = found.last().is_some_and(Result::is_err);
            assert!(errors == usize::from(last_is_error), "seed {seed}");
        }
    }
}

#[test]
fn noise_that_starts_as_zstd_does_is_an_error() {
    for seed in 0..2000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = ZSTD_MAGIC.to_vec();
        bytes.extend((0..random.random_range(0..64)).map(|_| random.random::<u8>()));
        let mut inner = ZstdReader { source: Cursor::new(bytes), decoder: None };
        let mut buffer = [0; 512];
        while inner.read(&mut buffer).is_ok_and(|len_bytes| len_bytes > 0) {}
    }
}

#[test]
fn a_generated_cluster_has_the_published_shares() {
    const COUNT: u64 = 200_000;
    for number in [4, 12, 19, 31] {
        let cluster = crate::twitter::Cluster::of(number).unwrap();
        let requests = GeneratedRequests::twitter(number, COUNT, None, 1).unwrap();
        let lasting_keys = requests.lasting_keys();
        let requests: Vec<CacheRequest> = requests.collect();
        assert_eq!(requests.len() as u64, COUNT);
        let share = |wanted: fn(&CacheRequest) -> bool| {
            requests.iter().filter(|request| wanted(request)).count() as f64 / COUNT as f64
        };
        let reads = share(|request| request.access == Access::Look);
        assert!((reads - cluster.read_share()).abs() < 0.01, "{number}: {reads}");
        let passing = requests.iter().filter(|request| request.key >= lasting_keys).count();
        let want = cluster.once_key_share.unwrap() * cluster.first_request_share.unwrap();
        assert!((passing as f64 / COUNT as f64 - want).abs() < 0.01, "{number}: {passing}");
        let seconds = requests.last().unwrap().time_ms as f64 / 1000.0;
        let want = COUNT as f64 / 1000.0 / cluster.kilo_requests_per_second;
        assert!((seconds / want - 1.0).abs() < 0.01, "{number}: {seconds} of {want}");
        let is_published = |ttl_s: u32| cluster.ttls.iter().any(|ttl| ttl.seconds as u32 == ttl_s);
        assert!(requests.iter().all(|request| is_published(request.ttl_s)));
        let again: Vec<CacheRequest> =
            GeneratedRequests::twitter(number, COUNT, None, 1).unwrap().collect();
        assert_eq!(requests, again, "one seed, one stream");
    }
}

#[test]
fn keys_have_texts_of_their_own_and_of_the_asked_length() {
    let text = |key, key_len_bytes| {
        let mut text = Vec::new();
        CacheRequest { key_len_bytes, ..look(0, key, 1) }.write_key_text(&mut text);
        text
    };
    for (asked, want) in [(0, 16), (1, 11), (11, 11), (44, 44), (1000, 250)] {
        assert_eq!(text(u64::MAX, asked).len(), want);
    }
    let keys = [0, 1, 63, 64, 1 << 60, 1 << 63, u64::MAX, u64::MAX - 1];
    let mut texts: Vec<Vec<u8>> = keys.iter().map(|key| text(*key, 0)).collect();
    assert!(texts.iter().flatten().all(u8::is_ascii_graphic));
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), keys.len());
}
