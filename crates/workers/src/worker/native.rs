//! Native clients in a worker's round: its datagrams, its doorbells, and the clients that arrive.

use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Instant;

use base::roles::RolePlan;
use host::poller::{Interest, Poller, Ready};
use runtime::engine::Home;
use runtime::mailbox::Control;
use runtime::shm_client::{ShmClient, ShmGuest};

use super::{TOKEN_PORT, TOKEN_RECEIVER, TOKEN_SHM, TOKEN_SHM_DOOR, TOKEN_UDP, Worker};

/// Clients that one round takes in, at most.
const ADMIT_MAX: usize = 16;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Serves the datagrams that have arrived, and the doorbells that were rung.
    pub(super) fn serve_native(&mut self, ready: &[Ready]) {
        for event in ready {
            match event.token {
                TOKEN_SHM_DOOR => self.admit_shm(),
                TOKEN_UDP => self.serve_udp(),
                TOKEN_RECEIVER => {
                    if let Some(receiver) = self.engine.receiver() {
                        receiver.serve();
                    }
                }
                token @ TOKEN_PORT..TOKEN_SHM => {
                    if let Some(native) = &mut self.native {
                        let index = (token - TOKEN_PORT) as usize;
                        native.serve_port(index, &mut self.engine, &self.core);
                    }
                }
                token @ TOKEN_SHM..TOKEN_RECEIVER => {
                    if let Some(native) = &mut self.native {
                        native.hear((token - TOKEN_SHM) as usize);
                    }
                }
                _ => {}
            }
        }
    }

    /// Accepts the waiting clients in shared memory, and hands each to the worker whose turn it is.
    fn admit_shm(&mut self) {
        for _ in 0..ADMIT_MAX {
            let Some(door) = &self.shm_door else { return };
            match door.accept() {
                Ok(None) => return,
                Ok(Some(None)) => {}
                Ok(Some(Some(guest))) => {
                    let worker_count = self.core.shared.role_plan().dispatchers;
                    let worker = door.next_worker(worker_count);
                    if worker == self.core.worker.index() {
                        self.adopt_shm(guest);
                    } else {
                        self.core.shared.send(worker, Control::Adopt(Box::new(guest)));
                    }
                }
                Err(error) => {
                    tracing::warn!("clients in shared memory wait: {error}");
                    // Otherwise the door would be reported as ready at once, and the worker would
                    // spin.
                    let _ = self.poller.remove(door.as_fd());
                    self.accept_again_at = Some(Instant::now() + super::accept::ACCEPT_REST);
                    return;
                }
            }
        }
    }

    /// Serves a client in shared memory from now on.
    pub(super) fn adopt_shm(&mut self, guest: ShmGuest) {
        let Some(native) = &mut self.native else { return };
        let Some(slot) = native.adopt(guest) else { return };
        self.poll_shm(slot);
    }

    /// Takes in clients that other workers have handed over, or passes them on to workers that
    /// poll. When the server stops, they are dropped.
    pub(super) fn receive_shm(&mut self) {
        let is_dispatcher = self.member.plan().is_dispatcher(self.core.worker.index());
        for client in std::mem::take(&mut self.shm_arrivals) {
            match &mut self.native {
                Some(native) if is_dispatcher => {
                    let slot = native.take_in_shm(*client);
                    self.poll_shm(slot);
                }
                Some(_) => self.send_shm(client, &self.dispatchers_now()),
                None => {}
            }
        }
    }

    /// Under another plan: hands over all clients in shared memory if this worker polls no longer,
    /// or a share of them if other workers begin to poll (U2).
    pub(super) fn hand_over_shm(&mut self, before: &RolePlan, plan: &RolePlan) {
        let own = self.core.worker.index();
        let Some(native) = &mut self.native else { return };
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
            let _ = self.poller.remove(client.as_fd());
            self.send_shm(Box::new(client), &targets);
        }
    }

    fn send_shm(&mut self, client: Box<ShmClient>, targets: &Range<usize>) {
        let target = self.next_of(targets);
        self.core.shared.send(target, Control::MoveShm(client));
    }

    fn poll_shm(&mut self, slot: usize) {
        let Some(native) = &mut self.native else { return };
        let Some(doorbell) = native.doorbell(slot) else { return };
        if let Err(error) = self.poller.add(doorbell, TOKEN_SHM + slot as u64, Interest::READ) {
            tracing::warn!("a client in shared memory cannot be polled: {error}");
        }
    }
}
