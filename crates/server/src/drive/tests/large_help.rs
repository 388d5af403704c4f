//! Workers for large items that have none take small requests, one at a time (Minos §6.1's
//! alternative), in orders of turns that the machine's scheduler does not choose.
//!
//! ```text
//!  turn of the dispatcher ─ offers the last ones, executes the others ─┐
//!  turn of the large worker ─ takes one ◀──────────────────────────────┤ offers are held
//!  turn of the dispatcher ─ takes the rest back ◀──────────────────────┘
//! ```
//!
//! Between two threads an offer stands for as long as its dispatcher executes what is before it.
//! Here one thread runs all turns, so the test says for how long.

use policy::LargeHelp;
use policy::Policies;
use policy::size_class::Threshold;

use super::*;

/// The last worker serves large items only, once the sizes are counted.
const LARGE_WORKER: usize = 3;
const KEYS: usize = 48;
/// Requests that it takes in a turn, one after the other.
const IN_ONE_TURN: u64 = 4;

/// Workers with some keys, and a plan that keeps the last worker for large items.
fn planned(write_policy: WritePolicy, change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config {
        policies: Policies::new(write_policy, Dispatch::SizeAware),
        size_threshold: Threshold::Static { bytes: 10_000 },
        large_help: LargeHelp::On,
        ..Bench::config(LARGE_WORKER + 1, None)
    };
    change(&mut config);
    let mut bench = Bench::of(config);
    let mut client = bench.client(0);
    let small: String = (0..KEYS).map(|key| format!("SET k{key} {key}\r\n")).collect();
    store(&mut bench, &mut client, &small);
    let shared = &bench.drive.shared;
    let sizes = shared.sizes().unwrap();
    // Two epochs in a row ask for a large worker.
    for _ in 0..2 {
        let counted = shared.size_counts().next().unwrap();
        // A third of the cost, in packets, is of the large one.
        (0..400).for_each(|_| counted.record(100));
        counted.record(300_000);
        sizes.end_epoch(shared.size_counts(), true);
    }
    let (plan, workers) = (sizes.plan(), shared.roles().layers().start.executors);
    assert_eq!((plan.small_workers, plan.large_workers()), (workers - 1, 1), "{plan:?}");
    drop(client);
    bench.settle();
    bench
}

/// Reads of as many keys, in one piece, and their answers.
fn reads() -> (String, String) {
    let asks = (0..KEYS).map(|key| format!("GET k{key}\r\n")).collect();
    let answer = |key: usize| format!("${}\r\n{key}\r\n", key.to_string().len());
    (asks, (0..KEYS).map(answer).collect())
}

/// Until the dispatcher takes its offers back.
#[test]
fn an_idle_large_worker_takes_some_reads_a_turn() {
    for write_policy in [WritePolicy::Crew, WritePolicy::DCrew, WritePolicy::Crcw] {
        let mut bench = planned(write_policy, |_| ());
        let mut client = bench.client(0);
        bench.settle();
        let (asks, answers) = reads();
        client.write_all(asks.as_bytes()).unwrap();
        bench.drive.fabric.hold_offers(true);
        bench.turn(0);
        for taken in [IN_ONE_TURN, 2 * IN_ONE_TURN] {
            bench.turn(LARGE_WORKER);
            assert_eq!(bench.forwardings().helped, taken, "{write_policy:?}");
        }
        bench.drive.fabric.hold_offers(false);
        bench.turn(0);
        bench.turn(LARGE_WORKER);
        assert_eq!(
            bench.forwardings().helped,
            2 * IN_ONE_TURN,
            "the others are executed by their dispatcher"
        );
        bench.settle();
        assert_eq!(received(&mut client), answers);
        let totals = bench.drive.shared.totals();
        let found = totals.commands.iter().find(|command| command.name == "get").unwrap();
        assert_eq!(found.calls, found.hits, "each is executed once");
    }
}

#[test]
fn a_large_worker_that_was_told_not_to_takes_none() {
    let mut bench = planned(WritePolicy::DCrew, |config| config.large_help = LargeHelp::Off);
    let mut client = bench.client(0);
    bench.settle();
    let (asks, answers) = reads();
    client.write_all(asks.as_bytes()).unwrap();
    bench.drive.fabric.hold_offers(true);
    for _ in 0..4 {
        bench.turn(0);
        bench.turn(LARGE_WORKER);
    }
    bench.settle();
    assert_eq!((bench.forwardings().helped, received(&mut client)), (0, answers));
}

/// Between two layers the dispatcher executes nothing: what finds no room is offered.
#[test]
fn a_large_worker_takes_what_finds_no_room_between_two_layers() {
    let mut bench = planned(WritePolicy::DCrew, |config| {
        config.threads += 1;
        config.cr_threads = Some(1);
        config.batch = 1;
    });
    let large = bench.drive.worker_count() - 1;
    let mut clients: Vec<TcpStream> = (0..6).map(|_| bench.client(0)).collect();
    bench.settle();
    let (asks, answers) = reads();
    clients.iter_mut().for_each(|client| client.write_all(asks.as_bytes()).unwrap());
    // No small worker has a turn.
    bench.drive.fabric.hold_offers(true);
    for _ in 0..20 {
        bench.turn(0);
        bench.turn(large);
    }
    assert!(bench.forwardings().helped > 0);
    bench.drive.fabric.hold_offers(false);
    (0..64).for_each(|_| bench.settle());
    for client in &mut clients {
        assert_eq!(received(client), answers);
    }
}

/// Turns of all workers in an order of no meaning, the same for each run.
struct Turns {
    order: KeyHasher,
    count: u64,
}

impl Turns {
    fn take(&mut self, bench: &mut Bench) {
        let number = self.order.hash(&self.count.to_le_bytes()).0 as usize;
        self.count += 1;
        bench.drive.fabric.hold_offers(!(number >> 32).is_multiple_of(3));
        // Half of the turns are of the worker that takes.
        match number % 2 {
            0 => bench.turn(LARGE_WORKER),
            _ => bench.turn(number / 2 % bench.drive.worker_count()),
        }
    }

    /// Until all that was sent is answered.
    #[track_caller]
    fn until(&mut self, bench: &mut Bench, mut is_answered: impl FnMut() -> bool) {
        for _ in 0..10_000 {
            self.take(bench);
            if is_answered() {
                return;
            }
        }
        panic!("no answer after 10,000 turns");
    }
}

/// Pieces that are read one after the other: a read at the end of one, which is offered, and the
/// write of the same key at the beginning of the next.
fn pieces(client: usize, round: usize) -> (Vec<String>, String) {
    let (reads, read_answers) = reads();
    let (mut asks, mut answers) = (Vec::new(), String::new());
    for step in 0..6 {
        let count = (round * 6 + step + 1).to_string();
        let counted = format!("${}\r\n{count}\r\n", count.len());
        asks.push(format!("INCR n{client}\r\n{reads}GET n{client}\r\n"));
        answers += &format!(":{count}\r\n{read_answers}{counted}");
        // The same again, with nothing but reads.
        asks.push(format!("{reads}GET n{client}\r\n"));
        answers += &format!("{read_answers}{counted}");
    }
    (asks, answers)
}

/// K10, in many orders of turns.
#[test]
fn a_connection_sees_its_own_writes_in_order_at_a_large_worker() {
    for (write_policy, seed) in [(WritePolicy::DCrew, 1), (WritePolicy::Crcw, 2)] {
        let mut bench = planned(write_policy, |_| ());
        let mut clients: Vec<TcpStream> = (0..4).map(|index| bench.client(index % 3)).collect();
        bench.settle();
        let mut turns = Turns { order: KeyHasher::new(seed), count: 0 };
        for round in 0..40 {
            let mut left: Vec<(String, String)> = Vec::new();
            for (index, client) in clients.iter_mut().enumerate() {
                let (asks, answers) = pieces(index, round);
                for piece in asks {
                    client.write_all(piece.as_bytes()).unwrap();
                    (0..index).for_each(|_| turns.take(&mut bench));
                }
                left.push((answers, String::new()));
            }
            turns.until(&mut bench, || {
                for ((_, got), client) in left.iter_mut().zip(&mut clients) {
                    *got += &received(client);
                }
                left.iter().all(|(want, got)| got.len() >= want.len())
            });
            left.iter().for_each(|(want, got)| assert_eq!(got, want));
        }
        assert!(bench.forwardings().helped > 50, "{} were taken", bench.forwardings().helped);
    }
}

/// A key whose versions only grow: no reader sees an older one after a newer one, though some of
/// its reads are executed by the large worker.
#[test]
fn a_reader_sees_no_older_version_after_a_newer_one() {
    let mut bench = planned(WritePolicy::DCrew, |_| ());
    let mut writer = bench.client(1);
    let mut readers: Vec<TcpStream> = (0..6).map(|index| bench.client(index % 3)).collect();
    bench.settle();
    let (reads, read_answers) = reads();
    store(&mut bench, &mut writer, &set("v", "1000000"));
    let mut turns = Turns { order: KeyHasher::new(3), count: 0 };
    let (mut version, mut newest) = (1_000_000, [0; 6]);
    for _ in 0..40 {
        let mut got = vec![String::new(); readers.len()];
        for _ in 0..4 {
            version += 1;
            writer.write_all(set("v", &version.to_string()).as_bytes()).unwrap();
            for reader in &mut readers {
                reader.write_all(format!("{reads}GET v\r\n").as_bytes()).unwrap();
                turns.take(&mut bench);
            }
        }
        let want = 4 * (read_answers.len() + "$7\r\n1234567\r\n".len());
        turns.until(&mut bench, || {
            for (got, reader) in got.iter_mut().zip(&mut readers) {
                *got += &received(reader);
            }
            got.iter().all(|got| got.len() >= want)
        });
        for (got, newest) in got.iter().zip(&mut newest) {
            for part in got.split_inclusive("47\r\n$7\r\n").skip(1) {
                let found: u32 = part[..7].parse().unwrap();
                assert!(found >= *newest && found <= version, "{found} after {newest}");
                *newest = found;
            }
        }
        received(&mut writer);
    }
    assert!(bench.forwardings().helped > 50, "{} were taken", bench.forwardings().helped);
}

/// Clients that go away while some of their reads are with the large worker: every ticket comes
/// back, so that later reads are offered again.
#[test]
fn a_client_that_goes_away_leaves_no_ticket_behind() {
    let mut bench = planned(WritePolicy::DCrew, |_| ());
    let (asks, answers) = reads();
    for round in 1..=1_000 {
        let mut client = bench.client(0);
        client.write_all(asks.as_bytes()).unwrap();
        bench.drive.fabric.hold_offers(true);
        bench.turn(LARGE_WORKER);
        bench.turn(0);
        bench.turn(LARGE_WORKER);
        drop(client);
        bench.turn(0);
        bench.drive.fabric.hold_offers(round % 2 == 0);
        bench.turn(LARGE_WORKER);
        bench.drive.fabric.hold_offers(false);
        bench.settle();
        assert!(bench.drive.shared.totals().connections_resp < 4, "in round {round}");
    }
    let before = bench.forwardings().helped;
    assert!(before > 1_000, "{before} were taken");
    let mut client = bench.client(0);
    bench.settle();
    client.write_all(asks.as_bytes()).unwrap();
    bench.drive.fabric.hold_offers(true);
    bench.turn(0);
    bench.turn(LARGE_WORKER);
    assert_eq!(bench.forwardings().helped, before + IN_ONE_TURN);
    bench.drive.fabric.hold_offers(false);
    bench.settle();
    assert_eq!(received(&mut client), answers);
}

/// Reads that no worker took and that find no room again, each with a write of its key behind it:
/// more of such writes than are tried at a time would wait for ever, were they tried before the
/// reads.
#[test]
fn a_request_that_was_not_taken_is_tried_before_those_behind_it() {
    let mut bench = planned(WritePolicy::DCrew, |config| {
        config.cr_threads = Some(1);
        config.threads += 1;
        config.batch = 1;
    });
    let mut clients: Vec<TcpStream> = (0..64).map(|_| bench.client(0)).collect();
    bench.settle();
    let mut last = "$-1\r\n".to_owned();
    for round in 0..20 {
        for (index, client) in clients.iter_mut().enumerate() {
            let asks = format!("GET own{index}\r\nSET own{index} {round}\r\n").repeat(6);
            client.write_all(asks.as_bytes()).unwrap();
        }
        // Nothing is taken: all that is offered comes back.
        (0..20).for_each(|_| bench.turn(0));
        let own = format!("${}\r\n{round}\r\n", round.to_string().len());
        let answers = format!("{last}+OK\r\n") + &format!("{own}+OK\r\n").repeat(5);
        let mut got = vec![String::new(); clients.len()];
        for _ in 0..1_000 {
            bench.settle();
            for (got, client) in got.iter_mut().zip(&mut clients) {
                *got += &received(client);
            }
            if got.iter().all(|got| got.len() >= answers.len()) {
                break;
            }
        }
        got.iter().for_each(|got| assert_eq!(*got, answers));
        last = own;
    }
}
