//! Prints replies as redis-cli does: raw if the output is not a terminal, with types if it is.
//!
//! ```text
//!            raw              typed
//!  bulk      as it is         "quoted \x00"
//!  integer   1                (integer) 1
//!  nil       an empty line    (nil)
//!  array     a line for each  1) ... 2) ..., or (empty array); deeper ones further right
//!  error     as it is         (error) ...
//! ```

use std::borrow::Cow;
use std::io::Write;

use migrate::resp;

/// How a reply is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For programs: raw values.
    Raw,
    /// For people: types and quotes.
    Typed,
}

/// The reply to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status word of the protocol.
    Status(Cow<'static, str>),
    /// An error message of the server.
    Error(String),
    /// No value.
    Nil,
    /// A number.
    Integer(i64),
    /// An item's version, printed as a number.
    Version(u64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
    /// Text for people in either form.
    Lines(Vec<String>),
}

impl Reply {
    /// Appends the reply and a line end.
    pub fn write(&self, form: Form, out: &mut Vec<u8>) {
        self.write_at(form, 0, out);
    }

    /// The same for a reply nested in an array, whose numbering begins `indent` blanks from the
    /// left.
    fn write_at(&self, form: Form, indent: usize, out: &mut Vec<u8>) {
        match (self, form) {
            (Reply::Array(items), Form::Typed) if items.is_empty() => {
                out.extend_from_slice(b"(empty array)\n");
            }
            (Reply::Array(items), _) => {
                let number_width = items.len().to_string().len();
                for (index, item) in items.iter().enumerate() {
                    if form == Form::Typed {
                        let blanks = if index == 0 { 0 } else { indent };
                        append(out, format_args!("{:blanks$}{:number_width$}) ", "", index + 1));
                    }
                    item.write_at(form, indent + number_width + 2, out);
                }
                if items.is_empty() {
                    out.push(b'\n');
                }
            }
            (Reply::Lines(lines), _) => lines.iter().for_each(|line| {
                append(out, format_args!("{line}\n"));
            }),
            _ => {
                self.write_one(form, out);
                out.push(b'\n');
            }
        }
    }

    fn write_one(&self, form: Form, out: &mut Vec<u8>) {
        let mark = |mark: &'static str| if form == Form::Typed { mark } else { "" };
        match self {
            Reply::Status(word) => out.extend_from_slice(word.as_bytes()),
            Reply::Error(words) => append(out, format_args!("{}{words}", mark("(error) "))),
            Reply::Nil => out.extend_from_slice(mark("(nil)").as_bytes()),
            Reply::Integer(number) => append(out, format_args!("{}{number}", mark("(integer) "))),
            Reply::Version(number) => append(out, format_args!("{}{number}", mark("(integer) "))),
            Reply::Bulk(bytes) if form == Form::Typed => quote(bytes, out),
            Reply::Bulk(bytes) => out.extend_from_slice(bytes),
            Reply::Array(_) | Reply::Lines(_) => debug_assert!(false, "written item by item"),
        }
    }
}

impl From<resp::Reply> for Reply {
    fn from(reply: resp::Reply) -> Reply {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match reply {
            resp::Reply::Simple(word) => Reply::Status(text(word).into()),
            resp::Reply::Error(words) => Reply::Error(text(words)),
            resp::Reply::Integer(number) => Reply::Integer(number),
            resp::Reply::Bulk(Some(bytes)) => Reply::Bulk(bytes),
            resp::Reply::Array(Some(items)) => {
                Reply::Array(items.into_iter().map(Reply::from).collect())
            }
            resp::Reply::Bulk(None) | resp::Reply::Array(None) => Reply::Nil,
        }
    }
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes all that is written to it.
    let _ = out.write_fmt(text);
}

/// Quotes the bytes so that `split_words` reads the same bytes back.
fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            other => append(out, format_args!("\\x{other:02x}")),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reply: &Reply, want_raw: &[u8], want_typed: &str) {
        for (form, want) in [(Form::Raw, want_raw), (Form::Typed, want_typed.as_bytes())] {
            let mut out = Vec::new();
            reply.write(form, &mut out);
            assert_eq!(out.escape_ascii().to_string(), want.escape_ascii().to_string());
        }
    }

    fn bulk(bytes: &[u8]) -> Reply {
        Reply::Bulk(bytes.to_vec())
    }

    #[test]
    fn single_replies_are_printed_as_redis_cli_does() {
        check(&Reply::Status("OK".into()), b"OK\n", "OK\n");
        check(&Reply::Nil, b"\n", "(nil)\n");
        check(&Reply::Integer(-7), b"-7\n", "(integer) -7\n");
        check(
            &Reply::Version(u64::MAX),
            b"18446744073709551615\n",
            "(integer) 18446744073709551615\n",
        );
        check(&bulk(b"hello"), b"hello\n", "\"hello\"\n");
        check(
            &bulk(b"a\0\"\\\n\x07\xff"),
            b"a\0\"\\\n\x07\xff\n",
            "\"a\\x00\\\"\\\\\\n\\a\\xff\"\n",
        );
    }

    #[test]
    fn arrays_are_lines_or_numbered_lines() {
        check(&Reply::Array(Vec::new()), b"\n", "(empty array)\n");
        check(&Reply::Array(vec![bulk(b"a"), Reply::Nil]), b"a\n\n", "1) \"a\"\n2) (nil)\n");
        let ten = Reply::Array((0..10).map(Reply::Integer).collect());
        let mut out = Vec::new();
        ten.write(Form::Typed, &mut out);
        assert!(out.starts_with(b" 1) (integer) 0\n") && out.ends_with(b"\n10) (integer) 9\n"));
    }

    #[test]
    fn arrays_in_arrays_stand_further_right() {
        let inner = Reply::Array(vec![bulk(b"a"), Reply::Array(vec![Reply::Integer(1); 2])]);
        let want = "1) 1) \"a\"\n   2) 1) (integer) 1\n      2) (integer) 1\n2) (nil)\n";
        check(&Reply::Array(vec![inner, Reply::Nil]), b"a\n1\n1\n\n", want);
        check(&Reply::Error("ERR no".to_owned()), b"ERR no\n", "(error) ERR no\n");
    }

    #[test]
    fn lines_are_the_same_in_both_forms() {
        check(&Reply::Lines(vec!["a:1".to_owned(), "b:2".to_owned()]), b"a:1\nb:2\n", "a:1\nb:2\n");
    }

    #[test]
    fn what_is_quoted_reads_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut quoted = Vec::new();
        quote(&bytes, &mut quoted);
        assert_eq!(wire::resp::split_words(&quoted), Some(vec![bytes]));
    }
}
