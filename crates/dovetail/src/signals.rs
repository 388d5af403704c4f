//! Signal handling of `dovetail serve`, from before it reads its settings until it has stopped.
//!
//! ```text
//!  starting ──────── begin ───────▶ begun ─────── run ──────▶ running
//!  TERM, INT, USR1: exit at once    kept for later            to the thread that stops it
//!  HUP kept for later                                         HUP: read anew; USR2: state
//! ```
//!
//! # Invariants
//! I1: until `begin` the process may end at any time without loss: it has answered no request and
//!     changed nothing on disk. After `begin` a signal stops the server in order, even if it came
//!     early.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use server::Shared;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::failure::Failure;
use crate::reload::Reload;

static STATE: Mutex<State> =
    Mutex::new(State { stage: Stage::Starting, asked: None, is_reload_asked: false });

struct State {
    stage: Stage,
    /// The first signal that asked the server to stop.
    asked: Option<&'static str>,
    /// SIGHUP came before the server ran: its file may have been read already.
    is_reload_asked: bool,
}

enum Stage {
    Starting,
    Begun,
    Running(Running),
}

/// The state that signals act on.
pub struct Running {
    /// Receives the reason to stop.
    pub stop: mpsc::Sender<&'static str>,
    pub reload: Reload,
    pub shared: Arc<Shared>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles signals from now on.
pub fn watch() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
        .map_err(|error| Failure::Runtime(format!("cannot wait for signals: {error}")))?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(handle))
        .map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
    Ok(())
}

/// The server is about to use the data on disk (I1).
pub fn begin() {
    state().stage = Stage::Begun;
}

/// The server runs; a signal that came too early takes effect now.
pub fn run(mut running: Running) {
    let mut state = state();
    if std::mem::take(&mut state.is_reload_asked) {
        running.reload.run();
    }
    if let Some(reason) = state.asked {
        // The receiver is the caller, which reads it next.
        let _ = running.stop.send(reason);
    }
    state.stage = Stage::Running(running);
}

fn handle(signal: i32) {
    let mut state = state();
    let reason = match (signal, &mut state.stage) {
        (SIGHUP, Stage::Running(running)) => return running.reload.run(),
        (SIGUSR2, Stage::Running(running)) => return server::log_state(&running.shared),
        (SIGHUP, _) => return state.is_reload_asked = true,
        (SIGUSR2, _) => return info!("the server starts: there is no state to log yet"),
        (SIGTERM, _) => "SIGTERM",
        (SIGUSR1, _) => "SIGUSR1",
        _ => "SIGINT",
    };
    if matches!(state.stage, Stage::Starting) {
        info!(reason, "stopped before the server was ready");
        std::process::exit(0);
    }
    if state.asked.replace(reason).is_some() {
        warn!("second signal: leaving without draining");
        std::process::exit(1);
    }
    if let Stage::Running(running) = &state.stage {
        // The receiver is the main thread; when it is gone the process is ending anyway.
        let _ = running.stop.send(reason);
    }
}
