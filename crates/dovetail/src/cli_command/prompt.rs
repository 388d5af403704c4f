//! The prompt: reads lines from standard input until its end and runs each as an order.
//!
//! At a terminal it prints a prompt and shows errors between the replies. Otherwise it writes each
//! error to standard error with its line number, and any error makes the exit status 1.
//!
//! It has no line editor: the crates for that are larger than this command, and `rlwrap` adds one.

use std::io::{BufRead, IsTerminal, Write};

use wire::resp::split_words;

use super::reply::{Form, Reply};
use super::session::{NoReply, Session};
use crate::failure::{Failure, print, print_bytes};

/// Reads and answers one line after another.
pub fn run(session: &mut Session, form: Form) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let is_terminal = input.is_terminal();
    let prompt = format!("{}> ", session.name());
    let (mut line, mut out) = (Vec::new(), Vec::new());
    let (mut line_number, mut failed_count) = (0u64, 0u64);
    loop {
        if is_terminal {
            print(&prompt)?;
        }
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        let len_bytes =
            read.map_err(|error| Failure::Runtime(format!("cannot read standard input: {error}")))?;
        if len_bytes == 0 {
            break;
        }
        line_number += 1;
        out.clear();
        match answer(session, &line) {
            Ok(Answer::Nothing) => continue,
            Ok(Answer::Quit) => break,
            Ok(Answer::Reply(Reply::Error(error))) | Err(error) if is_terminal => {
                out.extend(format!("(error) {error}\n").bytes());
            }
            Ok(Answer::Reply(Reply::Error(error))) | Err(error) => {
                failed_count += 1;
                // If standard error is closed, the message cannot be shown at all.
                let _ = writeln!(std::io::stderr(), "dovetail: line {line_number}: {error}");
            }
            Ok(Answer::Reply(reply)) => reply.write(form, &mut out),
        }
        print_bytes(&out)?;
    }
    if failed_count > 0 { Err(Failure::Silent(1)) } else { Ok(()) }
}

const UNBALANCED: &str = "unbalanced quotes: close each before a blank or the line's end";

enum Answer {
    /// The answer to an empty line.
    Nothing,
    /// The answer to `quit` and `exit`.
    Quit,
    Reply(Reply),
}

fn answer(session: &mut Session, line: &[u8]) -> Result<Answer, String> {
    let words = split_words(line).ok_or(UNBALANCED)?;
    match words.as_slice() {
        [] => return Ok(Answer::Nothing),
        [word] if [&b"quit"[..], b"exit"].contains(&&word.to_ascii_lowercase()[..]) => {
            return Ok(Answer::Quit);
        }
        _ => {}
    }
    session.ask(&words).map(Answer::Reply).map_err(|error| match error {
        NoReply::Words(reason) | NoReply::Asking(reason) => reason,
    })
}
