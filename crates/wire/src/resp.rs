//! RESP2, RESP3 and inline commands as Redis 7.0 understands them; see docs/formats/resp.md.
//!
//! ```text
//!  input ──▶ parse_hot ──▶ StringCommand::Get | Set            (most requests end here)
//!              │ not one of these
//!              └──▶ Parser ──▶ Args ──▶ Command::from_args ──▶ Command | CommandError
//! ```

mod args;
mod bits;
mod command;
mod commands;
mod compare;
mod discard;
pub mod dump;
mod error;
mod error_code;
mod foreign;
mod glob;
mod limits;
pub mod number;
mod parser;
mod protocol_error;
mod range;
mod reply;
mod table;

pub use args::{ArgIter, ArgPlace, Args, Keys, Pairs, QuotedLine};
pub use bits::{
    BitField, BitOperation, BitRange, BitSearch, BitUnit, FieldAction, FieldActions, LcsRequest,
    LcsWants, Overflow, read_offset,
};
pub use command::Command;
pub use commands::{
    AuthRequest, BitCommand, ClientCommand, ClientFilter, ClientQuery, ClusterCommand, CommandList,
    ConfigPairs, ConnectionCommand, Copy, ExpireCondition, ExpireTime, ExpireTtl, Expiry,
    FlushMode, HelloRequest, InvalidTime, KeyCommand, KillSkipMe, MSetEx, NextCommand, PauseMode,
    ReplyMode, Restore, ScanRequest, ServerCommand, SetCommand, SetCondition, ShutdownRequest,
    StringCommand, TransactionCommand, Unit, asked_command, keys_asked, next_command,
};
pub use compare::{Compares, Comparison, DIGEST_DIGITS, SetIf};
pub use discard::Discard;
pub use error::{CommandError, Elsewhere, ErrorReply};
pub use error_code::ErrorCode;
pub use foreign::is_foreign_command;
pub use glob::{Glob, NameGlob, PatternError, STEPS_PER_BYTE, glob_prefix};
pub use limits::Limits;
pub use parser::{Parser, parse_hot, split_words};
pub use protocol_error::ProtocolError;
pub use range::{LexBound, RangeRequest};
pub use reply::{Encoder, Protocol};
pub use table::{CommandId, Flags, Group, Handling, KeySpec, KeyUse, Spec};
