//! Tests of the policies against results by hand, and of the real store against the policy it
//! approximates.

use super::*;

fn request(key: u64, value_len_bytes: u32) -> CacheRequest {
    let (time_ms, key_len_bytes, ttl_s) = (0, 0, 0);
    CacheRequest { time_ms, key, key_len_bytes, value_len_bytes, ttl_s, access: Access::Look }
}

/// A trace of one letter a request.
fn letters(text: &str) -> Trace {
    Trace::new(text.bytes().map(|letter| request(u64::from(letter), 1)).collect())
}

/// Hits and misses as a pencil writes them: `.` and `x`.
fn course(trace: &Trace, exact: Exact, capacity: u64) -> String {
    let misses = |count: usize| {
        let requests = trace.requests()[..count].to_vec();
        // The future is cut off, but Belady's past choices need it: see `misses_of`.
        replay_exact(&Trace::new(requests), exact, Weigh::Objects, capacity).misses
    };
    let counts: Vec<u64> = (0..=trace.requests().len()).map(misses).collect();
    counts.windows(2).map(|pair| if pair[1] > pair[0] { 'x' } else { '.' }).collect()
}

#[track_caller]
fn check(text: &str, exact: Exact, capacity: u64, want: &str) {
    assert_eq!(course(&letters(text), exact, capacity), want, "{text} {exact:?}");
}

#[track_caller]
fn check_misses(text: &str, exact: Exact, capacity: u64, want: u64) {
    let tally = replay_exact(&letters(text), exact, Weigh::Objects, capacity);
    assert_eq!(tally.misses, want, "{text} {exact:?}");
}

#[test]
fn the_least_recently_used_goes() {
    check("abcabdab", Exact::Lru, 3, "xxx..x..");
    check("abcdabcd", Exact::Lru, 3, "xxxxxxxx");
}

#[test]
fn the_oldest_goes_however_often_it_was_used() {
    check("abcaaada", Exact::Fifo, 3, "xxx...xx");
}

#[test]
fn clock_spares_what_was_used_once_around() {
    check("abcaada", Exact::Clock, 3, "xxx..x.");
    check("abcaadbea", Exact::Clock, 3, "xxx..xxxx");
}

#[test]
fn what_comes_once_leaves_s3_fifo_without_touching_the_rest() {
    // Ten places, one of them small: a and b are used twice and move to main before the scan.
    let warm = "aaabbb";
    let scan = "0123456789ABCDEFGHIJ";
    let text = format!("{warm}{scan}ab");
    for exact in [Exact::S3Fifo, Exact::S3FifoEager] {
        assert!(course(&letters(&text), exact, 10).ends_with(".."), "{exact:?}");
    }
    assert!(course(&letters(&text), Exact::Lru, 10).ends_with("xx"));
    // Used once more: enough for the eager one alone.
    let text = format!("aabb{scan}ab");
    assert!(course(&letters(&text), Exact::S3FifoEager, 10).ends_with(".."));
    assert!(course(&letters(&text), Exact::S3Fifo, 10).ends_with("xx"));
}

#[test]
fn a_ghost_comes_back_into_main() {
    // 0 leaves the small queue unused, is missed as a ghost, and then survives a scan.
    let text = "0123456789ABC0DEFGHIJKLMNOPQ0";
    assert!(course(&letters(text), Exact::S3Fifo, 10).ends_with('.'));
}

#[test]
fn belady_has_the_fewest_misses() {
    // The example of every textbook, where the best choice has 9 faults: one more than here, as the
    // 4 that is never wanted again must come in there.
    check_misses("70120304230321201701", Exact::Belady, 3, 8);
    check_misses("70120304230321201701", Exact::Lru, 3, 12);
    check_misses("70120304230321201701", Exact::Fifo, 3, 15);
}

/// Skewed keys with a scan now and then; everything follows from the seed.
fn mixed(count: usize) -> Vec<CacheRequest> {
    let mut draws = 0;
    let mut draw = || {
        draws += 1;
        base::hash::mix(draws)
    };
    let mut requests = Vec::new();
    for index in 0..count {
        let (wide, narrow) = (draw() % 2000, draw() % 50);
        let key = match draw() % 4 {
            0 => wide,
            1 => 10_000 + index as u64,
            _ => narrow,
        };
        requests.push(request(key, 1 + (base::hash::mix(key) % 500) as u32));
    }
    requests
}

#[test]
fn no_policy_beats_belady_and_none_holds_more_than_it_may() {
    let trace = Trace::new(mixed(20_000));
    for capacity in [1, 2, 10, 100, 1000] {
        let bound = replay_exact(&trace, Exact::Belady, Weigh::Objects, capacity);
        for exact in [Exact::Lru, Exact::Fifo, Exact::Clock, Exact::S3Fifo, Exact::S3FifoEager] {
            let tally = replay_exact(&trace, exact, Weigh::Objects, capacity);
            assert!(tally.misses >= bound.misses, "{exact:?} at {capacity}");
            assert!(tally.objects <= capacity as f64, "I1: {exact:?} at {capacity}");
            let bytes = capacity * 200;
            let tally = replay_exact(&trace, exact, Weigh::Bytes, bytes);
            assert!(tally.bytes <= bytes as f64, "I1: {exact:?} at {bytes} bytes");
        }
    }
}

#[test]
fn a_cache_that_holds_everything_misses_each_key_once() {
    let trace = Trace::new(mixed(5000));
    for named in POLICIES {
        let Engine::Exact(exact) = named.engine else { continue };
        let tally = replay_exact(&trace, exact, Weigh::Bytes, 1 << 30);
        assert_eq!(tally.misses, trace.object_count, "{exact:?}");
        assert_eq!(tally.evictions, 0);
        assert_eq!(tally.miss_bytes, trace.working_set_bytes);
    }
}

/// Look at 0 s, 5 s and 15 s with a TTL of 10 s, then a write, a look, a delete, a look.
#[test]
fn what_has_expired_or_was_deleted_is_a_miss_and_what_was_written_a_hit() {
    let at = |time_s: u64, access| CacheRequest {
        time_ms: time_s * 1000,
        ttl_s: 10,
        access,
        ..request(1, 100)
    };
    let trace = Trace::new(vec![
        at(0, Access::Look),
        at(5, Access::Look),
        at(15, Access::Look),
        at(22, Access::Write),
        at(30, Access::Look),
        at(31, Access::Delete),
        at(31, Access::Look),
    ]);
    let sizes = ["8MiB".parse::<CacheSize>().unwrap(), "50obj".parse::<CacheSize>().unwrap()];
    for row in run(&trace, POLICIES, &sizes, 1).unwrap() {
        let (name, tally) = (row.policy, row.tally);
        assert_eq!((tally.looks, tally.misses), (5, 3), "{name} {}", row.size);
    }
}

#[test]
fn the_real_store_holds_as_many_objects_as_asked_and_misses_as_fifo_does() {
    let trace = Trace::new(mixed(30_000));
    for objects in [60, 300, 1000] {
        let size: CacheSize = format!("{objects}obj").parse().unwrap();
        let rows = run(&trace, &policies("fifo").unwrap(), &[size], 1).unwrap();
        let [store, exact] = &rows[..] else { panic!("one of each engine") };
        let held = store.tally.objects;
        assert!((held / objects as f64 - 1.0).abs() < 0.03, "{held} of {objects}");
        let (found, want) = (store.tally.miss_ratio(), exact.tally.miss_ratio());
        assert!((found - want).abs() < 0.01, "{found} {want} at {objects}");
    }
}

#[test]
fn sizes_and_policies_are_read_and_wrong_ones_told() {
    let trace = letters("aabbccddee");
    for (text, want) in [("4KiB", 4096), ("3obj", 3), ("50%", 42), ("40%obj", 2)] {
        assert_eq!(text.parse::<CacheSize>().unwrap().capacity(&trace), want, "{text}");
    }
    for text in ["", "0", "-1", "0obj", "obj", "%", "0%", "nan%", "x", "1.5obj", "1e9%"] {
        let message = text.parse::<CacheSize>().unwrap_err().to_string();
        assert!(message.contains("is no cache size"), "{text}");
    }
    assert_eq!(policies("all").unwrap().len(), POLICIES.len());
    assert_eq!(policies("fifo").unwrap().len(), 2);
    assert_eq!(policies("exact:fifo,clock").unwrap().len(), 2);
    let message = policies("lru,best").unwrap_err().to_string();
    assert!(message.starts_with("`best` is no policy") && message.contains("belady"), "{message}");
}

/// The reference numbers were computed by plain programs of others; the trace is not in the tree.
#[test]
fn exact_miss_ratios_on_a_real_trace_are_the_published_ones() {
    let Some(path) = std::env::var_os("DOVETAIL_CACHE_TRACE") else {
        println!("skipped: DOVETAIL_CACHE_TRACE does not name libCacheSim's cloudPhysicsIO.csv");
        return;
    };
    let path = std::path::PathBuf::from(path);
    let columns = cache_trace::Columns::default();
    let requests = cache_trace::open(&path, cache_trace::Format::Csv, &columns).unwrap();
    let trace = Trace::collect("trace", requests, None).unwrap();
    assert_eq!((trace.requests().len(), trace.object_count), (113_872, 48_974));
    let columns = [Exact::Lru, Exact::Fifo, Exact::S3Fifo, Exact::Belady];
    for (objects, want) in [
        (489, [0.838, 0.848, 0.830, 0.793]),
        (2448, [0.825, 0.827, 0.803, 0.703]),
        (4897, [0.805, 0.805, 0.753, 0.629]),
        (9794, [0.725, 0.713, 0.678, 0.545]),
        (19_589, [0.633, 0.634, 0.618, 0.459]),
    ] {
        for (exact, want) in columns.iter().zip(want) {
            let found = replay_exact(&trace, *exact, Weigh::Objects, objects).miss_ratio();
            assert!((found - want).abs() < 0.00051, "{exact:?} at {objects}: {found}, not {want}");
        }
    }
}
