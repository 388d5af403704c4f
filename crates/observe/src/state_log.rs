//! SIGUSR2: writes the state of every thread to the log.

use host::process::Usage;
use runtime::shared::Shared;

use crate::metrics::threads;

/// Logs one line for the server, one for each worker and one for each other thread. No thread
/// waits for it.
pub fn log_state(shared: &Shared) {
    let (stats, usage) = (shared.store().stats(), Usage::now());
    let totals = shared.totals();
    let clients = shared.clients().list();
    tracing::info!(
        uptime_s = shared.run().uptime().as_secs(),
        items = stats.items,
        log_used_bytes = stats.log_used_bytes,
        index_bytes = stats.index_bytes,
        buffer_bytes = shared.buffer_budget().granted_bytes(),
        resident_bytes = usage.resident_bytes,
        connections = clients.len(),
        accepted = totals.connections_total,
        is_stopping = shared.run().is_stopping(),
        "state",
    );
    for (worker, counters) in shared.all_counters().enumerate().take(shared.config().threads) {
        let connections = clients.iter().filter(|it| it.worker().index() == worker).count();
        tracing::info!(
            worker,
            thread_id = shared.thread_id(worker).unwrap_or(0),
            connections,
            batches = counters.batches.get(),
            requests = counters.batch_requests.get(),
            busy_ms = counters.busy_ns.get() / 1_000_000,
            input_bytes = counters.input_bytes.get(),
            output_bytes = counters.output_bytes.get(),
            forwardings_sent = counters.forwardings.sent.get(),
            forwardings_served = counters.forwardings.served.get(),
            "state",
        );
    }
    for thread in threads() {
        let (id, name, state) = (thread.id, thread.name, thread.state);
        tracing::info!(id, thread = name, %state, cpu_ms = thread.cpu_ms, "state");
    }
}
