//! Native clients in a worker's round: its datagrams, its doorbells, and the clients that arrive.

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use ::native::shm::AtDoor;
use base::roles::RolePlan;
use host::poller::{Interest, Poller, Ready};
use runtime::engine::Home;
use runtime::mailbox::Control;
use runtime::shm_client::{ShmClient, ShmGuest};

use super::listeners::PAUSE;
use super::{
    TOKEN_PORT, TOKEN_RECEIVER, TOKEN_SHM, TOKEN_SHM_DOOR, TOKEN_UDP, TOKEN_UNIX_MEMCACHED, Worker,
    roles, udp,
};

/// Clients that one round takes in, at most.
const ADMIT_MAX: usize = 16;

/// The time between two looks whether a waiting client in shared memory has a place.
const PLACE_PAUSE: Duration = Duration::from_millis(10);

/// Serves the datagrams that have arrived, and the doorbells that were rung.
pub(super) fn serve<E: Home, P: Poller>(worker: &mut Worker<E, P>, ready: &[Ready]) {
    for event in ready {
        match event.token {
            TOKEN_SHM_DOOR => admit_shm(worker),
            TOKEN_UDP => udp::serve(worker),
            TOKEN_RECEIVER => {
                if let Some(receiver) = worker.engine.receiver() {
                    receiver.serve();
                }
            }
            token @ TOKEN_PORT..TOKEN_SHM => {
                if let Some(native) = &mut worker.native {
                    let index = (token - TOKEN_PORT) as usize;
                    native.serve_port(index, &mut worker.engine, &worker.core);
                }
            }
            token @ TOKEN_SHM..TOKEN_UNIX_MEMCACHED => {
                if let Some(native) = &mut worker.native {
                    native.hear((token - TOKEN_SHM) as usize);
                }
            }
            _ => {}
        }
    }
}

/// Serves clients in shared memory, what workers have forwarded to one another, and ports that are
/// due whatever the poller reports.
#[inline]
pub(super) fn turn<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    (worker.polling.has_served_queues, worker.has_native_work) = (false, false);
    let Some(native) = &mut worker.native else { return };
    worker.polling.has_served_queues = native.serve_shm(&mut worker.engine, &worker.core);
    if E::ROUTES {
        worker.polling.has_served_queues |=
            native.serve_forwarded(&mut worker.engine, &worker.core);
    }
    let is_due = native.serve_due(&mut worker.engine, &worker.core);
    worker.has_native_work = native.send_unsent(&worker.core) || is_due;
}

/// Accepts the waiting clients in shared memory, and hands each to the worker whose turn it is.
fn admit_shm<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    for _ in 0..ADMIT_MAX {
        let (Some(door), Some(native)) = (&mut worker.shm_door, &worker.native) else { return };
        match native.accept_shm(door) {
            Ok(AtDoor::NoClient) => return,
            Ok(AtDoor::Refused) => {}
            Ok(AtDoor::Waits) => return pause_shm(worker, PLACE_PAUSE),
            Ok(AtDoor::Guest(guest)) => {
                let worker_count = worker.core.shared.roles().plan().dispatchers;
                let target = door.next_worker(worker_count);
                if target == worker.core.worker.index() {
                    adopt_shm(worker, *guest);
                } else {
                    worker.core.shared.send(target, Control::Adopt(guest));
                }
            }
            Err(error) => {
                tracing::warn!("clients in shared memory wait: {error}");
                return pause_shm(worker, PAUSE);
            }
        }
    }
}

/// Stops accepting clients in shared memory for a while: their door would be reported as ready at
/// once, and the worker would spin.
fn pause_shm<E: Home, P: Poller>(worker: &mut Worker<E, P>, pause: Duration) {
    let Some(door) = &worker.shm_door else { return };
    let _ = worker.poller.remove(door.as_fd());
    worker.listeners.note_pause(pause);
}

/// Serves a client in shared memory from now on.
pub(super) fn adopt_shm<E: Home, P: Poller>(worker: &mut Worker<E, P>, guest: ShmGuest) {
    let Some(native) = worker.native.as_mut().filter(|native| !native.is_draining()) else {
        return;
    };
    let Some(slot) = native.adopt(guest) else { return };
    poll_shm(worker, slot);
}

/// Takes in clients that other workers have handed over, or passes them on to workers that
/// poll. When the server stops, they are dropped.
pub(super) fn receive_shm<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let is_dispatcher = worker.roles.is_dispatcher();
    for client in std::mem::take(&mut worker.roles.shm_arrivals) {
        match &mut worker.native {
            Some(native) if native.is_draining() => {}
            Some(native) if is_dispatcher => {
                let slot = native.take_in_shm(*client);
                poll_shm(worker, slot);
            }
            Some(_) => send_shm(worker, client, &roles::dispatchers_now(worker)),
            None => {}
        }
    }
}

/// Under another plan: hands over all clients in shared memory if this worker polls no longer,
/// or a share of them if other workers begin to poll (U2).
pub(super) fn hand_over_shm<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    before: &RolePlan,
    plan: &RolePlan,
) {
    let own = worker.core.worker.index();
    let Some(native) = &mut worker.native else { return };
    let count = native.shm_client_count();
    let (leaving_count, targets) = if !plan.is_dispatcher(own) {
        (count, 0..plan.dispatchers)
    } else if before.is_dispatcher(own) {
        let new_dispatchers = plan.dispatchers.saturating_sub(before.dispatchers);
        (count * new_dispatchers / plan.dispatchers, before.dispatchers..plan.dispatchers)
    } else {
        return;
    };
    for client in native.part_with_shm(leaving_count) {
        // It fails only if it is not polled.
        let _ = worker.poller.remove(client.as_fd());
        send_shm(worker, Box::new(client), &targets);
    }
}

fn send_shm<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    client: Box<ShmClient>,
    targets: &Range<usize>,
) {
    let target = worker.roles.next_of(targets);
    worker.core.shared.send(target, Control::MoveShm(client));
}

fn poll_shm<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let Some(native) = &mut worker.native else { return };
    let Some(doorbell) = native.doorbell(slot) else { return };
    if let Err(error) = worker.poller.add(doorbell, TOKEN_SHM + slot as u64, Interest::READ) {
        tracing::warn!("a client in shared memory cannot be polled: {error}");
    }
}
