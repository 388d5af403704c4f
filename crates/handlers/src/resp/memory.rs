//! MEMORY STATS, DOCTOR, PURGE, MALLOC-STATS: where the memory goes.

use host::process::Usage;
use runtime::shared::Shared;
use runtime::walks::Caller;
use wire::resp::{CommandId, Encoder};

use crate::gather::Gather;

/// Figures of MEMORY STATS.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    /// In use, of the log, the index and client buffers.
    total_bytes: u64,
    /// The part of this that entries take.
    dataset_bytes: u64,
    clients_bytes: u64,
    index_bytes: u64,
    items: u64,
    resident_bytes: u64,
    resident_max_bytes: u64,
    /// Allocated at the start, or mapped for the memory in use.
    reserved_bytes: u64,
    out_of_memory: u64,
    limit_bytes: u64,
}

impl Figures {
    fn now(shared: &Shared) -> Figures {
        let (store, process) = (shared.store().stats(), Usage::now());
        let clients_bytes = shared.buffer_budget().granted_bytes();
        Figures {
            total_bytes: store.log_used_bytes + store.index_used_bytes + clients_bytes,
            dataset_bytes: store.entry_bytes,
            clients_bytes,
            index_bytes: store.index_used_bytes,
            items: store.items,
            resident_bytes: process.resident_bytes,
            resident_max_bytes: process.resident_max_bytes,
            reserved_bytes: store.log_bytes + store.index_bytes,
            out_of_memory: store.out_of_memory,
            limit_bytes: shared.memory_bytes(),
        }
    }

    fn encode(&self, encoder: &mut Encoder<'_>) {
        let peak_bytes = self.total_bytes.max(self.resident_max_bytes);
        let overhead_bytes = self.total_bytes.saturating_sub(self.dataset_bytes);
        let part = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        let integers = [
            ("peak.allocated", peak_bytes),
            ("total.allocated", self.total_bytes),
            ("startup.allocated", 0),
            ("replication.backlog", 0),
            ("clients.slaves", 0),
            ("clients.normal", self.clients_bytes),
            ("cluster.links", 0),
            ("aof.buffer", 0),
            ("lua.caches", 0),
            ("functions.caches", 0),
            ("overhead.hashtable.main", self.index_bytes),
            ("overhead.total", overhead_bytes),
            ("keys.count", self.items),
            ("keys.bytes-per-key", self.total_bytes / self.items.max(1)),
            ("dataset.bytes", self.dataset_bytes),
            ("allocator.allocated", self.total_bytes),
            ("allocator.active", self.reserved_bytes),
            ("allocator.resident", self.resident_bytes),
            ("fragmentation.bytes", self.resident_bytes.saturating_sub(self.total_bytes)),
        ];
        let doubles = [
            ("dataset.percentage", 100.0 * part(self.dataset_bytes, self.total_bytes)),
            ("peak.percentage", 100.0 * part(self.total_bytes, peak_bytes)),
            ("fragmentation", part(self.resident_bytes, self.total_bytes)),
        ];
        encoder.map_header(integers.len() + doubles.len());
        for (name, bytes) in integers {
            encoder.bulk(name.as_bytes());
            encoder.integer(bytes.cast_signed());
        }
        for (name, value) in doubles {
            encoder.bulk(name.as_bytes());
            encoder.double(value);
        }
    }

    /// MEMORY DOCTOR: settings that an operator might want to change.
    fn advice(&self) -> String {
        let mut text = String::new();
        if self.out_of_memory > 0 {
            text.push_str(&format!(
                "{} writes found no room: raise --memory, or let --mode cache evict.\n",
                self.out_of_memory
            ));
        }
        if self.total_bytes > self.limit_bytes / 100 * 95 {
            text.push_str("More than 95 % of --memory is in use: what comes next evicts.\n");
        }
        if self.clients_bytes > self.limit_bytes / 20 {
            text.push_str(
                "Client buffers take more than a twentieth of --memory: CLIENT LIST shows obl, \
                 what a client has not taken.\n",
            );
        }
        if text.is_empty() {
            text.push_str("Nothing is wrong with the memory.\n");
        }
        text
    }
}

/// Runs one of these.
pub(super) fn memory(gather: &mut Gather<'_, '_>, caller: Caller, id: CommandId) {
    gather.settle(caller.slot);
    match id {
        CommandId::MemoryStats => {
            let figures = Figures::now(&gather.core.shared);
            gather.say(caller, |encoder| figures.encode(encoder));
        }
        CommandId::MemoryDoctor => {
            let text = Figures::now(&gather.core.shared).advice();
            gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
        }
        CommandId::MemoryMallocStats => {
            let text = "Stats not supported for the current allocator";
            gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
        }
        // The log and the heap return free pages by themselves.
        _ => gather.say(caller, |encoder| encoder.ok()),
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::Protocol;

    use super::*;

    #[test]
    fn the_doctor_speaks_of_what_is_wrong() {
        let well = Figures { total_bytes: 10, limit_bytes: 100_000, ..Figures::default() };
        assert_eq!(well.advice(), "Nothing is wrong with the memory.\n");
        let ill = Figures { out_of_memory: 3, total_bytes: 99_000, clients_bytes: 9_000, ..well };
        assert_eq!(ill.advice().lines().count(), 3);
    }

    #[test]
    fn an_empty_store_has_no_figure_that_is_not_a_number() {
        let mut out = Vec::new();
        Figures::default().encode(&mut Encoder::new(&mut out, Protocol::Resp3));
        let text = String::from_utf8_lossy(&out);
        assert!(text.starts_with("%22\r\n") && !text.contains("nan") && !text.contains("inf"));
    }
}
