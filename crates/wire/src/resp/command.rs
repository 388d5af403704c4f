//! `Command`: every request that a RESP client can make, typed, borrowing the bytes it arrived in.
//!
//! ```text
//!  Command ─┬─ String(StringCommand) ── commands/strings.rs     each group in a file of its own:
//!           ├─ Bit(BitCommand) ──────── commands/bits.rs        its types, its parser
//!           ├─ Key(KeyCommand) ──────── commands/keys.rs
//!           └─ ...
//! ```

use super::args::{ArgIter, Args, QuotedLine};
use super::commands::{
    BitCommand, ClientCommand, ClusterCommand, ConnectionCommand, KeyCommand, ServerCommand,
    StringCommand, TransactionCommand, from_args,
};
use super::table::{CommandId, Handling};

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// One request. Arity and options are checked; the server checks key and value lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// An empty line, `*0` or `*-1`: no reply.
    Empty,
    /// An inline command with escapes: rewrite it and parse the result in its place.
    Quoted(QuotedLine<'a>),
    /// A command on strings.
    String(StringCommand<'a>),
    /// A command on the bits of a string.
    Bit(BitCommand<'a>),
    /// A command on keys of any type.
    Key(KeyCommand<'a>),
    /// A command about the server or its whole store.
    Server(ServerCommand<'a>),
    /// A command of transactions.
    Transaction(TransactionCommand<'a>),
    /// A command about its connection.
    Connection(ConnectionCommand<'a>),
    /// A subcommand of CLIENT.
    Client(ClientCommand<'a>),
    /// A command about the cluster, or of a client of one.
    Cluster(ClusterCommand<'a>),
    /// A command of operators, with arguments that are parsed where it runs.
    Operator { id: CommandId, args: ArgIter<'a> },
    /// `CLIENT|CLUSTER|COMMAND|CONFIG|OBJECT|MEMORY|... HELP`: answer [`CommandId::help_lines`].
    Help { id: CommandId },
}

// Passed by value from the parser to the code that runs it: one cache line.
const _: () = assert!(size_of::<Command<'_>>() <= 64);

impl<'a> Command<'a> {
    /// Which command this is, for statistics and flags; `None` for [`Command::Empty`] and
    /// [`Command::Quoted`].
    #[inline]
    pub fn id(&self) -> Option<CommandId> {
        Some(match self {
            Command::Empty | Command::Quoted(_) => return None,
            Command::String(command) => command.id(),
            Command::Bit(command) => command.id(),
            Command::Key(command) => command.id(),
            Command::Server(command) => command.id(),
            Command::Transaction(command) => command.id(),
            Command::Connection(command) => command.id(),
            Command::Client(command) => command.id(),
            Command::Cluster(command) => command.id(),
            Command::Operator { id, .. } | Command::Help { id } => *id,
        })
    }

    /// Whether its row has these properties.
    pub fn is_handled(&self, how: Handling) -> bool {
        self.id().is_some_and(|id| id.spec().handling.contains(how))
    }

    /// Parses the command in `args`.
    pub fn from_args(args: &Args<'a>) -> Result<Command<'a>, super::CommandError<'a>> {
        from_args(args)
    }
}
