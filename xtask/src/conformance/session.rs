//! Sessions: the bytes that one connection sends, step by step.

use super::Protocol;
use super::arguments::{KEYS, draw};
use super::commands::{Words, draw_command, expand};
use super::reply::multibulk;
use super::rng::Rng;

/// Steps of a session.
const STEPS: usize = 200;
/// Longer than any expiry that a session waits for.
const PAUSE_MS: u64 = 15;
/// Longer lines are refused.
const INLINE_MAX_BYTES: usize = 60_000;

/// One command of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub words: Words,
    /// Whether it is answered: CLIENT REPLY turns replies off.
    pub is_answered: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub commands: Vec<Command>,
    /// The bytes to send instead of the commands' multibulks.
    pub raw: Option<Vec<u8>>,
    /// After the replies.
    pub pause_ms: u64,
    /// Whether the server answers and closes.
    pub closes: bool,
}

impl Step {
    fn of(commands: Vec<Words>) -> Step {
        let commands =
            commands.into_iter().map(|words| Command { words, is_answered: true }).collect();
        Step { commands, raw: None, pause_ms: 0, closes: false }
    }

    pub fn bytes(&self) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let multibulks =
            self.commands.iter().map(|it| multibulk(it.words.iter().map(|word| &word[..])));
        multibulks.collect::<Vec<_>>().concat()
    }

    /// The command as typed text.
    pub fn shown(&self) -> String {
        if self.closes {
            return format!("(bytes) {}", self.bytes().escape_ascii());
        }
        let form = if self.raw.is_some() { "(inline) " } else { "" };
        let lines: Vec<String> = self.commands.iter().map(|it| inline(&it.words)).collect();
        let pause = match self.pause_ms {
            0 => String::new(),
            ms => format!("   (then {ms} ms)"),
        };
        format!("{form}{}{pause}", lines.join("  |  "))
    }
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn name_is(words: &Words, name: &str) -> bool {
    words[0].eq_ignore_ascii_case(name.as_bytes())
}

/// The session of a seed.
pub fn make(seed: u64, protocol: Protocol) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut maker = Maker { rng: &mut rng, is_queueing: false };
    let version = if protocol == Protocol::Resp3 { "3" } else { "2" };
    let mut steps = vec![Step::of(vec![words(&format!("HELLO {version}"))])];
    while steps.len() < STEPS {
        maker.push(&mut steps);
    }
    // What it leaves.
    steps.push(Step::of(vec![words("RESET")]));
    for key in KEYS {
        for name in ["GET", "PEXPIRETIME"] {
            steps.push(Step::of(vec![vec![name.into(), key.to_vec()]]));
        }
    }
    steps.push(Step::of(vec![words("KEYS *")]));
    steps
}

struct Maker<'r> {
    rng: &'r mut Rng,
    is_queueing: bool,
}

impl Maker<'_> {
    fn push(&mut self, steps: &mut Vec<Step>) {
        match self.rng.below(100) {
            0..=5 => {
                let count = 2 + self.rng.below(12);
                let commands = (0..count).map(|_| self.command()).collect();
                steps.push(Step::of(commands));
            }
            6..=8 => self.transaction(steps),
            9..=12 => {
                let words = self.command();
                let mut step = Step::of(vec![words]);
                let line = inline(&step.commands[0].words) + "\r\n";
                if line.len() < INLINE_MAX_BYTES {
                    step.raw = Some(line.into_bytes());
                }
                steps.push(step);
            }
            13 if !self.is_queueing => {
                let line = ["SET k v PX 1", "PSETEX k 1 v", "PEXPIRE k 1", "GETEX k PX 1"];
                let line = line[self.rng.below(line.len())];
                let mut step = Step::of(vec![self.expanded(line)]);
                step.pause_ms = PAUSE_MS;
                steps.push(step);
            }
            14 if !self.is_queueing => steps.push(self.silence()),
            15 if !self.is_queueing && self.rng.one_in(4) => steps.push(self.broken()),
            _ => {
                let words = self.command();
                steps.push(Step::of(vec![words]));
            }
        }
    }

    fn expanded(&mut self, template: &str) -> Words {
        let mut words = Words::new();
        expand(template, self.rng, &mut words);
        words
    }

    /// A command that is allowed here.
    fn command(&mut self) -> Words {
        loop {
            let words = draw_command(self.rng);
            // A transaction's reply would be in another protocol version than the one it was queued
            // in.
            let changes_connection = ["HELLO", "AUTH"].iter().any(|name| name_is(&words, name));
            if self.is_queueing && changes_connection {
                continue;
            }
            return words;
        }
    }

    fn transaction(&mut self, steps: &mut Vec<Step>) {
        if self.rng.one_in(3) {
            steps.push(Step::of(vec![self.expanded("WATCH k k*")]));
            if self.rng.one_in(2) {
                let words = self.command();
                steps.push(Step::of(vec![words]));
            }
        }
        let mut commands = vec![words("MULTI")];
        self.is_queueing = true;
        for _ in 0..self.rng.below(8) {
            commands.push(self.command());
        }
        if self.rng.one_in(20) {
            commands.push(words(["MULTI", "WATCH a", "EXEC x"][self.rng.below(3)]));
        }
        commands.push(words(if self.rng.one_in(6) { "DISCARD" } else { "EXEC" }));
        self.is_queueing = false;
        // A second one, for whatever the first has left.
        if self.rng.one_in(4) {
            commands.push(words(["EXEC", "DISCARD", "UNWATCH"][self.rng.below(3)]));
        } else {
            commands.push(words("RESET"));
        }
        if self.rng.one_in(2) {
            steps.push(Step::of(commands));
        } else {
            steps.extend(commands.into_iter().map(|words| Step::of(vec![words])));
        }
    }

    /// Commands without replies, because of CLIENT REPLY.
    fn silence(&mut self) -> Step {
        let set = self.expanded("SET k v");
        let lines = if self.rng.one_in(2) {
            vec![(words("CLIENT REPLY SKIP"), false), (set, false), (words("PING"), true)]
        } else {
            let off = (words("CLIENT REPLY OFF"), false);
            let bad = (words("CLIENT REPLY SKIP"), false);
            vec![off, (set, false), bad, (words("CLIENT REPLY ON"), true), (words("PING"), true)]
        };
        let mut step = Step::of(Vec::new());
        step.commands =
            lines.into_iter().map(|(words, is_answered)| Command { words, is_answered }).collect();
        step
    }

    /// Input that is not a request.
    fn broken(&mut self) -> Step {
        let broken: [&[u8]; 11] = [
            b"*x\r\n",
            b"*1\r\n:3\r\n",
            b"*1\r\n$536870913\r\n",
            b"*1\r\n$-5\r\n",
            b"GET \"a\r\n",
            b"GET 'a\r\n",
            b"GET \"a\"b\r\n",
            b"*2\r\n$3\r\nGET\r\n$x\r\n",
            b"*1\r\n$01\r\nA\r\n",
            b"*1\r\n$ 4\r\nPING\r\n",
            b"*99999999999999999999\r\n",
        ];
        let mut raw = self.rng.pick(&broken).to_vec();
        if self.rng.one_in(3) {
            let empty: [&[u8]; 3] = [b"*0\r\n", b"\r\n", b"*-1\r\n"];
            raw = [self.rng.pick(&empty), &raw].concat();
        }
        let junk = draw("k", self.rng).unwrap_or_default();
        let before = multibulk([&b"GET"[..], &junk].into_iter());
        Step { commands: Vec::new(), raw: Some([before, raw].concat()), pause_ms: 0, closes: true }
    }
}

/// The words as an inline command, quoted where they must be.
fn inline(words: &Words) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = !word.is_empty() && word.iter().all(|byte| byte.is_ascii_alphanumeric());
        let mut text = String::new();
        if is_plain {
            text.extend(word.iter().map(|byte| char::from(*byte)));
            return text;
        }
        text.push('"');
        for byte in word {
            match byte {
                b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
                b' '..=b'~' => text.push(char::from(*byte)),
                byte => text += &format!("\\x{byte:02x}"),
            }
        }
        text.push('"');
        text
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_depends_on_its_seed_alone() {
        assert_eq!(make(7, Protocol::Resp2), make(7, Protocol::Resp2));
        assert_ne!(make(7, Protocol::Resp2), make(8, Protocol::Resp2));
    }

    #[test]
    fn words_are_quoted_where_they_must_be() {
        let words = vec![b"SET".to_vec(), b"a b".to_vec(), b"".to_vec(), b"\"\xff".to_vec()];
        assert_eq!(inline(&words), r#"SET "a b" "" "\"\xff""#);
    }
}
