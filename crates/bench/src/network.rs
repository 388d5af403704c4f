//! A run against a server: connects, stores the keys, warms up, measures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use workload::{ArrivalClock, Trace};

use crate::codec::memcached::MemcachedCodec;
use crate::codec::resp::RespCodec;
use crate::codec::{Codec, Parsed, Reply, printable};
use crate::connection::{Broken, Connection, Shape, Source};
use crate::control::{Control, Phase};
use crate::error::BenchError;
use crate::lane::Lane;
use crate::pin::pin_thread;
use crate::plan::Plan;
use crate::poller::Poller;
use crate::progress::Progress;
use crate::server_cpu::ServerProcesses;
use crate::summary::{ServerCpu, Summary};
use crate::tally::Tally;
use crate::target::Protocol;
use crate::worker::{Offer, Pacing, Worker, broken_error};

/// Connects and runs `plan` against the server at `address`.
pub(crate) fn run(
    plan: &Plan,
    protocol: Protocol,
    address: &str,
    control: &Control,
    progress: &Progress,
) -> Result<Summary, BenchError> {
    let run = NetworkRun { plan, protocol, address, control, progress };
    match protocol {
        Protocol::Resp => run.drive(&RespCodec::new(plan.key_format.len_max_bytes())),
        Protocol::Memcached => run.drive(&MemcachedCodec),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

struct NetworkRun<'a> {
    plan: &'a Plan,
    protocol: Protocol,
    address: &'a str,
    control: &'a Control,
    progress: &'a Progress,
}

impl NetworkRun<'_> {
    fn drive<C: Codec + Sync>(&self, codec: &C) -> Result<Summary, BenchError> {
        let plan = self.plan;
        let sockets = self.connect_all()?;
        let processes = match plan.server_pid {
            Some(pid) => Some(ServerProcesses::of_pid(pid)),
            None => sockets.first().and_then(server_processes),
        };
        run_threads(
            (plan, self.control, self.progress),
            processes,
            sockets,
            |trace, index, share| self.run_thread(codec, trace, index, share),
        )
    }

    fn run_thread<C: Codec>(
        &self,
        codec: &C,
        trace: &Trace,
        index: usize,
        share: Vec<(usize, TcpStream)>,
    ) -> Result<Tally, BenchError> {
        let plan = self.plan;
        pin_thread(plan.cpu_of(index))?;
        let lane_count = plan.lane_count();
        let lane_ids: Vec<usize> = share.iter().map(|(lane, _)| *lane).collect();
        let key_end = if plan.populate { plan.draw.key_count } else { 0 };
        let connections: Vec<Connection<'_>> = share
            .into_iter()
            .map(|(lane, socket)| {
                let source =
                    Source::Populate { next: lane as u64, step: lane_count as u64, end: key_end };
                Connection::new(socket, source, 0)
            })
            .collect();
        let poller = Poller::new(plan.poll).map_err(|source| BenchError::System {
            what: "cannot create an epoll instance",
            source,
        })?;
        let mut worker = Worker {
            shape: Shape {
                codec,
                key_format: plan.key_format,
                value_sizes: &plan.value_sizes,
                mget: plan.mget,
            },
            control: self.control,
            address: self.address,
            protocol: self.protocol.name(),
            write_watched: vec![false; connections.len()],
            connections,
            poller,
            pipeline: plan.pipeline,
            pacing: pacing(plan, index, trace)?,
            tally: Tally::new(),
        };
        worker.populate()?;
        self.control.ready();
        if self.control.phase() != Phase::Stop {
            plan.begin_load(index);
            let (keys, takes) = (plan.draw.key_count, plan.takes(index));
            let lane = |lane: usize| {
                Lane::new(trace.cursor(lane, lane_count), lane, lane_count, keys, takes)
            };
            worker.load(lane_ids.into_iter().map(lane).collect())?;
        }
        Ok(worker.tally)
    }

    fn connect_all(&self) -> Result<Vec<TcpStream>, BenchError> {
        let failed = |source| BenchError::Connect { address: self.address.to_owned(), source };
        let addresses: Vec<SocketAddr> = self.address.to_socket_addrs().map_err(failed)?.collect();
        (0..self.plan.lane_count())
            .map(|_| {
                let mut socket = connect(&addresses).map_err(failed)?;
                self.log_in(&mut socket)?;
                socket.set_nonblocking(true).map_err(failed)?;
                Ok(socket)
            })
            .collect()
    }

    fn log_in(&self, socket: &mut TcpStream) -> Result<(), BenchError> {
        let (Some(password), Protocol::Resp) = (&self.plan.password, self.protocol) else {
            return Ok(());
        };
        let lost = |error: std::io::Error| {
            broken_error(self.address, self.protocol.name(), Broken::Lost(error.to_string()))
        };
        socket.set_read_timeout(Some(LOGIN_TIMEOUT)).map_err(lost)?;
        socket.write_all(&RespCodec::auth(password)).map_err(lost)?;
        let mut input = Vec::new();
        loop {
            let mut bytes = [0; 512];
            let len = socket.read(&mut bytes).map_err(lost)?;
            input.extend_from_slice(&bytes[..len]);
            match RespCodec::new(0).parse(&input) {
                Parsed::Done { reply: Reply::Stored, .. } => return Ok(()),
                Parsed::Done { reply: Reply::Refused(words), .. } => {
                    let reply = printable(words);
                    return Err(BenchError::Refused { request: "AUTH", reply });
                }
                Parsed::NeedMore { .. } if len > 0 => {}
                _ => {
                    let reason = format!("reply to AUTH is {}", printable(&input));
                    let broken = Broken::Protocol(reason);
                    return Err(broken_error(self.address, self.protocol.name(), broken));
                }
            }
        }
    }
}

/// Draws the trace and runs the load of all threads: `run_thread` gets a thread's index, and its
/// share of the connections with their lanes.
pub(crate) fn run_threads<C: Send>(
    (plan, control, progress): (&Plan, &Control, &Progress),
    processes: Option<ServerProcesses>,
    connections: Vec<C>,
    run_thread: impl Fn(&Trace, usize, Vec<(usize, C)>) -> Result<Tally, BenchError> + Sync,
) -> Result<Summary, BenchError> {
    progress.phase("drawing the trace");
    let trace = Trace::draw(&plan.draw, plan.trace_len);
    let mut shares: Vec<Vec<(usize, C)>> =
        (0..plan.all_thread_count()).map(|_| Vec::new()).collect();
    for (lane, connection) in connections.into_iter().enumerate() {
        shares[plan.thread_of(lane)].push((lane, connection));
    }
    std::thread::scope(|scope| {
        let (trace, run_thread) = (&trace, &run_thread);
        let threads: Vec<_> = shares
            .into_iter()
            .enumerate()
            .map(|(index, share)| {
                scope.spawn(move || {
                    let result = run_thread(trace, index, share);
                    if result.is_err() {
                        control.stop();
                    }
                    result
                })
            })
            .collect();
        let server_cpu = conduct(plan, control, progress, processes.as_ref());
        let mut tallies = Vec::new();
        for thread in threads {
            tallies.push(thread.join().expect("a client thread panicked")?);
        }
        server_cpu.map(|server_cpu| Summary::new(&tallies, server_cpu))
    })
}

/// The main thread's part: sets the phases and reads the server's CPU time at both ends.
pub(crate) fn conduct(
    plan: &Plan,
    control: &Control,
    progress: &Progress,
    processes: Option<&ServerProcesses>,
) -> Result<Option<ServerCpu>, BenchError> {
    let keys = if plan.populate { plan.draw.key_count } else { 0 };
    progress.start_populating(keys);
    control.wait_ready(plan.all_thread_count(), |count| progress.populated(count));
    progress.start_running(plan.warmup + plan.duration);
    control.enter(Phase::WarmUp);
    control.pass(plan.warmup, |passed| progress.running(passed));
    if control.is_interrupted() || control.phase() == Phase::Stop {
        control.stop();
        return Err(BenchError::Interrupted);
    }
    let cpu_before_ns = processes.and_then(ServerProcesses::cpu_ns);
    let start_ns = control.now_ns();
    control.enter(Phase::Measure);
    control.pass(plan.duration, |passed| progress.running(plan.warmup + passed));
    let cpu_after_ns = processes.and_then(ServerProcesses::cpu_ns);
    let end_ns = control.now_ns();
    control.stop();
    progress.finish();
    let cpu = processes.zip(cpu_before_ns.zip(cpu_after_ns));
    Ok(cpu.map(|(processes, (before_ns, after_ns))| ServerCpu {
        pids: processes.pids.clone(),
        cpu_ns: after_ns.saturating_sub(before_ns),
        wall_ns: end_ns - start_ns,
    }))
}

/// The rule by which a thread sends.
pub(crate) fn pacing(
    plan: &Plan,
    thread_index: usize,
    trace: &Trace,
) -> Result<Pacing, BenchError> {
    Ok(match plan.open_loop {
        None => Pacing::Closed,
        Some(open) => {
            let share = plan.takes(thread_index).share(trace)?;
            let per_second = open.per_second * share / plan.like_thread_count(thread_index) as f64;
            let seed = plan.draw.seed.wrapping_add(thread_index as u64 + 1);
            let clock = ArrivalClock::new(open.arrivals, per_second, seed);
            Pacing::Open(Offer::new(clock, open.when_full))
        }
    })
}

fn connect(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The server's processes, if the other end of `socket` is on this host.
fn server_processes(socket: &TcpStream) -> Option<ServerProcesses> {
    let (peer, own) = (socket.peer_addr().ok()?, socket.local_addr().ok()?);
    if peer.ip() == own.ip() { ServerProcesses::listening_on(peer) } else { None }
}

#[cfg(test)]
mod tests;
