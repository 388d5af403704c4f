//! Encodings of the values in messages: entries, answers, configurations, requests.

use std::sync::Arc;

use crate::addresses::Addresses;
use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader, put_count};
use crate::configuration::{Configuration, put_addresses, split_addresses};
use crate::ids::ShardId;
use crate::message::{Answer, Contents, Operation, Outcome, Recovered, Request, ShardStatistics};
use crate::record::{BlockId, Check, Entry, HEADER_BYTES, block};

impl Field for Arc<Entry> {
    const MIN_BYTES: usize = HEADER_BYTES;

    fn put(&self, out: &mut Vec<u8>) {
        self.append(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Arc<Entry>, DecodeError> {
        let damaged = reader.damaged();
        let (header, piece) = block(reader.rest(), Check::Checksum).ok_or(damaged)?;
        let body_bytes = header.key_len_bytes.checked_add(header.value_len_bytes);
        let is_whole = header.block_count == 1 && body_bytes == Some(piece.len());
        let entry = Entry::from_body(&header, piece).filter(|_| is_whole).ok_or(damaged)?;
        reader.take(header.len_bytes())?;
        Ok(Arc::new(entry))
    }
}

impl Field for Arc<Configuration> {
    const MIN_BYTES: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        let bytes = self.encode();
        put_count(bytes.len(), out);
        out.extend(bytes);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Arc<Configuration>, DecodeError> {
        let damaged = reader.damaged();
        let len_bytes = reader.get::<u32>()? as usize;
        let bytes = reader.take(len_bytes)?;
        Configuration::decode(bytes).map(Arc::new).map_err(|_| damaged)
    }
}

impl Field for Arc<Addresses> {
    /// Four ports and two lengths.
    const MIN_BYTES: usize = 12;

    fn put(&self, out: &mut Vec<u8>) {
        put_addresses(out, self);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Arc<Addresses>, DecodeError> {
        let rest = reader.rest();
        let (addresses, after) = split_addresses(rest).map_err(|_| reader.damaged())?;
        reader.take(rest.len() - after.len())?;
        Ok(Arc::new(addresses))
    }
}

impl Field for Recovered {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Recovered::Nothing => out.push(0),
            Recovered::Whole { since, incarnation } => {
                out.push(1);
                since.put(out);
                incarnation.put(out);
            }
            Recovered::Damaged { incarnation, whole } => {
                out.push(2);
                incarnation.put(out);
                whole.to_vec().put(out);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Recovered, DecodeError> {
        let damaged = reader.damaged();
        Ok(match reader.byte()? {
            0 => Recovered::Nothing,
            1 => Recovered::Whole { since: reader.get()?, incarnation: reader.get()? },
            2 => {
                let (incarnation, whole) = (reader.get()?, reader.get::<Vec<(ShardId, u32)>>()?);
                Recovered::Damaged { incarnation, whole: whole.into() }
            }
            _ => return Err(damaged),
        })
    }
}

impl Field for BlockId {
    const MIN_BYTES: usize = 14;

    fn put(&self, out: &mut Vec<u8>) {
        self.shard.put(out);
        self.version.put(out);
        self.block.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<BlockId, DecodeError> {
        Ok(BlockId { shard: reader.get()?, version: reader.get()?, block: reader.get()? })
    }
}

impl Field for ShardStatistics {
    const MIN_BYTES: usize = 42;

    fn put(&self, out: &mut Vec<u8>) {
        self.shard.put(out);
        let counts = [self.reads, self.writes, self.bytes, self.entries, self.copied];
        counts.iter().for_each(|count| count.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<ShardStatistics, DecodeError> {
        let (shard, reads, writes) = (reader.get()?, reader.get()?, reader.get()?);
        let (bytes, entries, copied) = (reader.get()?, reader.get()?, reader.get()?);
        Ok(ShardStatistics { shard, reads, writes, bytes, entries, copied })
    }
}

impl Field for Contents {
    const MIN_BYTES: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        self.entries.put(out);
        self.sessions.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Contents, DecodeError> {
        Ok(Contents { entries: reader.get()?, sessions: reader.get()? })
    }
}

impl Field for Answer {
    const MIN_BYTES: usize = 17;

    fn put(&self, out: &mut Vec<u8>) {
        self.sequence.put(out);
        self.version.put(out);
        self.outcome.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Answer, DecodeError> {
        Ok(Answer { sequence: reader.get()?, version: reader.get()?, outcome: reader.get()? })
    }
}

impl Field for Request {
    const MIN_BYTES: usize = 21;

    fn put(&self, out: &mut Vec<u8>) {
        self.client.put(out);
        self.sequence.put(out);
        self.key.put(out);
        self.operation.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Request, DecodeError> {
        let (client, sequence) = (reader.get()?, reader.get()?);
        Ok(Request { client, sequence, key: reader.get()?, operation: reader.get()? })
    }
}

/// The kind of an operation without a byte format: it is never read.
const LOCAL: u8 = 255;

impl Field for Operation {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Get => out.push(0),
            Operation::Put(value) => {
                out.push(1);
                value.put(out);
            }
            Operation::Delete => out.push(2),
            Operation::Increment(by) => {
                out.push(3);
                by.put(out);
            }
            Operation::Flush => out.push(4),
            Operation::Compute(_) => {
                debug_assert!(false, "a computation stays in its process");
                out.push(LOCAL);
            }
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Operation, DecodeError> {
        let damaged = reader.damaged();
        Ok(match reader.byte()? {
            0 => Operation::Get,
            1 => Operation::Put(reader.get()?),
            2 => Operation::Delete,
            3 => Operation::Increment(reader.get()?),
            4 => Operation::Flush,
            _ => return Err(damaged),
        })
    }
}

impl Field for Outcome {
    const MIN_BYTES: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Outcome::Value(value) => {
                out.push(0);
                value.put(out);
            }
            Outcome::Done => out.push(1),
            Outcome::Integer(number) => {
                out.push(2);
                number.put(out);
            }
            Outcome::Deleted(was_there) => {
                out.push(3);
                was_there.put(out);
            }
            Outcome::NotAnInteger => out.push(4),
            Outcome::Elsewhere(configuration) => {
                out.push(5);
                configuration.put(out);
            }
            Outcome::TryAgain => out.push(6),
            Outcome::TooFewCopies => out.push(7),
            Outcome::Computed => out.push(8),
            Outcome::Unknown => out.push(9),
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
        let damaged = reader.damaged();
        Ok(match reader.byte()? {
            0 => Outcome::Value(reader.get()?),
            1 => Outcome::Done,
            2 => Outcome::Integer(reader.get()?),
            3 => Outcome::Deleted(reader.get()?),
            4 => Outcome::NotAnInteger,
            5 => Outcome::Elsewhere(reader.get()?),
            6 => Outcome::TryAgain,
            7 => Outcome::TooFewCopies,
            8 => Outcome::Computed,
            9 => Outcome::Unknown,
            _ => return Err(damaged),
        })
    }
}
