//! Servers of a list, which keep their configuration themselves: starts, kills, lost files, wrong
//! lists.
//!
//! ```text
//!  serve --join 127.P.P.N:7600,... x 3     P: of this process, N: of the cluster: ports are free
//!    member, manager, node in each
//! ```

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::cluster::{ask, connect, next_first_place, until};

const COUNT: usize = 3;

struct Servers {
    folder: tempfile::TempDir,
    first_place: u8,
    is_durable: bool,
    children: Vec<Option<Child>>,
}

impl Servers {
    fn new(is_durable: bool) -> Servers {
        Servers {
            folder: tempfile::tempdir().unwrap(),
            first_place: next_first_place(),
            is_durable,
            children: (0..COUNT).map(|_| None).collect(),
        }
    }

    fn host(&self, index: usize) -> String {
        let (pid, place) = (std::process::id(), usize::from(self.first_place) + index);
        format!("127.{}.{}.{place}", 1 + pid % 250, pid / 250 % 250)
    }

    fn list(&self) -> String {
        (0..COUNT).map(|index| self.host(index)).collect::<Vec<_>>().join(",")
    }

    fn state(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("config{index}"))
    }

    /// `dovetail` in the state folder of this test's user.
    fn dovetail(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
        command.env("XDG_STATE_HOME", self.folder.path()).env_remove("STATE_DIRECTORY");
        command.stdin(Stdio::null());
        command
    }

    fn command(&self, index: usize) -> Command {
        self.command_of("test", index, index)
    }

    /// A server with the folder of another one.
    fn command_of(&self, cluster: &str, index: usize, folder: usize) -> Command {
        let mut command = self.dovetail();
        let host = self.host(index);
        command.args(["serve", "--cluster", cluster, "--join", &self.list(), "--join-as", &host]);
        command.args(["--resp", &format!("{host}:7000"), "--memcached", "off", "--admin", "off"]);
        command.args(["--memory", "64MiB", "--threads", "1"]);
        command.arg("--cluster-dir").arg(self.state(folder));
        if self.is_durable {
            command.arg("--data-dir").arg(self.folder.path().join(format!("data{index}")));
        }
        command
    }

    fn start(&mut self, index: usize) {
        let path = self.folder.path().join(format!("server{index}.log"));
        let log = std::fs::File::options().create(true).append(true).open(path).unwrap();
        let child = self.command(index).stderr(log).stdout(Stdio::null()).spawn().unwrap();
        self.children[index] = Some(child);
    }

    fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children[index].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks all servers for a key until its own one answers.
    fn ask(&self, words: &[&str]) -> String {
        until("the shard is served", || {
            (0..COUNT).find_map(|index| {
                let stream = connect(&format!("{}:7000", self.host(index)))?;
                let reply = ask(&mut BufReader::new(stream), words)?;
                (!reply.starts_with('-')).then_some(reply)
            })
        })
    }

    fn status(&self) -> String {
        let mut command = self.dovetail();
        command.args(["cluster", "status", "--cluster", "test", "--join", &self.list()]);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn until_whole(&self) {
        until("all copies are there", || {
            let said = self.status();
            let is_whole = said.contains("all shards are served")
                && said.contains(": 0 with fewer than 3 copies");
            is_whole.then_some(())
        });
    }

    fn check_values(&self) {
        for number in 0..50 {
            assert_eq!(self.ask(&["GET", &format!("key{number}")]), format!("value{number}"));
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        (0..COUNT).for_each(|index| {
            if let Some(mut child) = self.children[index].take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        });
        for index in 0..COUNT {
            if std::thread::panicking() {
                let path = self.folder.path().join(format!("server{index}.log"));
                eprintln!("== {index}\n{}", std::fs::read_to_string(path).unwrap_or_default());
            }
        }
    }
}

#[test]
fn servers_of_a_list_need_nothing_beside_them() {
    let mut servers = Servers::new(true);
    (0..COUNT).for_each(|index| servers.start(index));
    for number in 0..50 {
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        assert_eq!(servers.ask(&["SET", &key, &value]), "+OK");
    }
    servers.until_whole();
    // One of them leads the members, one the managers: each is killed once.
    for index in 0..COUNT {
        servers.kill(index);
        servers.check_values();
        servers.start(index);
        servers.until_whole();
    }
    // A server that lost its copy of the configuration takes it from the others.
    servers.kill(1);
    std::fs::remove_dir_all(servers.state(1)).unwrap();
    servers.start(1);
    servers.until_whole();
    // After all have lost power, a majority is enough.
    (0..COUNT).for_each(|index| servers.kill(index));
    servers.start(0);
    servers.start(1);
    servers.check_values();
    servers.start(2);
    servers.until_whole();
}

/// What a server says that does not start, and its exit status.
fn refused(command: &mut Command) -> (String, i32) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (said.lines().last().unwrap_or_default().to_owned(), output.status.code().unwrap_or(-1))
}

#[test]
fn wrong_lists_and_keys_are_refused_in_one_line() {
    let servers = Servers::new(false);
    let serve = |flags: &[&str]| {
        let mut command = servers.dovetail();
        command.args(["serve", "--resp", "127.0.0.1:0", "--memcached", "off", "--admin", "off"]);
        command.args(flags);
        refused(&mut command)
    };
    let list = servers.list();
    let wrong_key = servers.folder.path().join("wrong");
    std::fs::write(&wrong_key, "no key").unwrap();
    let wrong_key = wrong_key.display().to_string();
    let cases: [(&[&str], &str); 8] = [
        (&["--cluster", "a/b", "--join", "a,b,c"], "is no cluster's name"),
        (&["--join", "a,b,c"], "needs a name for the cluster; give --cluster NAME"),
        (&["--cluster", "x", "--join", "a,b"], "2 members: write the addresses of 3 to 7 servers"),
        (&["--cluster", "x", "--join", "a,b,a:7600"], "a:7600 stands there twice"),
        (&["--cluster", "x", "--join", "a,b,:1"], "`:1` is no address of a server"),
        (&["--cluster", "x", "--join", &list], "are all this machine's: write --join-as"),
        (&["--cluster", "x", "--join", &list, "--join-as", "a"], "is not in --join: write one of"),
        (
            &[
                "--cluster",
                "x",
                "--join",
                &list,
                "--join-as",
                &servers.host(0),
                "--cluster-key",
                &wrong_key,
            ],
            "it has no 32 hexadecimal digits: write it with `dovetail cluster key`",
        ),
    ];
    for (flags, want) in cases {
        let (line, status) = serve(flags);
        assert!(line.contains(want) && [1, 2].contains(&status), "{flags:?}: {status}, {line}");
    }
    let apart = ["--cluster", "x", "--join", "127.0.0.1:1,10.255.0.1,10.255.0.2"];
    let (line, _) = serve(&apart);
    assert!(line.contains("need a key that all have"), "{line}");
}

#[test]
fn a_folder_belongs_to_one_server_of_one_list() {
    let mut servers = Servers::new(false);
    (0..COUNT).for_each(|index| servers.start(index));
    servers.until_whole();
    let (line, status) = refused(&mut servers.command(0));
    assert!(line.contains("in use"), "{line}");
    assert_ne!(status, 0);
    servers.kill(0);
    let mut command = servers.command_of("other", 0, 0);
    let (line, status) = refused(&mut command);
    assert!(line.contains("of cluster test") && line.contains("of cluster other"), "{line}");
    assert_ne!(status, 0);
}
