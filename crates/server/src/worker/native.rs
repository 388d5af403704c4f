//! Native clients in a worker's round: its datagrams, its doorbells, and who comes in.

use std::os::fd::AsFd;
use std::time::Instant;

use super::{TOKEN_PORT, TOKEN_SHM, TOKEN_SHM_DOOR, Worker};
use crate::engine::Home;
use crate::native::shm::ShmGuest;
use crate::poller::{Interest, Poller, Ready};
use crate::shared::Control;

/// Clients that one round takes in.
const ADMIT_MAX: usize = 16;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Serves the datagrams that have arrived, and hears the doorbells that were rung.
    pub(super) fn serve_native(&mut self, ready: &[Ready]) {
        for event in ready {
            match event.token {
                TOKEN_SHM_DOOR => self.admit_shm(),
                token @ TOKEN_PORT..TOKEN_SHM => {
                    if let Some(native) = &mut self.native {
                        let index = (token - TOKEN_PORT) as usize;
                        native.serve_port(index, &mut self.engine, &self.core);
                    }
                }
                token @ TOKEN_SHM..TOKEN_SHM_DOOR => {
                    if let Some(native) = &mut self.native {
                        native.hear((token - TOKEN_SHM) as usize);
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes the clients in shared memory that wait, and hands each to the worker whose turn it is.
    fn admit_shm(&mut self) {
        for _ in 0..ADMIT_MAX {
            let Some(door) = &self.shm_door else { return };
            match door.accept() {
                Ok(None) => return,
                Ok(Some(None)) => {}
                Ok(Some(Some(guest))) => {
                    let worker_count = self.core.shared.role_plan().fronts;
                    let worker = door.next_worker(worker_count);
                    if worker == self.core.worker.index() {
                        self.adopt_shm(guest);
                    } else {
                        self.core.shared.send(worker, Control::Adopt(Box::new(guest)));
                    }
                }
                Err(error) => {
                    tracing::warn!("clients in shared memory wait: {error}");
                    // The door would be reported as ready at once, and the worker would spin.
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
        let Some(doorbell) = native.doorbell(slot) else { return };
        if let Err(error) = self.poller.add(doorbell, TOKEN_SHM + slot as u64, Interest::READ) {
            tracing::warn!("a client in shared memory cannot be watched: {error}");
        }
    }
}
