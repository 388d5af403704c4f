//! One trial: a shape against a server, with checked clients beside it, while its memory is
//! measured.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::checked::{self, Findings, Signals};
use super::door::Door;
use super::memory::{self, Memory, allowed_bytes, mib};
use super::server::{Binary, Server};
use super::shapes::{Holds, Shape};
use super::table::Row;
use super::target::{Login, Target};

/// Interval between two checks of the server's memory.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The time for which checked clients go on after the attack.
const AFTERWARDS: Duration = Duration::from_millis(100);
/// The extra condition is checked after this part of the attack.
const HOLDS_AFTER_PART: u32 = 2;
/// A server that keeps more than this after a trial does not serve the next one.
const KEPT_MAX_BYTES: u64 = 8 << 20;

/// The place and the parameters of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'s> {
    pub shape: &'s Shape,
    pub cap_bytes: u64,
    pub login: Login,
    pub duration: Duration,
    pub connections_max: usize,
}

impl Trial<'_> {
    /// Runs the trial, on the previous trial's server if that fits; leaves a server that the next
    /// may use.
    pub fn run(&self, binary: &Binary, server: &mut Option<Server>, may_share: bool) -> Row {
        let mut faults = Vec::new();
        if server.as_ref().is_some_and(|it| !self.fits(it) || !it.is_left_alone())
            && let Some(Err(error)) = server.take().map(Server::stop)
        {
            faults.push(format!("the server of the shape before: {error:#}"));
        }
        let mut row = Row {
            shape: self.shape.name,
            cap_bytes: self.cap_bytes,
            login: self.login,
            peak_bytes: 0,
            p99: Duration::ZERO,
            longest: Duration::ZERO,
            answers: 0,
            refused: 0,
            faults,
        };
        if server.is_none() {
            match Server::start(binary, self.cap_bytes, self.login.is_locked()) {
                Ok(started) => *server = Some(started),
                Err(error) => {
                    row.faults.push(format!("{error:#}"));
                    return row;
                }
            }
        }
        let Some(running) = server else { return row };
        let before = Memory::of(running.pid()).unwrap_or_default();
        self.attack(binary, running, &mut row);
        let after = Memory::of(running.pid()).unwrap_or_default();
        let kept = after.own_bytes.saturating_sub(before.own_bytes);
        let is_like_new = row.is_good() && !self.shape.spoils && kept < KEPT_MAX_BYTES;
        let is_left = may_share && is_like_new && memory::forget_peak(running.pid());
        if !is_left && let Some(Err(error)) = server.take().map(Server::stop) {
            row.faults.push(format!("{error:#}"));
        }
        row
    }

    fn fits(&self, server: &Server) -> bool {
        (server.cap_bytes, server.is_locked) == (self.cap_bytes, self.login.is_locked())
    }

    /// Runs the attack and everything beside it.
    fn attack(&self, binary: &Binary, server: &mut Server, row: &mut Row) {
        let target = Target {
            pid: server.pid(),
            doors: server.doors.clone(),
            tls: binary.tls.clone(),
            login: self.login,
            cap_bytes: self.cap_bytes,
            duration: self.duration,
            began: OnceLock::new(),
            connections_max: self.connections_max,
            acl_file: server.acl_file(),
        };
        let (pid, is_locked) = (server.pid(), self.login.is_locked());
        let (signals, is_over) = (&Signals::default(), &AtomicBool::new(false));
        let mut findings = Findings::default();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(pid, is_over));
            let mut clients = Vec::new();
            if let Ok(at) = target.ip(Door::Resp) {
                clients.push(scope.spawn(move || checked::resp(at, is_locked, signals)));
            }
            if let Ok(at) = target.ip(Door::Memcached) {
                clients.push(scope.spawn(move || checked::memcached(at, is_locked, signals)));
            }
            // A client that cannot store its keys ends by itself.
            while signals.ready.load(Ordering::Relaxed) < clients.len() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.attack_and_hold(&target, row);
            std::thread::sleep(AFTERWARDS);
            signals.stop.store(true, Ordering::Relaxed);
            for client in clients {
                findings.merge(client.join().unwrap_or_default());
            }
            // The server's work for the attack has ended: a GET was answered after it.
            is_over.store(true, Ordering::Relaxed);
            if let Ok(Watched { peak_bytes, ended }) = watcher.join() {
                row.peak_bytes = peak_bytes;
                row.faults.extend(ended);
            }
        });
        row.p99 = findings.p99();
        row.longest = findings.longest;
        row.answers = findings.waits.len();
        row.faults.extend(findings.wrong);
        if !server.is_alive() {
            row.faults.push(format!("the server has ended:\n{}", server.last_lines()));
        }
    }

    fn attack_and_hold(&self, target: &Target, row: &mut Row) {
        let is_done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let hold = |holds| scope.spawn(move || hold(target, is_done, holds));
            let holds = self.shape.holds.map(hold);
            match (self.shape.attack)(target) {
                Ok(refused) => row.refused = refused,
                Err(error) => row.faults.push(format!("the attack: {error:#}")),
            }
            is_done.store(true, Ordering::Relaxed);
            if let Some(Ok(Err(error))) = holds.map(|thread| thread.join()) {
                row.faults.push(format!("{error:#}"));
            }
        });
    }

    /// Monitors the memory; ends a server that would use up the machine's.
    fn watch(&self, pid: u32, stop: &AtomicBool) -> Watched {
        let mut watched = Watched::default();
        let limit = 2 * allowed_bytes(self.cap_bytes) + (1 << 30);
        while !stop.load(Ordering::Relaxed) {
            // An ended process has no memory; the trial detects that itself.
            let Some(memory) = Memory::of(pid) else { break };
            // The kernel keeps the maximum, and a shape may reset it.
            watched.peak_bytes = memory.peak_bytes;
            if memory.own_bytes > limit {
                watched.ended = Some(format!("ended by us at {} MiB", mib(memory.own_bytes)));
                if let Some(process) = Pid::from_raw(pid as i32) {
                    let _ = kill_process(process, Signal::KILL);
                }
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if let Some(memory) = Memory::of(pid) {
            watched.peak_bytes = memory.peak_bytes;
        }
        watched
    }
}

/// Checks, during the attack, whether the parts that the shape must not affect still work.
fn hold(target: &Target, is_done: &AtomicBool, holds: Holds) -> anyhow::Result<()> {
    while target.began.get().is_none() && !is_done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !is_done.load(Ordering::Relaxed) {
        std::thread::sleep(target.duration / HOLDS_AFTER_PART);
    }
    holds(target)
}

#[derive(Debug, Default)]
struct Watched {
    peak_bytes: u64,
    ended: Option<String>,
}
