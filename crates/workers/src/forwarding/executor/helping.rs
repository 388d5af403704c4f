//! An idle executor of large items: it takes one small request from a dispatcher's offers, then
//! looks at its own queues again (Minos §6.1's alternative).
//!
//! # Invariants
//! H1: it takes nothing while a request was sent to this worker, or while it could continue sending
//!     a large reply: so a large request waits for at most one small one.
//! H2: it executes the request that it took whatever its size is, and hands nothing on (I3 of
//!     `sizing`).

use base::KeyHash;
use base::offers::DoneSet;
use dispatch::lanes::help::Help;
use runtime::core::Core;
use runtime::engine::{Engine, RunToCompletion};

use super::sizing::Judge;
use super::{Executor, execute};

/// State that an executor keeps between two requests that it took.
#[derive(Default)]
pub(super) struct Helper {
    /// Whether it counts among the workers that look for a request to take.
    is_idle: bool,
    /// The dispatcher of the last request that it took.
    last_dispatcher: usize,
}

impl Helper {
    fn set_idle(&mut self, help: &Help, is_idle: bool) {
        if self.is_idle != is_idle {
            self.is_idle = is_idle;
            help.set_idle(is_idle);
        }
    }
}

impl Executor {
    /// Ends helping: there is other work, or this worker sleeps or changes its role.
    #[inline]
    pub fn stop_helping(&mut self) {
        if self.helper.is_idle
            && let Some(help) = &self.fabric.help
        {
            self.helper.set_idle(help, false);
        }
    }

    /// Whether there is a request that this worker may take.
    pub(super) fn may_help(&self) -> bool {
        let Some(help) = &self.fabric.help else { return false };
        self.sizing.may_take() && help.has_any()
    }

    /// Takes one small request, if there is no other work (H1); returns how many.
    pub(super) fn help(&mut self, home: &mut RunToCompletion, core: &Core) -> usize {
        let fabric = std::sync::Arc::clone(&self.fabric);
        let Some(help) = &fabric.help else { return 0 };
        let may_take = self.sizing.is_on(core) && self.sizing.may_take();
        self.helper.set_idle(help, may_take);
        if !may_take {
            return 0;
        }
        for (dispatcher, queue) in help.queues(self.helper.last_dispatcher) {
            let Some([hash, index]) = queue.offers.take() else { continue };
            home.prefetch(KeyHash(hash));
            self.helper.last_dispatcher = dispatcher;
            let judge = Judge::counts_only(core.counters().sizes.as_ref());
            // The request slot is this worker's until its bit is set (Help's I1).
            execute(home, core, &[queue.request_slots.at(index as u32)], false, judge);
            let forwardings = &core.counters().forwardings;
            forwardings.helped.add(1);
            let word = (index as u32 / DoneSet::WORD_BITS) as usize;
            queue.done.set(word, 1 << (index as u32 % DoneSet::WORD_BITS));
            if dispatcher != core.worker.index() && fabric.bells[dispatcher].must_ring() {
                core.shared.wake(dispatcher);
            }
            return 1;
        }
        0
    }
}
