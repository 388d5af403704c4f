//! Dynamic partitioning: a partition has a writer only while writes of it are outstanding.

use std::cell::Cell;

use base::WorkerId;
use base::sync::Arc;

use super::{Balance, Jbsq};
use crate::depths::Depths;
use crate::route::{Access, Busy, PinCounts, Route, RouteRequest, Router};
use crate::size_class::SizePlan;
use crate::write_table::{Pin, WriteTable};

/// d-CREW: balances reads, and writes of partitions that no worker writes at the moment. A write of
/// any other partition goes to the worker that writes it, ignoring the bound (C-4 §4.2), unless
/// that worker's queue is longer than a limit: then it is balanced like others, and counts in the
/// entry all the same. The store is right under any route; what is lost is that one worker writes.
pub struct DCrew<B = Jbsq> {
    balance: B,
    table: WriteTable,
    /// The longest queue of a holder that is still sent to.
    holder_depth_max: u32,
    pins: Cell<u64>,
    diverted: Cell<u64>,
}

impl DCrew<Jbsq> {
    /// Balances over the shortest queues below `bound` (C-4 §3).
    pub fn new(bound: u32, table: WriteTable) -> DCrew<Jbsq> {
        DCrew::over(Jbsq::new(bound), table)
    }
}

impl<B: Balance> DCrew<B> {
    /// Balances by `balance`.
    pub fn over(balance: B, table: WriteTable) -> DCrew<B> {
        let (pins, diverted) = (Cell::new(0), Cell::new(0));
        DCrew { balance, table, holder_depth_max: u32::MAX, pins, diverted }
    }

    /// Balances writes whose holder has a longer queue than that.
    pub fn bounded(self, holder_depth_max: u32) -> DCrew<B> {
        DCrew { holder_depth_max, ..self }
    }

    #[inline]
    fn is_too_deep(&self, holder: WorkerId, depths: &Depths) -> bool {
        depths.of(holder) > self.holder_depth_max
    }

    /// This dispatcher's handle on the table.
    pub fn table(&self) -> &WriteTable {
        &self.table
    }

    #[inline]
    fn pinned(&self, worker: WorkerId) -> Route {
        self.pins.set(self.pins.get() + 1);
        Route::To(worker)
    }
}

impl<B: Balance> Router for DCrew<B> {
    #[inline]
    fn route(&self, request: &RouteRequest, depths: &Depths) -> Route {
        if request.access == Access::Read {
            return self.balance.route(request, depths);
        }
        match self.table.pin(request.partition, || self.balance.pick(request, depths)) {
            Pin::Existing(holder) => {
                let free_choice = self.balance.would_pick(request, depths);
                if self.is_too_deep(holder, depths)
                    && let Some(worker) = free_choice
                {
                    return self.pinned(worker);
                }
                let is_diverted = free_choice.is_some_and(|worker| worker != holder);
                self.diverted.set(self.diverted.get() + u64::from(is_diverted));
                self.pinned(holder)
            }
            Pin::New(worker) => self.pinned(worker),
            Pin::NoWorker => Route::Busy(Busy::QueuesFull),
            Pin::Full => Route::Busy(Busy::WriteTableFull),
        }
    }

    fn follow(&self, request: &RouteRequest, holder: WorkerId, depths: &Depths) -> Route {
        if request.access == Access::Read {
            return Route::To(holder);
        }
        match self.table.pin(request.partition, || Some(holder)) {
            Pin::Existing(worker) if worker != holder && !self.is_too_deep(worker, depths) => {
                self.table.unpin(request.partition);
                Route::Busy(Busy::HeldElsewhere)
            }
            Pin::Existing(_) | Pin::New(_) => self.pinned(holder),
            Pin::NoWorker | Pin::Full => Route::Busy(Busy::WriteTableFull),
        }
    }

    #[inline]
    fn finish(&self, request: &RouteRequest, _worker: WorkerId) {
        if request.access == Access::Write {
            self.table.unpin(request.partition);
        }
    }

    fn pin_counts(&self) -> Option<PinCounts> {
        let (pins, diverted) = (self.pins.get(), self.diverted.get());
        Some(PinCounts { pins, diverted, opened: self.table.opened() })
    }

    fn keeps_reads(&self, receiver: WorkerId) -> bool {
        self.balance.keeps_reads(receiver)
    }

    fn set_plan(&mut self, plan: &Arc<SizePlan>) {
        Balance::set_plan(&mut self.balance, plan);
    }
}
