//! Tests the real binary from outside: messages, exit statuses, layers of settings, signals.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Watchdog, check_error, dovetail, text};

const FREE_PORTS: [&str; 8] = ["--resp", "0", "--memcached", "0", "--native", "0", "--admin", "0"];

fn run(arguments: &[&str]) -> Output {
    output_of(dovetail(arguments))
}

/// Runs to the end; a command that does not end is killed and fails its test.
fn output_of(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watchdog = Watchdog::over(&child);
    child.wait_with_output().unwrap()
}

#[test]
fn a_standard_error_that_takes_nothing_ends_no_command() {
    let directory = tempfile::tempdir().unwrap();
    let conf = directory.path().join("redis.conf");
    std::fs::write(&conf, "appendonly yes\nrequirepass x\n").unwrap();
    for (arguments, want) in
        [(&["config", "import", conf.to_str().unwrap()][..], Some(0)), (&[][..], Some(2))]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let child =
            dovetail(arguments).stdout(Stdio::piped()).stderr(Stdio::from(full)).spawn().unwrap();
        let _watchdog = Watchdog::over(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), want, "{arguments:?}");
        let is_configuration = text(&output.stdout).contains("mode = \"store\"");
        assert_eq!(is_configuration, want == Some(0), "{arguments:?}");
    }
}

#[track_caller]
fn check_usage(arguments: &[&str], want: &str) {
    check_error(&run(arguments), 2, want);
}

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    check_usage(&["srve"], "did you mean `serve`?");
    check_usage(&["serve", "--memroy", "1g"], "did you mean `--memory`?");
    check_usage(&["serve", "--memory"], "a value is required for '--memory");
    check_usage(&["serve", "--memory", "1m"], "--memory: `1m` is too little: write at least 64MiB");
    check_usage(&["serve", "--memory", "big"], "--memory: `big` is not a size");
    check_usage(&["serve", "--cluster", "zk://a/b"], "`a` is no HOST:PORT");
    check_usage(&["serve", "--native", "0.0.0.0:0"], "bind 0.0.0.0 refused: no key configured");
    check_usage(&["serve", "--index", "skiplist"], "`skiplist` is not one of hash or tree");
    let lossy_tree = ["serve", "--index", "tree", "--lossy-index", "on"];
    check_usage(&lossy_tree, "only the hash index can be lossy");
    check_usage(&["serve", "--threads", "-3"], "unexpected argument '-3'");
    check_usage(&["serve", "--resp", "0.0.0.0:0"], "bind 0.0.0.0 refused: no auth configured");
    check_usage(&["serve", "extra"], "unexpected argument 'extra'");
    check_usage(&["config", "check"], "<FILE>");
    check_usage(&["bench", "--keys", "many"], "`many` is not a count");
}

#[test]
fn settings_that_contradict_each_other_are_status_2() {
    let check = |flags: &[&str], want: &str| {
        check_usage(&[&["serve", "-qq"], flags, &FREE_PORTS[..]].concat(), want);
    };
    let no_layers = "no thread is memory-resident: give --cr-threads N below --threads";
    check(&["--cat", "on", "--threads", "3"], no_layers);
    check(&["--cat", "3", "--threads", "3"], no_layers);
    check(&["--threads", "256", "--memory", "64m"], "--memory 64MiB is too small: give at least");
    check(&["--slo", "5"], "--slo: `5` has no unit: write a unit: 5ms, 5us, 5s");
    check(
        &["--compaction", "on", "--write-policy", "crcw"],
        "--compaction on: contradicts --write-policy crcw, under which a key has many writers; \
         give --compaction auto, or --write-policy d-crew, crew or erew",
    );
    check(&["--pin", "on", "--threads", "256"], "--pin on: needs a core for each of 256 threads");
    // More ways than a bitmap of the kernel has are a slip of the pen on every machine; a machine
    // that has none, or refuses them, is status 1 (`cat` in crates/control/src/manager/ways.rs).
    check(&["--cat", "65"], "--cat: `65` is");
}

#[cfg(not(feature = "xdp"))]
#[test]
fn a_binary_without_af_xdp_says_so() {
    let serve = [&["serve", "-qq", "--native-xdp", "eth0"], &FREE_PORTS[..]].concat();
    check_error(&run(&serve), 1, "--native-xdp eth0: this binary was built without AF_XDP");
}

#[test]
fn no_command_shows_the_help_and_status_2() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: dovetail"));
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (arguments, want) in [
        (&["--version"][..], concat!("dovetail ", env!("CARGO_PKG_VERSION"), "\n")),
        (&["-V"], "dovetail "),
        (&["--help"], "serve "),
        (&["serve", "--help"], "DOVETAIL_MAX_ITEM_SIZE"),
        (&["serve", "--help"], "mica-erew, "),
        (&["bench", "--help"], "--pipeline"),
        (&["cli", "--help"], "--native-key-file"),
        (&["config", "--help"], "check"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(text(&output.stdout).contains(want), "{arguments:?}");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut command = dovetail(&["serve", "--help"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn a_configuration_that_cannot_be_read_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml").display().to_string();
    check_usage(&["serve", "--config", &missing], "cannot be read: no such file or directory");
    let directory = folder.path().display().to_string();
    check_usage(&["serve", "--config", &directory], "cannot be read: is a directory");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    let binary = binary.display().to_string();
    check_usage(&["config", "check", &binary], "is not text: write TOML in UTF-8");
}

fn written(folder: &Path, toml: &str) -> String {
    let path = folder.join("dovetail.toml");
    std::fs::write(&path, toml).unwrap();
    path.display().to_string()
}

#[test]
fn a_mistake_in_the_file_names_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    for (toml, want) in [
        ("mode = \"cache\"\nmemroy = \"1g\"\n", "dovetail.toml:2: there is no setting `memroy`"),
        ("memroy = \"1g\"\n", "did you mean `memory`?"),
        ("batch = \"many\"\n", "dovetail.toml:1: batch: `many` is not a whole number"),
        ("threads = [1]\n", "dovetail.toml:1: threads: an array does not fit"),
        ("memory = \n", "dovetail.toml:1: "),
        ("batch = 1\nbatch = 2\n", "dovetail.toml:2: "),
        ("resp = \"0.0.0.0:1\"\n", "dovetail.toml:1: resp 0.0.0.0:1: bind 0.0.0.0 refused"),
    ] {
        let path = written(folder.path(), toml);
        check_usage(&["serve", "--config", &path], want);
        check_usage(&["config", "check", &path], want);
    }
    let path = written(folder.path(), "memory = \"64MiB\" # the least\n");
    let output = run(&["config", "check", &path]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), format!("{path}: ok\n")));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "threads = 2\nbatch = 8\nmode = \"store\"\n");
    let mut command = dovetail(&["config", "show", "--origin", "--threads", "7"]);
    command.env("DOVETAIL_CONFIG", &path);
    command.env("DOVETAIL_THREADS", "5").env("DOVETAIL_BATCH", "16");
    let shown = text(&output_of(command).stdout);
    let has = |value: &str, origin: &str| {
        shown.lines().any(|line| {
            line.split_once('#').is_some_and(|(left, right)| {
                left.trim_end() == value && right.trim().ends_with(origin)
            })
        })
    };
    assert!(has("threads = 7", "flag --threads"), "{shown}");
    assert!(has("batch = 16", "environment DOVETAIL_BATCH"), "{shown}");
    assert!(has("mode = \"store\"", &format!("{path}:3")), "{shown}");
    assert!(has("poll = \"auto\"", "default"), "{shown}");
}

#[test]
fn a_bad_variable_is_named() {
    let mut command = dovetail(&["serve"]);
    command.env("DOVETAIL_MEMORY", "lots");
    check_error(&output_of(command), 2, "DOVETAIL_MEMORY: `lots` is not a size");
}

#[test]
fn the_printed_configuration_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--memory", "96m", "--memcached", "off", "--requirepass", "p\"w", "--insecure"];
    let first = run(&[&["serve", "--print-config"], &flags[..]].concat());
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let path = written(folder.path(), &text(&first.stdout));
    let second = run(&["serve", "--config", &path, "--print-config"]);
    assert_eq!(text(&first.stdout), text(&second.stdout));
    assert!(text(&first.stdout).contains("memory = \"96MiB\""), "{}", text(&first.stdout));
}

#[test]
fn a_port_in_use_is_a_failure_at_run_time() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    for flag in ["resp", "memcached", "admin"] {
        let mut arguments = vec!["serve", "--memory", "64m", "--log", "error"];
        arguments.extend(["--native", "off"]);
        let flags = ["resp", "memcached", "admin"].map(|name| format!("--{name}"));
        for name in &flags {
            let is_taken = name.strip_prefix("--") == Some(flag);
            arguments.extend([name.as_str(), if is_taken { &address } else { "0" }]);
        }
        check_error(&run(&arguments), 1, &format!("{address} is in use"));
    }
}

/// Ends with its test, also when that fails.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on free ports, up to its `ready` line.
struct Running {
    child: Guarded,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    ready: Value,
    _watchdog: Watchdog,
}

impl Running {
    fn start(extra: &[&str]) -> Running {
        Running::start_with("1", extra)
    }

    fn start_with(threads: &str, extra: &[&str]) -> Running {
        let fixed = ["serve", "--memory", "64MiB", "--threads", threads];
        let arguments = [&fixed[..], &FREE_PORTS, extra];
        let child = dovetail(&arguments.concat()).stderr(Stdio::piped()).spawn().unwrap();
        let mut child = Guarded(child);
        let watchdog = Watchdog::over(&child.0);
        let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        let ready = loop {
            let Some(line) = lines.next() else { panic!("no ready line in {seen:?}") };
            let line = line.unwrap();
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["msg"] == "ready" {
                break value;
            }
            seen.push(line);
        };
        Running { child, lines, ready, _watchdog: watchdog }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Exit status and what was still written.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let rest = self.lines.map_while(Result::ok).collect();
        (self.child.0.wait().unwrap().code(), rest)
    }
}

#[test]
fn ready_names_the_ports_that_were_found() {
    let server = Running::start(&[]);
    for name in ["resp", "memcached", "admin"] {
        let address = server.ready[name].as_str().unwrap().to_owned();
        assert!(!address.ends_with(":0"), "{address}");
        std::net::TcpStream::connect(&address).unwrap();
    }
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

/// What was set while the server ran stands in its file afterwards, and the next one starts so.
#[test]
fn config_rewrite_keeps_what_was_set_and_leaves_the_rest_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dovetail.toml");
    std::fs::write(&path, "# Ours.\nmode = \"store\"\nmax-connections = 50 # few\n").unwrap();
    let path_text = path.to_str().unwrap();
    for (asks, want) in [
        ("CONFIG SET max-connections 60 cr-threads auto\r\n", "+OK\r\n+OK\r\n"),
        ("CONFIG GET max-connections\r\n", "*2\r\n$15\r\nmax-connections\r\n$2\r\n60\r\n+OK\r\n"),
    ] {
        let server = Running::start(&["--config", path_text]);
        let address = server.ready["resp"].as_str().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(format!("{asks}CONFIG REWRITE\r\n").as_bytes()).unwrap();
        let mut found = vec![0; want.len()];
        client.read_exact(&mut found).unwrap();
        assert_eq!(text(&found), want);
        server.signal(Signal::TERM);
        assert_eq!(server.end().0, Some(0));
        let want = "# Ours.\nmode = \"store\"\nmax-connections = 60 # few\ncr-threads = \"auto\"\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    }
}

#[test]
fn term_and_int_end_the_server_in_good_order() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let server = Running::start(&[]);
        server.signal(signal);
        let (status, rest) = server.end();
        assert_eq!(status, Some(0), "{rest:?}");
        assert!(rest.iter().any(|line| line.contains(name)), "{rest:?}");
    }
}

#[test]
fn hup_and_pipe_do_not_end_the_server() {
    let mut server = Running::start(&[]);
    server.signal(Signal::PIPE);
    server.signal(Signal::HUP);
    let line = server.lines.next().unwrap().unwrap();
    assert!(line.contains("no live setting has changed"), "{line}");
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_second_server_on_the_same_port_is_refused() {
    let server = Running::start(&[]);
    let address = server.ready["resp"].as_str().unwrap();
    let arguments = [
        &["serve", "--memory", "64m", "--log", "error", "--resp", address][..],
        &["--memcached", "off", "--native", "off", "--admin", "off"],
    ];
    check_error(&run(&arguments.concat()), 1, &format!("{address} is in use"));
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn the_example_file_is_right() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/dovetail.toml");
    assert_eq!(run(&["config", "check", path]).status.code(), Some(0));
}

#[test]
fn doctor_tells_what_is_bad_by_its_status() {
    let good = run(&[&["doctor", "--json", "--memory", "64m"], &FREE_PORTS[..]].concat());
    let findings: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert!(findings.as_array().unwrap().iter().any(|finding| finding["name"] == "memory"));
    let bad = run(&["doctor", "--memory", "16TiB"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stdout).contains("bad   memory"), "{}", text(&bad.stdout));
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = Running::start(&[]);
    let mut client = std::net::TcpStream::connect(server.ready["resp"].as_str().unwrap()).unwrap();
    // Answers of 64 MiB that the client does not read: more than the sockets' buffers hold.
    let value = vec![b'x'; 1 << 20];
    write!(client, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).unwrap();
    client.write_all(&value).unwrap();
    client.write_all(b"\r\n").unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    client.write_all(&b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(64)).unwrap();
    client.read_exact(&mut reply).unwrap();
    server.signal(Signal::TERM);
    let line = server.lines.next().unwrap().unwrap();
    assert!(line.contains("stopping"), "{line}");
    server.signal(Signal::TERM);
    let (status, rest) = server.end();
    assert_eq!(status, Some(1), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("second signal")), "{rest:?}");
}

#[test]
fn a_client_that_reads_gets_its_answers_before_the_end() {
    let server = Running::start(&[]);
    let mut client = std::net::TcpStream::connect(server.ready["resp"].as_str().unwrap()).unwrap();
    client.write_all(&b"*1\r\n$4\r\nPING\r\n".repeat(1000)).unwrap();
    let mut first = [0; 7];
    client.read_exact(&mut first).unwrap();
    server.signal(Signal::TERM);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(server.end().0, Some(0));
    assert!(rest.len() % 7 == 0 && rest.chunks(7).all(|reply| reply == b"+PONG\r\n"));
}

/// The names of all presets that are built, from the error that lists them.
fn presets() -> Vec<String> {
    let message = text(&run(&["serve", "--preset", "none of these"]).stderr);
    let (_, list) = message.split_once("write one of ").unwrap();
    list.trim().split(", ").map(str::to_owned).collect()
}

/// A preset of Rowan-KV's says how a cluster replicates; there must be one.
fn wants_cluster(preset: &str) -> bool {
    ["rowan-kv", "rpc-kv", "rwrite-kv", "batch-kv", "share-kv"].contains(&preset)
}

#[test]
fn every_preset_serves_and_keeps_the_order_of_a_pipeline() {
    let names = presets();
    assert!(names.len() >= 10, "{names:?}");
    for name in names.iter().filter(|name| !wants_cluster(name)) {
        let server = Running::start_with("3", &["--preset", name]);
        let address = server.ready["resp"].as_str().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let (mut asked, mut want) = (String::new(), String::new());
        for n in 0..200 {
            let key = n % 7;
            asked.push_str(&format!("SET k{key} {n:04}\r\nGET k{key}\r\nAPPEND k{key} +\r\n"));
            want.push_str(&format!("+OK\r\n$4\r\n{n:04}\r\n:5\r\n"));
        }
        asked.push_str("MGET k0 k1\r\nDBSIZE\r\n");
        want.push_str("*2\r\n$5\r\n0196+\r\n$5\r\n0197+\r\n:7\r\n");
        client.write_all(asked.as_bytes()).unwrap();
        let mut found = vec![0; want.len()];
        client.read_exact(&mut found).unwrap();
        assert_eq!(text(&found), want, "{name}");
    }
}

#[test]
fn a_preset_prints_its_settings_and_contradictions_are_refused() {
    let printed = run(&["serve", "--preset", "c4-dcrew", "--threads", "3", "--print-config"]);
    assert!(printed.status.success());
    for want in ["write-policy = \"d-crew\"", "dispatch = \"jbsq:2\"", "compaction = \"off\""] {
        assert!(text(&printed.stdout).contains(want), "{want}");
    }
    check_usage(
        &["serve", "--preset", "rowan-kv"],
        "there are no other servers to replicate to; give --cluster",
    );
    check_usage(
        &["serve", "--preset", "c4", "--compaction", "off"],
        "no writes are put together; use --compaction on or --compact-short off",
    );
    check_usage(
        &["serve", "--preset", "sho", "--threads", "3", "--write-policy", "erew"],
        "write policy erew cannot go with dispatch hand-off:1",
    );
}

#[test]
fn presets_are_compared_by_turns() {
    let json = tempfile::NamedTempFile::new().unwrap();
    let path = json.path().to_str().unwrap();
    let output = run(&[
        "bench",
        "--compare",
        "dovetail,erpckv",
        "--rounds",
        "2",
        "--keys",
        "1000",
        "--duration",
        "100ms",
        "--warmup",
        "20ms",
        "--connections",
        "2",
        "--serve",
        "--threads 2 --memory 64m --mode store",
        "--json",
        path,
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("erpckv"), "{}", text(&output.stdout));
    let page: Value = serde_json::from_reader(json.reopen().unwrap()).unwrap();
    for preset in 0..2 {
        let rounds = page.pointer(&format!("/presets/{preset}/rounds")).unwrap();
        assert_eq!(rounds.as_array().unwrap().len(), 2);
        assert!(rounds[0]["ops_per_second"].as_f64().unwrap() > 0.0);
    }
    check_usage(&["bench", "--compare", "dovetail"], "--compare: write at least two presets");
    check_usage(
        &["bench", "--compare", "dovetail,hkh", "--serve", "--threads 1"],
        "--compare: mode is cache in dovetail and store in hkh: give all servers the same, e.g. \
         --serve \"--mode cache\"",
    );
    check_usage(
        &["bench", "--compare", "hkh,mutps-h"],
        "--compare: threads is auto in hkh and 2 in mutps-h",
    );
    check_usage(&["bench", "--compare", "hkh,hkh"], "--compare: `hkh` stands there twice");
    check_usage(
        &["bench", "--compare", "dovetail,hkh", "--serve", "--threads none"],
        "--compare dovetail: --threads: `none` is not",
    );
}

#[test]
fn the_default_is_compared_with_itself_without_each_of_its_parts() {
    let load = "--rounds 1 --keys 1000 --duration 50ms --warmup 20ms --connections 2 --json -";
    let load: Vec<&str> = load.split(' ').collect();
    let routed = "--threads 3 --cr-threads 1 --write-policy d-crew --dispatch jbsq:2 --memory 64m";
    for (serve, want) in [
        ("--threads 1 --memory 64m", &["without compaction"][..]),
        (routed, &["without d-crew", "without compaction", "without two-layers"]),
    ] {
        let output = run(&[&["bench", "--ablate", "--serve", serve], &load[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let page: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        let names: Vec<&str> = page["presets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["preset"])
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(names[..2], ["dovetail", "the same again"]);
        // Later parts may come behind.
        for name in want {
            assert!(names.contains(name), "{names:?}");
        }
    }
    check_usage(
        &["bench", "--ablate", "--serve", "--threads 1 --compaction off --hot-set off"],
        "--ablate: nothing is on",
    );
    check_usage(&["bench", "--ablate", "--serve", "--threads none"], "--ablate: --threads: `none`");
}

/// What `--print-config` prints says the same as flags, and as a file.
#[test]
fn what_a_preset_prints_holds_without_the_preset() {
    let print = |arguments: &[String]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let fixed = ["serve", "--print-config"];
        let output = run(&[&fixed[..], &arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).parse::<toml::Table>().unwrap()
    };
    for name in presets() {
        let mut flags = format!("--preset {name} --threads 3");
        if wants_cluster(&name) {
            check_usage(&["serve", "--preset", &name], "give --cluster");
            flags.push_str(" --cluster file:///nowhere --peer 127.0.0.1:0");
        }
        let mut printed = print(&flags.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(printed["preset"].as_str(), Some(&*name));
        // Left out, nothing remembers where the settings came from.
        printed.remove("preset");
        let as_flags = printed.iter().flat_map(|(key, value)| {
            let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            [format!("--{key}"), word]
        });
        let mut from_flags = print(&as_flags.collect::<Vec<_>>());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{printed}").unwrap();
        let path = file.path().display().to_string();
        let mut from_file = print(&["--config".to_owned(), path]);
        for again in [&mut from_flags, &mut from_file] {
            again.remove("preset");
            assert_eq!(again, &printed, "{name}");
        }
    }
}
