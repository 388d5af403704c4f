//! What other servers keep: RDB files, and answers of Redis and memcached to a client that copies.

use std::io::{BufReader, Read};

use migrate::rdb::{Found, Reader};
use migrate::{memcached_words, resp};

/// An input is a file, and at the same time answers of either server.
pub fn foreign_data(data: &[u8]) {
    assert_eq!(rdb(data), rdb(Slow(data)), "however it arrives");
    let mut input = data;
    while resp::read_reply(&mut input).is_ok() {}
    let mut input = data;
    while memcached_words::read_meta(&mut input).is_ok() {}
    let mut input = BufReader::with_capacity(1, data);
    while memcached_words::read_listed(&mut input).is_ok() {}
}

/// All that a file holds, and the error that it ends in.
fn rdb(source: impl Read) -> (Vec<Found>, Option<String>) {
    let mut found = Vec::new();
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(error) => return (found, Some(error.to_string())),
    };
    loop {
        match reader.find_next() {
            Ok(Found::End) => return (found, None),
            Ok(next) => found.push(next),
            Err(error) => return (found, Some(error.to_string())),
        }
    }
}

/// Gives one byte at a time.
struct Slow<'d>(&'d [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(1);
        self.0.read(&mut buffer[..count])
    }
}
