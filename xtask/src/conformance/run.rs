//! Runs a session against both servers, and compares the replies.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::commands::Words;
use super::differences::Hits;
use super::reply::{Reply, Wire};
use super::servers::Ports;
use super::session::Step;
use super::shrink::shrink;

/// Two clocks are read one after the other: answers about times may differ by this much.
const CLOCK_MS: i64 = 3_000;

/// The most attempts to shrink a session.
const SHRINK_MAX: usize = 400;

/// The runner of sessions.
pub struct Runner<'r> {
    pub ports: Ports,
    pub hits: &'r mut Hits,
}

/// The first difference of a session.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The step.
    pub step: usize,
    pub words: Words,
    pub ours: Reply,
    pub theirs: Reply,
}

/// A shrunk session that differs.
pub struct Smallest {
    session: Vec<Step>,
    difference: Difference,
}

impl fmt::Display for Smallest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "difference:")?;
        for step in &self.session[..=self.difference.step] {
            writeln!(out, "  {}", step.shown())?;
        }
        let words = self.difference.words.iter().map(|word| word.escape_ascii().to_string());
        writeln!(out, "of {}", words.collect::<Vec<_>>().join(" "))?;
        writeln!(out, "  ours   {}", self.difference.ours.shown())?;
        write!(out, "  theirs {}", self.difference.theirs.shown())
    }
}

/// The state of the transaction, as known to both.
#[derive(Default)]
struct Queue {
    commands: Vec<Words>,
}

impl Runner<'_> {
    /// The first difference, if there is one.
    pub fn compare(&mut self, session: &[Step]) -> Result<Option<Difference>> {
        let mut ours = Wire::connect(self.ports.ours)?;
        let mut theirs = Wire::connect(self.ports.theirs)?;
        for wire in [&mut ours, &mut theirs] {
            wire.ask(&[b"FLUSHALL"])?;
        }
        let mut queue = Queue::default();
        for (index, step) in session.iter().enumerate() {
            let bytes = step.bytes();
            ours.send(&bytes);
            theirs.send(&bytes);
            let at = |words: &Words, ours, theirs| {
                Ok(Some(Difference { step: index, words: words.clone(), ours, theirs }))
            };
            let mut is_closed = false;
            if step.closes {
                let (left, right) = (to_end(&mut ours)?, to_end(&mut theirs)?);
                if left != right {
                    let words = vec![b"(bytes)".to_vec()];
                    return at(&words, Reply::Many(b'*', left), Reply::Many(b'*', right));
                }
                is_closed = true;
            }
            for command in step.commands.iter().filter(|it| it.is_answered) {
                if is_closed {
                    break;
                }
                let (left, right) = (ours.reply()?, theirs.reply()?);
                let is_same = self.is_same(&mut queue, &command.words, &left, &right);
                if !is_same || left.is_nothing() {
                    return at(&command.words, left, right);
                }
                is_closed |= left == Reply::Closed;
            }
            if is_closed {
                ours = Wire::connect(self.ports.ours)?;
                theirs = Wire::connect(self.ports.theirs)?;
                queue = Queue::default();
            }
            if step.pause_ms > 0 {
                std::thread::sleep(Duration::from_millis(step.pause_ms));
            }
        }
        Ok(None)
    }

    /// Whether two replies are equal, or differ as intended.
    fn is_same(&mut self, queue: &mut Queue, words: &Words, ours: &Reply, theirs: &Reply) -> bool {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        let queued = Reply::One(b"+QUEUED\r\n".to_vec());
        if *ours == queued && *theirs == queued {
            queue.commands.push(words.clone());
            return true;
        }
        let commands = if is("EXEC") || is("DISCARD") || is("RESET") {
            std::mem::take(queue)
        } else {
            Queue::default()
        }
        .commands;
        match (ours, theirs) {
            (Reply::Many(_, left), Reply::Many(_, right))
                if is("EXEC") && left.len() == commands.len() && left.len() == right.len() =>
            {
                let pairs = left.iter().zip(right);
                pairs.zip(&commands).all(|((left, right), words)| self.is_equal(words, left, right))
            }
            _ => self.is_equal(words, ours, theirs),
        }
    }

    fn is_equal(&mut self, words: &Words, ours: &Reply, theirs: &Reply) -> bool {
        ours == theirs
            || is_equal_loosely(words, ours, theirs)
            || self.hits.explain(words, ours, theirs)
    }

    /// Shrinks a session to fewer steps with the same difference.
    pub fn shrink(&mut self, session: Vec<Step>, first: Difference) -> Result<Smallest> {
        let (session, difference) = shrink(
            session,
            first,
            |found| found.step,
            SHRINK_MAX,
            |fewer, difference| {
                let found = self.compare(fewer)?;
                Ok(found.filter(|found| found.words == difference.words))
            },
        )?;
        Ok(Smallest { session, difference })
    }
}

/// Reads everything until the server closes.
fn to_end(wire: &mut Wire) -> Result<Vec<Reply>> {
    let mut replies = Vec::new();
    loop {
        let reply = wire.reply()?;
        let is_end = reply == Reply::Closed || reply.is_nothing();
        replies.push(reply);
        if is_end {
            return Ok(replies);
        }
    }
}

/// Normalises answers that depend on a clock, on chance or on an order that is not promised.
fn is_equal_loosely(words: &Words, ours: &Reply, theirs: &Reply) -> bool {
    let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
    let is_near = |unit_ms: i64| match (ours.integer(), theirs.integer()) {
        (Some(ours), Some(theirs)) if ours > 0 && theirs > 0 => {
            (ours - theirs).abs() * unit_ms <= CLOCK_MS
        }
        _ => false,
    };
    let has_value = |reply: &Reply| {
        matches!(reply, Reply::One(it) if it.starts_with(b"$"))
            && *reply != Reply::One(b"$-1\r\n".to_vec())
    };
    if is("TTL") || is("EXPIRETIME") {
        is_near(1000)
    } else if is("PTTL") || is("PEXPIRETIME") {
        is_near(1)
    } else if is("KEYS") || is("COMMAND") {
        ours.clone().sorted() == theirs.clone().sorted()
    } else if is("RANDOMKEY") {
        has_value(ours) && has_value(theirs)
    } else if is("SCAN") {
        is_same_scan(words, ours, theirs)
    } else {
        false
    }
}

/// Cursors differ by server; a walk that ends at once must have met the same keys.
fn is_same_scan(words: &Words, ours: &Reply, theirs: &Reply) -> bool {
    let is_made_up = words.get(1).is_none_or(|cursor| cursor != b"0");
    let (Reply::Many(_, left), Reply::Many(_, right)) = (ours, theirs) else {
        // The ordered index knows its cursors, and no others.
        let unknown = Reply::One(b"-ERR invalid cursor\r\n".to_vec());
        return is_made_up && *ours == unknown && matches!(theirs, Reply::Many(..));
    };
    let is_over = |items: &[Reply]| items.first() == Some(&Reply::One(b"$1\r\n0\r\n".to_vec()));
    match (is_over(left), is_over(right)) {
        (true, true) if !is_made_up => ours.clone().sorted() == theirs.clone().sorted(),
        _ => left.len() == 2 && right.len() == 2,
    }
}
