//! Tests of the config store's rules, with two handles in place of two processes.

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    config_store: FileConfigStore,
    events: mpsc::Receiver<Event>,
    session: Option<SessionId>,
    next_id: u64,
}

impl Bench {
    fn new(folder: &FilePath) -> Bench {
        let (told, events) = mpsc::channel();
        let tell = move |event| drop(told.send(event));
        let config_store = FileConfigStore::start(folder, tell).unwrap();
        let mut bench = Bench { config_store, events, session: None, next_id: 1 };
        let answer = bench.ask(Ask::Open { timeout_ns: 1 });
        let Answer::Opened(session) = answer else { panic!("{answer:?}") };
        bench.session = Some(session);
        bench
    }

    fn send(&mut self, ask: Ask) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.config_store.ask(Request { session: self.session, id, ask });
        id
    }

    fn ask(&mut self, ask: Ask) -> Answer {
        let id = self.send(ask);
        self.hear(id)
    }

    fn hear(&mut self, want: u64) -> Answer {
        loop {
            match self.events.recv_timeout(PATIENCE).expect("an answer") {
                Event::Response(Response { id, answer, .. }) if id == want => return answer,
                Event::Response(_) => {}
                Event::Trouble(line) => panic!("{line}"),
            }
        }
    }
}

fn write(expected: u64, value: &[u8]) -> Ask {
    let (path, expected) = (Path::Configuration, Stamp(expected));
    Ask::Write { path, expected, value: value.into() }
}

fn claim(value: &[u8]) -> Ask {
    Ask::Claim { path: Path::Leader, value: value.into() }
}

#[test]
fn a_write_needs_the_stamp_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("made/when/needed");
    let (mut one, mut two) = (Bench::new(&place), Bench::new(&place));
    assert_eq!(one.ask(Ask::Read(Path::Configuration)), Answer::Value(Stamp(0), None));
    assert_eq!(one.ask(write(1, b"a")), Answer::Conflict(Stamp(0)));
    assert_eq!(one.ask(write(0, b"a\nb")), Answer::Written(Stamp(1)));
    assert_eq!(two.ask(write(0, b"c")), Answer::Conflict(Stamp(1)));
    let want = Answer::Value(Stamp(1), Some((*b"a\nb").into()));
    assert_eq!(two.ask(Ask::Read(Path::Configuration)), want);
    assert_eq!(two.ask(write(1, b"")), Answer::Written(Stamp(2)));
    assert_eq!(
        one.ask(Ask::Read(Path::Configuration)),
        Answer::Value(Stamp(2), Some((*b"").into()))
    );
}

#[test]
fn a_claim_ends_with_its_session_and_watchers_hear_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Bench::new(folder.path()), Bench::new(folder.path()));
    assert_eq!(one.ask(claim(b"one")), Answer::Claimed);
    assert_eq!(one.ask(claim(b"one")), Answer::Claimed, "again");
    assert_eq!(two.ask(claim(b"two")), Answer::Held);
    let want = Answer::Value(Stamp(1), Some((*b"one").into()));
    assert_eq!(two.ask(Ask::Read(Path::Leader)), want);
    let watch = two.send(Ask::Watch(Path::Leader));
    // Requests are answered in order: the watched value was read before it changes.
    assert_eq!(two.ask(Ask::Beat), Answer::Alive);
    drop(one);
    assert_eq!(two.hear(watch), Answer::Changed(Path::Leader));
    assert_eq!(two.ask(Ask::Read(Path::Leader)), Answer::Value(Stamp(1), None));
    assert_eq!(two.ask(claim(b"two")), Answer::Claimed);
    let want = Answer::Value(Stamp(2), Some((*b"two").into()));
    assert_eq!(two.ask(Ask::Read(Path::Leader)), want);
}

#[test]
fn a_watcher_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Bench::new(folder.path()), Bench::new(folder.path()));
    let watch = two.send(Ask::Watch(Path::Configuration));
    assert_eq!(two.ask(Ask::Beat), Answer::Alive);
    assert_eq!(one.ask(write(0, b"a")), Answer::Written(Stamp(1)));
    assert_eq!(two.hear(watch), Answer::Changed(Path::Configuration));
    assert_eq!(one.ask(write(1, b"b")), Answer::Written(Stamp(2)));
    assert_eq!(two.ask(Ask::Beat), Answer::Alive);
    assert!(two.events.recv_timeout(3 * LOOK_PAUSE).is_err(), "not watched any more");
}

#[test]
fn writes_of_many_handles_take_effect_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let count = |_| {
        let place = folder.path().to_owned();
        std::thread::spawn(move || {
            let mut bench = Bench::new(&place);
            let mut done = 0;
            let mut stamp = 0;
            while done < 10 {
                match bench.ask(write(stamp, b"x")) {
                    Answer::Written(Stamp(new)) => (done, stamp) = (done + 1, new),
                    Answer::Conflict(Stamp(now)) => stamp = now,
                    answer => panic!("{answer:?}"),
                }
            }
        })
    };
    let threads: Vec<_> = (0..4).map(count).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut bench = Bench::new(folder.path());
    assert_eq!(
        bench.ask(Ask::Read(Path::Configuration)),
        Answer::Value(Stamp(40), Some((*b"x").into()))
    );
}

#[test]
fn a_session_that_is_not_there_has_expired_and_damage_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path());
    fs::write(folder.path().join("configuration"), "no stamp").unwrap();
    bench.send(Ask::Read(Path::Configuration));
    let Event::Trouble(line) = bench.events.recv_timeout(PATIENCE).unwrap() else { panic!() };
    assert!(line.contains("does not begin with its stamp"), "{line}");
    bench.session = Some(SessionId(99));
    assert_eq!(bench.ask(Ask::Beat), Answer::Expired);
}

#[test]
fn a_look_makes_no_folder() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("mistyped");
    let (told, events) = mpsc::channel();
    let config_store = FileConfigStore::look(&folder, move |event| drop(told.send(event))).unwrap();
    config_store.ask(Request { session: None, id: 1, ask: Ask::Open { timeout_ns: 1 } });
    let Ok(Event::Trouble(line)) = events.recv_timeout(PATIENCE) else { panic!("no trouble") };
    assert!(line.contains("no such folder") && line.contains("mistyped"), "{line}");
    assert!(!folder.exists());
}
