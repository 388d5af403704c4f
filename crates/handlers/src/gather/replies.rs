//! Requests and replies of one command.

use commands::reply::Shape;
use commands::rmw::Rmw;
use runtime::walks::Caller;
use store::Op;
use wire::Parsed;
use wire::resp::{Encoder, ErrorReply, Limits, Parser};

use super::Gather;

impl<'a> Gather<'_, 'a> {
    /// One request on one key.
    #[inline]
    pub fn single(&mut self, caller: Caller, key: &'a [u8], op: Op<'a, Rmw<'a>>, shape: Shape) {
        if key.len() > store::KEY_LEN_MAX_BYTES {
            return self.fail(caller, &ErrorReply::KeyTooLong);
        }
        let hash = self.core.hash(key);
        self.push(key, hash, op, caller.answer(shape));
    }

    /// A reply that does not come from the batch.
    pub fn say(&mut self, caller: Caller, encode: impl FnOnce(&mut Encoder<'_>)) {
        if caller.is_quiet {
            self.settle(caller.slot);
            return;
        }
        let protocol = self.core.connections[caller.slot].protocol();
        self.reply_to(caller.slot, |out| encode(&mut Encoder::new(out, protocol)));
    }

    /// An error reply.
    #[cold]
    pub fn fail(&mut self, caller: Caller, error: &ErrorReply) {
        self.core.counters().failed(caller.index, error.code());
        self.say_error(caller, error);
    }

    /// An error reply that repeats a command's name as it was typed.
    fn say_error(&mut self, caller: Caller, error: &ErrorReply) {
        if let ErrorReply::SubcommandSyntax(id) = *error {
            // Its limits were checked when it was framed.
            let parsed = Parser::default().parse(self.raw, &Limits::new(usize::MAX));
            if let Parsed::Done { value, .. } = parsed
                && let Some(typed) = value.get(1)
                && typed.eq_ignore_ascii_case(id.spec().own_name().as_bytes())
            {
                let error = ErrorReply::SubcommandTyped { id, typed };
                return self.say(caller, |encoder| encoder.error(&error));
            }
        }
        self.say(caller, |encoder| encoder.error(error));
    }
}
