//! A run over the native protocol: uses the crate `client`, over UDP or shared memory.
//!
//! ```text
//!  lanes ─▶ Load, one per connection ─▶ client::Connection ─▶ datagrams, rings
//!  thread: turns among its connections; sleeps on all of them when nothing moves
//! ```
//!
//! The outstanding requests of a connection stand for as many independent callers, so they keep no
//! order among each other (`KeyOrder::Free`).

mod load;

use std::net::ToSocketAddrs;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use client::{Config, Connection, KeyOrder, Target};
use rustix::event::{PollFd, PollFlags, Timespec};
use workload::Trace;

use self::load::Load;
use crate::connection::Source;
use crate::control::{Control, Phase};
use crate::error::BenchError;
use crate::lane::Lane;
use crate::network::{pacing, run_threads};
use crate::pin::pin_thread;
use crate::plan::{Plan, Poll};
use crate::progress::Progress;
use crate::server_cpu::ServerProcesses;
use crate::summary::Summary;
use crate::tally::Tally;
use crate::worker::Pacing;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests outstanding per connection while the keys are stored.
const POPULATE_DEPTH: usize = 256;
/// How long `auto` polls for answers before a thread sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep of a thread between two checks of the phase.
const LOOK_UP: Duration = Duration::from_millis(10);
/// How long an open loop waits after its window for due answers.
const DRAIN_NS: u64 = 1_000_000_000;

/// Connects and runs `plan` against the server at `target`.
pub(crate) fn run(
    plan: &Plan,
    target: &Target,
    control: &Control,
    progress: &Progress,
) -> Result<Summary, BenchError> {
    let connections = connect_all(plan, target)?;
    let processes = match (plan.server_pid, target) {
        (Some(pid), _) => Some(ServerProcesses::of_pid(pid)),
        (None, Target::Udp(address)) => {
            let server = address.to_socket_addrs().ok().and_then(|mut found| found.next());
            server.and_then(ServerProcesses::receiving_at)
        }
        (None, Target::Shm(_)) => None,
    };
    run_threads((plan, control, progress), processes, connections, |trace, index, share| {
        run_thread(plan, target, control, trace, index, share)
    })
}

fn connect_all(plan: &Plan, target: &Target) -> Result<Vec<Connection>, BenchError> {
    let outstanding_max = plan.pipeline.max(POPULATE_DEPTH);
    let config = Config {
        tag_key: plan.native_key,
        key_order: KeyOrder::Free,
        outstanding_max,
        ..Config::default()
    };
    let failed = |error| BenchError::ConnectNative { reason: format!("{error}") };
    let open = |_| Connection::open(target, config.clone(), CONNECT_TIMEOUT).map_err(failed);
    (0..plan.lane_count()).map(open).collect()
}

fn run_thread(
    plan: &Plan,
    target: &Target,
    control: &Control,
    trace: &Trace,
    index: usize,
    share: Vec<(usize, Connection)>,
) -> Result<Tally, BenchError> {
    pin_thread(plan.cpu_of(index))?;
    let lane_count = plan.lane_count();
    let key_end = if plan.populate { plan.draw.key_count } else { 0 };
    let lane_ids: Vec<usize> = share.iter().map(|(lane, _)| *lane).collect();
    let loads = share
        .into_iter()
        .map(|(lane, connection)| {
            let (next, step) = (lane as u64, lane_count as u64);
            let source = Source::Populate { next, step, end: key_end };
            Load::new(connection, source, plan)
        })
        .collect();
    let pacing = pacing(plan, index, trace)?;
    let mut worker = Worker { plan, target, control, loads, pacing, tally: Tally::new() };
    worker.populate()?;
    control.ready();
    if control.phase() != Phase::Stop {
        plan.begin_load(index);
        let (keys, takes) = (plan.draw.key_count, plan.takes(index));
        let lane =
            |lane: usize| Lane::new(trace.cursor(lane, lane_count), lane, lane_count, keys, takes);
        worker.run(lane_ids.into_iter().map(lane).collect())?;
    }
    Ok(worker.tally)
}

/// One thread and its connections.
struct Worker<'a> {
    plan: &'a Plan,
    target: &'a Target,
    control: &'a Control,
    loads: Vec<Load<'a>>,
    pacing: Pacing,
    tally: Tally,
}

impl<'a> Worker<'a> {
    fn populate(&mut self) -> Result<(), BenchError> {
        let mut reported = 0;
        loop {
            let moved = self.turn_closed(POPULATE_DEPTH)?;
            self.control.add_populated(self.tally.write_count - reported);
            reported = self.tally.write_count;
            if let Some(reply) = self.tally.error_first.take() {
                return Err(BenchError::Refused { request: "a write of the key set", reply });
            }
            if self.loads.iter().all(Load::is_idle) || self.control.phase() == Phase::Stop {
                return Ok(());
            }
            self.rest(moved, LOOK_UP)?;
        }
    }

    /// Loads until the run stops; `lanes` has one lane for each connection.
    fn run(&mut self, lanes: Vec<Lane<'a>>) -> Result<(), BenchError> {
        for (load, lane) in self.loads.iter_mut().zip(lanes) {
            load.set_source(Source::Load(lane));
        }
        let mut phase = Phase::WarmUp;
        self.tally.open_window(self.control.now_ns());
        if let Pacing::Open(offer) = &mut self.pacing {
            offer.start(self.control.now_ns());
        }
        loop {
            let found = self.control.phase();
            if found == Phase::Stop {
                break;
            }
            if found != phase {
                phase = found;
                self.tally.open_window(self.control.now_ns());
            }
            match self.pacing {
                Pacing::Closed => {
                    let moved = self.turn_closed(self.plan.pipeline)?;
                    self.rest(moved, LOOK_UP)?;
                }
                Pacing::Open(_) => {
                    let idle = self.offer(u64::MAX);
                    let moved = self.turn_open()?;
                    self.rest(moved, idle)?;
                }
            }
        }
        let end_ns = self.control.now_ns();
        self.tally.close_window(end_ns);
        self.drain(end_ns)
    }

    /// Serves each connection once: settles answers, and follows a finished batch with the next.
    fn turn_closed(&mut self, depth: usize) -> Result<bool, BenchError> {
        let (control, plan, tally) = (self.control, self.plan, &mut self.tally);
        let mut moved = false;
        for load in &mut self.loads {
            moved |=
                load.exchange(plan, tally, || control.now_ns()).map_err(broken(self.target))?;
            if load.has_answered_all() && load.fill(plan, depth, control.now_ns()) {
                moved |=
                    load.exchange(plan, tally, || control.now_ns()).map_err(broken(self.target))?;
            }
        }
        Ok(moved)
    }

    fn turn_open(&mut self) -> Result<bool, BenchError> {
        let (control, plan, tally) = (self.control, self.plan, &mut self.tally);
        let mut moved = false;
        for load in &mut self.loads {
            moved |=
                load.exchange(plan, tally, || control.now_ns()).map_err(broken(self.target))?;
            load.push_write_backs(plan);
        }
        Ok(moved)
    }

    /// Submits the due requests, up to `until_ns`, to connections with room; returns the time until
    /// the next one.
    fn offer(&mut self, until_ns: u64) -> Duration {
        let now_ns = self.control.now_ns().min(until_ns);
        let Pacing::Open(offer) = &mut self.pacing else { return LOOK_UP };
        loop {
            let due_ns = offer.due_ns();
            if due_ns > now_ns {
                return LOOK_UP.min(Duration::from_nanos(due_ns - now_ns));
            }
            let with_room = self.loads.iter_mut().min_by_key(|load| load.outstanding_count());
            let with_room = with_room.filter(|load| load.outstanding_count() < self.plan.pipeline);
            let Some(load) = with_room else {
                if offer.gives_up(&mut self.tally) {
                    continue;
                }
                return LOOK_UP;
            };
            load.push(self.plan, due_ns);
            offer.advance();
        }
    }

    /// After the window, an open loop waits a little for answers; missing ones count as late.
    fn drain(&mut self, end_ns: u64) -> Result<(), BenchError> {
        if matches!(self.pacing, Pacing::Closed) {
            return Ok(());
        }
        let in_window = (self.tally.operation_count, self.tally.request_count);
        while !self.loads.iter().all(Load::is_idle)
            && self.control.now_ns() < end_ns + DRAIN_NS
            && !self.control.is_interrupted()
        {
            let moved = self.turn_open()?;
            self.rest(moved, LOOK_UP)?;
        }
        (self.tally.operation_count, self.tally.request_count) = in_window;
        let now_ns = self.control.now_ns();
        let late: Vec<u64> = self.loads.iter().flat_map(Load::outstanding_start_ns).collect();
        for start_ns in late {
            self.tally.give_up(now_ns.saturating_sub(start_ns));
        }
        if let Pacing::Open(offer) = &mut self.pacing {
            while offer.due_ns() <= end_ns {
                self.tally.give_up(now_ns - offer.due_ns());
                offer.advance();
            }
        }
        Ok(())
    }

    /// After a round without progress: polls for a while, then sleeps until something arrives.
    fn rest(&mut self, moved: bool, idle: Duration) -> Result<(), BenchError> {
        if moved || idle.is_zero() {
            return Ok(());
        }
        let spin = match self.plan.poll {
            Poll::Spin => return Ok(()),
            Poll::Block => Duration::ZERO,
            Poll::Auto => SPIN.min(idle),
        };
        let begun = Instant::now();
        while begun.elapsed() < spin {
            for load in &mut self.loads {
                if load.has_news().map_err(broken(self.target))? {
                    return Ok(());
                }
            }
        }
        self.sleep(idle.saturating_sub(spin)).map_err(broken(self.target))
    }

    fn sleep(&mut self, idle: Duration) -> std::io::Result<()> {
        let mut timeout = idle;
        let mut may_sleep = true;
        for load in &mut self.loads {
            may_sleep &= load.connection.prepare_sleep();
            timeout = timeout.min(load.connection.next_timer().unwrap_or(timeout));
        }
        if may_sleep && !timeout.is_zero() {
            let fds: Vec<BorrowedFd<'_>> =
                self.loads.iter().filter_map(|load| load.connection.as_fd()).collect();
            let mut polled: Vec<PollFd<'_>> =
                fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            let timeout = Timespec::try_from(timeout).ok();
            match rustix::event::poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.loads.iter_mut().for_each(|load| load.connection.end_sleep());
        Ok(())
    }
}

fn broken(target: &Target) -> impl Fn(std::io::Error) -> BenchError + '_ {
    |error| BenchError::ConnectionLost { address: target.to_string(), reason: error.to_string() }
}
