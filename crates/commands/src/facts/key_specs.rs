//! The key specifications of COMMAND INFO: which arguments are keys, and how the command uses each.
//!
//! ```text
//!  RENAME source target ─▶ [RW access delete, from 1] [OW update, from 2]
//!  MSET key value ...   ─▶ [OW update, from 1 to the last, every 2nd]
//! ```

use wire::resp::{ArgIter, CommandId as Id, Compares, Encoder, KeyUse, Spec};

/// How a command uses its `at`th key, given the command's arguments.
pub fn flags_of(spec: &Spec, at: usize, args: ArgIter<'_>) -> &'static [&'static str] {
    let uses = spec.key_uses;
    // After the name and the key, and after SET's value.
    let options = |skipped| args.skip(skipped);
    let tells = |arg: &[u8]| arg.eq_ignore_ascii_case(b"get") || Compares::read(arg).is_some();
    match uses.get(at).or(uses.last()) {
        // GET returns the value, and a comparison reveals whether it equals another.
        Some(_) if spec.id == Id::Set && options(3).any(tells) => KeyUse::CHANGE.flags,
        Some(_) if spec.id == Id::Set => KeyUse::REPLACE.flags,
        Some(_) if spec.id == Id::DelEx && options(2).any(tells) => KeyUse::TAKE.flags,
        Some(found) => found.flags,
        None => &[],
    }
}

/// The rights that a user needs on a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// To learn its contents.
    pub reads: bool,
    /// To write, change or delete it.
    pub writes: bool,
}

impl Access {
    /// Both.
    pub const ALL: Access = Access { reads: true, writes: true };

    /// The union of both.
    pub fn with(self, other: Access) -> Access {
        Access { reads: self.reads | other.reads, writes: self.writes | other.writes }
    }

    /// Whether this access includes `wanted`.
    pub fn covers(self, wanted: Access) -> bool {
        (self.reads || !wanted.reads) && (self.writes || !wanted.writes)
    }
}

/// The rights that a command needs on its `at`th key.
pub fn key_access(spec: &Spec, at: usize, args: ArgIter<'_>) -> Access {
    let flags = flags_of(spec, at, args);
    let writes = |flag: &&str| matches!(*flag, "insert" | "update" | "delete");
    Access { reads: flags.contains(&"access"), writes: flags.iter().any(writes) }
}

/// Appends the field of a command's entry.
pub fn encode(encoder: &mut Encoder<'_>, spec: &'static Spec) {
    if spec.keys.first == 0 {
        return encoder.set_header(0);
    }
    let uses = spec.key_uses;
    encoder.set_header(uses.len());
    let first = i64::from(spec.keys.first);
    let last = i64::from(spec.keys.last);
    for (key_use, index) in uses.iter().zip(first..) {
        // Each specification but the last of several covers one key; the last key is counted from
        // the first one, or from the end.
        let is_one = uses.len() > 1 && (last > 0 || index + 1 < first + uses.len() as i64);
        let last_from_first = if is_one {
            0
        } else if last < 0 {
            last
        } else {
            last - first
        };
        encoder.map_header(3 + usize::from(key_use.notes.is_some()));
        if let Some(notes) = key_use.notes {
            encoder.bulk(b"notes");
            encoder.bulk(notes.as_bytes());
        }
        encoder.bulk(b"flags");
        encoder.set_header(key_use.flags.len());
        for flag in key_use.flags {
            encoder.simple(flag);
        }
        let step = i64::from(spec.keys.step);
        if spec.keys.is_counted() {
            place(encoder, "begin_search", "index", &[("index", index - 1)]);
            let keynum = [("keynumidx", 0), ("firstkey", 1), ("keystep", step)];
            place(encoder, "find_keys", "keynum", &keynum);
            continue;
        }
        place(encoder, "begin_search", "index", &[("index", index)]);
        let range = [("lastkey", last_from_first), ("keystep", step), ("limit", 0)];
        place(encoder, "find_keys", "range", &range);
    }
}

fn place(encoder: &mut Encoder<'_>, name: &str, kind: &str, numbers: &[(&str, i64)]) {
    encoder.bulk(name.as_bytes());
    encoder.map_header(2);
    encoder.bulk(b"type");
    encoder.bulk(kind.as_bytes());
    encoder.bulk(b"spec");
    encoder.map_header(numbers.len());
    for (name, number) in numbers {
        encoder.bulk(name.as_bytes());
        encoder.integer(*number);
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::Protocol;

    use super::*;

    #[track_caller]
    fn check(id: Id, want: &str) {
        let mut out = Vec::new();
        encode(&mut Encoder::new(&mut out, Protocol::Resp2), id.spec());
        let text = String::from_utf8(out).unwrap();
        let is_header = |line: &&str| !line.starts_with(['$', '*']);
        assert_eq!(text.split("\r\n").filter(is_header).collect::<Vec<_>>().join(" ").trim(), want);
    }

    #[test]
    fn keys_stand_where_the_table_says() {
        let one = "find_keys type range spec lastkey :0 keystep :1 limit :0";
        check(Id::Ping, "");
        check(Id::Get, &format!("flags +RO +access begin_search type index spec index :1 {one}"));
        check(
            Id::MSet,
            "flags +OW +update begin_search type index spec index :1 \
             find_keys type range spec lastkey :-1 keystep :2 limit :0",
        );
        check(
            Id::RenameNx,
            &format!(
                "flags +RW +access +delete begin_search type index spec index :1 {one} \
                 flags +OW +insert begin_search type index spec index :2 {one}"
            ),
        );
        check(Id::ObjectFreq, &format!("flags +RO begin_search type index spec index :2 {one}"));
    }
}
