//! An executor that serves large items and has none to serve: it takes one small request of a
//! dispatcher's offers, and looks at its own queues again (Minos §6.1's alternative).
//!
//! # Invariants
//! H1: nothing is taken while something was sent to this worker, or while it could go on sending a
//!     large reply: so a large request waits for at most one small one.
//! H2: what is taken is executed whatever its size is: nothing is handed on (sizing's I3).

use super::sizing::Judge;
use super::{Executor, execute};
use crate::core::Core;
use crate::engine::{Engine, RunToCompletion};
use crate::forwarding::help::Help;
use base::KeyHash;
use base::offers::DoneSet;

/// What an executor remembers between two requests that it took.
#[derive(Default)]
pub(super) struct Helper {
    /// Whether it counts among those that look for something.
    is_idle: bool,
    /// The dispatcher that it took the last one from.
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
    /// There is something else to do, or this worker sleeps or has another part from now on.
    #[inline]
    pub fn stop_helping(&mut self) {
        if self.helper.is_idle
            && let Some(help) = &self.fabric.help
        {
            self.helper.set_idle(help, false);
        }
    }

    /// Whether there is something to take that this worker may.
    pub(super) fn may_help(&self) -> bool {
        let Some(help) = &self.fabric.help else { return false };
        self.sizing.may_take(&help.helping) && help.has_any()
    }

    /// Takes one small request, if there is nothing else to do (H1); how many.
    pub(super) fn help(&mut self, home: &mut RunToCompletion, core: &Core) -> usize {
        let fabric = std::sync::Arc::clone(&self.fabric);
        let Some(help) = &fabric.help else { return 0 };
        let may_take = self.sizing.is_on(core) && self.sizing.may_take(&help.helping);
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
