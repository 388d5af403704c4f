//! Per-key linearizability of recorded concurrent histories, of the embedded store and of the real
//! binary under every preset, over every protocol.
//!
//! | module | owns |
//! |---|---|
//! | `value`, `model` | a key as a sequential object |
//! | `check` | the search for an order that explains all answers |
//! | `load`, `clients`, `server`, `history` | what each client asks, of what, and its record |
//! | `mover` | changes of the server's threads meanwhile |
//! | `presets`, `helping`, `embedded` | the tests |

mod check;
mod clients;
mod embedded;
mod helping;
mod history;
mod load;
mod model;
mod mover;
mod presets;
mod server;
mod value;
