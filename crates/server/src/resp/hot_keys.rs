//! HOTKEYS GET: the keys that are asked for most, as sampled all the time.

use wire::resp::{ArgIter, Encoder, ErrorReply};

use super::Caller;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::hot::{HotKey, HotSetSize};

const NOT_SAMPLED: &str = "no keys are sampled: this server runs to completion; start it with \
                           --cr-threads 1 or more below --threads";
const SAMPLING_OFF: &str = "no keys are sampled: start the server with --hot-set auto";
const SESSIONS: &str = "keys are sampled all the time: HOTKEYS GET needs no START";

/// Of keys that were asked for at all.
const SHOWN_MAX: usize = 16;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// HOTKEYS.
    pub(super) fn hot_keys(&mut self, caller: Caller, mut args: ArgIter<'a>) {
        self.settle(caller.slot);
        let word = args.next().unwrap_or_default();
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match args.next() {
            None if is("get") => {}
            _ if is("start") || is("stop") || is("reset") => {
                return self.fail(caller, &ErrorReply::Other(SESSIONS));
            }
            _ => return self.fail(caller, &ErrorReply::Syntax),
        }
        let shared = &self.core.shared;
        let Some(keys) = shared.hot_keys() else {
            let is_off = shared.config().hot_set == HotSetSize::Off;
            let text = if is_off { SAMPLING_OFF } else { NOT_SAMPLED };
            return self.fail(caller, &ErrorReply::Other(text));
        };
        let (published, calls_per_second) = (keys.now(), shared.calls_per_second());
        let listed = &published.listed()[..published.listed().len().min(SHOWN_MAX)];
        self.say(caller, |encoder| {
            encoder.array_header(listed.len());
            listed.iter().for_each(|key| encode(encoder, key, calls_per_second));
        });
    }
}

fn encode(encoder: &mut Encoder<'_>, key: &HotKey, calls_per_second: u64) {
    encoder.map_header(3);
    encoder.bulk(b"key");
    let cut_bytes = key.len_bytes - key.head.len().min(key.len_bytes);
    if cut_bytes == 0 {
        encoder.bulk(&key.head);
    } else {
        let tail = format!("... ({cut_bytes} more bytes)");
        encoder.bulk(&[&*key.head, tail.as_bytes()].concat());
    }
    encoder.bulk(b"db");
    encoder.integer(0);
    encoder.bulk(b"qps");
    encoder.integer((key.share_ratio * calls_per_second as f64).round() as i64);
}

#[cfg(test)]
mod tests {
    use wire::resp::Protocol;

    use super::*;

    #[test]
    fn a_key_is_shown_with_its_rate_and_cut_if_only_its_head_is_known() {
        let check = |len_bytes, want: &str| {
            let key = HotKey { head: b"ab".as_slice().into(), len_bytes, share_ratio: 0.25 };
            let mut out = Vec::new();
            encode(&mut Encoder::new(&mut out, Protocol::Resp3), &key, 1000);
            let text = String::from_utf8_lossy(&out).into_owned();
            assert_eq!(
                text,
                format!("%3\r\n$3\r\nkey\r\n{want}\r\n$2\r\ndb\r\n:0\r\n$3\r\nqps\r\n:250\r\n")
            );
        };
        check(2, "$2\r\nab");
        check(9, "$20\r\nab... (7 more bytes)");
    }
}
