//! Parses one request at the front of the input. The parser keeps no state between two calls: the
//! header contains all lengths.

use super::super::command::Limits;
use super::{HEADER_BYTES, Head, REQUEST_MAGIC, Request, Status, Verb};
use crate::Parsed;

/// The longest name of a mechanism, as in memcached.
const MECHANISM_MAX_BYTES: usize = 32;

/// The longest message of a mechanism; memcached accepts half of a slab page.
const MESSAGE_MAX_BYTES: usize = 16 << 10;

/// The login state of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No client has to log in: SASL is unknown.
    Free,
    /// A client that has not logged in.
    Stranger,
    /// A client that has logged in.
    Known,
}

/// The limits and rights that the parser checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The maximum of a value, inclusive.
    pub value_max_bytes: usize,
    /// The login state of the client.
    pub access: Access,
}

/// A request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The fields that the response repeats.
    pub head: Head,
    /// The reason, with the status's own text.
    pub status: Status,
    /// Bytes after `consumed_bytes` to be skipped without parsing: the value of a refused command.
    pub swallow_bytes: u64,
    /// The connection ends with the response.
    pub closes: bool,
    /// memcached deletes the old value of a set that it refuses for its size.
    pub delete_key: Option<&'a [u8]>,
}

/// The input is not a request: memcached closes without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMagic;

/// The result of [`next_request`].
pub type NextRequest<'a> = Parsed<Result<Request<'a>, Refusal<'a>>, InvalidMagic>;

/// The fixed part of a request.
struct Header {
    head: Head,
    key_len: usize,
    extras_len: usize,
    body_len: u64,
    cas: u64,
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [_, opcode, key0, key1, extras, _, _, _, rest @ ..] = *bytes;
        let [b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = rest;
        Header {
            head: Head { opcode, opaque: [o0, o1, o2, o3] },
            key_len: u16::from_be_bytes([key0, key1]).into(),
            extras_len: extras.into(),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]).into(),
            cas: u64::from_be_bytes(cas),
        }
    }

    /// The offset of the value.
    fn value_at(&self) -> usize {
        HEADER_BYTES + self.extras_len + self.key_len
    }

    fn value_len(&self) -> u64 {
        self.body_len - (self.extras_len + self.key_len) as u64
    }

    /// Whether extras, key and value have the lengths that the verb demands (I1).
    fn fits(&self, verb: Verb) -> bool {
        let (extras, has_key) = (self.extras_len, self.key_len > 0);
        let ends_here = self.value_len() == 0;
        match verb {
            Verb::Get | Verb::GetKey | Verb::Delete => extras == 0 && has_key && ends_here,
            // memcached ignores the bytes after the key of these: they are the next request.
            Verb::Touch | Verb::GetAndTouch | Verb::GetKeyAndTouch => extras == 4 && has_key,
            Verb::Stat => extras == 0,
            Verb::Set | Verb::Add | Verb::Replace => extras == 8 && has_key,
            Verb::Append | Verb::Prepend => extras == 0 && has_key,
            Verb::Authenticate | Verb::Step => extras == 0 && has_key,
            Verb::Increment | Verb::Decrement => extras == 20 && has_key && ends_here,
            Verb::Flush => matches!(extras, 0 | 4) && !has_key && ends_here,
            Verb::Noop | Verb::Version | Verb::Quit | Verb::ListMechanisms => self.body_len == 0,
        }
    }

    #[cold]
    fn refuse<'a>(&self, status: Status) -> Refusal<'a> {
        let head = self.head;
        Refusal { head, status, swallow_bytes: 0, closes: false, delete_key: None }
    }

    #[cold]
    fn refuse_and_close<'a>(&self, status: Status) -> Refusal<'a> {
        Refusal { closes: true, ..self.refuse(status) }
    }

    /// Refuses a request whose value is skipped.
    #[cold]
    fn refuse_value<'a>(&self, status: Status) -> Refusal<'a> {
        Refusal { swallow_bytes: self.value_len(), ..self.refuse(status) }
    }

    /// Checks in the same order as memcached.
    #[inline]
    fn check<'a>(&self, key: &'a [u8], rules: &Rules) -> Result<(Verb, bool), Refusal<'a>> {
        if (self.extras_len + self.key_len) as u64 > self.body_len {
            return Err(self.refuse_and_close(Status::UnknownCommand));
        }
        let asked = Verb::of(self.head.opcode);
        let is_for_all = asked.is_some_and(|(verb, _)| verb.is_for_all());
        if rules.access == Access::Stranger && !is_for_all {
            return Err(self.refuse_and_close(Status::AuthError));
        }
        if self.key_len > Limits::KEY_MAX_BYTES {
            return Err(self.refuse_and_close(Status::Invalid));
        }
        let Some((verb, is_quiet)) = asked else {
            return Err(self.refuse_value(Status::UnknownCommand));
        };
        if !self.fits(verb) {
            return Err(self.refuse_and_close(Status::Invalid));
        }
        self.check_value(verb, key, rules)?;
        Ok((verb, is_quiet))
    }

    #[inline]
    fn check_value<'a>(&self, verb: Verb, key: &'a [u8], rules: &Rules) -> Result<(), Refusal<'a>> {
        let value_len = self.value_len();
        match verb {
            Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend
                if value_len > rules.value_max_bytes as u64 =>
            {
                let delete_key = (verb == Verb::Set).then_some(key);
                Err(Refusal { delete_key, ..self.refuse_value(Status::TooLarge) })
            }
            Verb::ListMechanisms | Verb::Authenticate | Verb::Step
                if rules.access == Access::Free =>
            {
                Err(self.refuse_value(Status::UnknownCommand))
            }
            Verb::Authenticate | Verb::Step if key.len() > MECHANISM_MAX_BYTES => {
                Err(self.refuse_value(Status::Invalid))
            }
            Verb::Authenticate | Verb::Step if value_len > MESSAGE_MAX_BYTES as u64 => {
                Err(self.refuse_value(Status::OutOfMemory))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a request of that verb has a value.
fn has_value(verb: Verb) -> bool {
    use Verb::{Add, Append, Authenticate, Prepend, Replace, Set, Step};
    matches!(verb, Set | Add | Replace | Append | Prepend | Authenticate | Step)
}

/// Parses the request at the front of `input`, which starts where the last one ended.
#[inline]
pub fn next_request<'a>(input: &'a [u8], rules: &Rules) -> NextRequest<'a> {
    let Some(fixed) = input.first_chunk::<HEADER_BYTES>() else {
        return Parsed::NeedMore { at_least_bytes: HEADER_BYTES };
    };
    if fixed[0] != REQUEST_MAGIC {
        return Parsed::Bad(InvalidMagic);
    }
    let header = Header::read(fixed);
    let value_at = header.value_at();
    let Some(front) = input.get(HEADER_BYTES..value_at) else {
        return Parsed::NeedMore { at_least_bytes: value_at };
    };
    let (extras, key) = front.split_at(header.extras_len);
    let (verb, is_quiet) = match header.check(key, rules) {
        Ok(asked) => asked,
        Err(refusal) => return Parsed::Done { value: Err(refusal), consumed_bytes: value_at },
    };
    let value_len = if has_value(verb) { header.value_len() as usize } else { 0 };
    let end = value_at + value_len;
    let Some(value) = input.get(value_at..end) else {
        return Parsed::NeedMore { at_least_bytes: end };
    };
    let (head, cas) = (header.head, header.cas);
    let request = Request { head, verb, is_quiet, cas, extras, key, value };
    Parsed::Done { value: Ok(request), consumed_bytes: end }
}
