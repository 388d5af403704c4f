//! Attacks on the TLS ports: handshakes that stop, sessions that idle, and bytes that are not TLS.

use anyhow::{Context, Result};

use super::Shape;
use crate::attack::door::{Door, client_hello};
use crate::attack::pump::Reading;
use crate::attack::script::Script;
use crate::attack::target::Target;

/// A record of the handshake that says it has 16,384 bytes.
const LONG_RECORD: &[u8] = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03";

pub const SHAPES: &[Shape] = &[
    Shape::new(
        "tls-half-hello",
        Door::RespTls,
        "9,900 clients that stop within the handshake",
        |it| {
            let hello = hello(it)?;
            begun(it, Door::RespTls, usize::MAX, hello[..hello.len() / 2].to_vec())
        },
    ),
    Shape::new("tls-half-hello-mc", Door::MemcachedTls, "the same at memcached's port", |it| {
        let hello = hello(it)?;
        begun(it, Door::MemcachedTls, usize::MAX, hello[..hello.len() - 1].to_vec())
    }),
    Shape::new(
        "tls-answered",
        Door::RespTls,
        "9,900 clients that send a hello and no more",
        |it| begun(it, Door::RespTls, usize::MAX, hello(it)?),
    ),
    Shape::new(
        "tls-long-record",
        Door::RespTls,
        "2,000 clients that announce long records of the handshake",
        |it| begun(it, Door::RespTls, 2_000, [LONG_RECORD, &[0; 12_000]].concat()),
    ),
    Shape::new("tls-many-fragments", Door::RespTls, "handshakes in records of one byte", |it| {
        let hello = hello(it)?;
        let records = hello.get(5..).unwrap_or_default().iter();
        let bytes: Vec<u8> = records.flat_map(|byte| [0x16, 3, 1, 0, 1, *byte]).collect();
        begun(it, Door::RespTls, 500, bytes)
    }),
    Shape::new("tls-idle", Door::RespTls, "2,000 finished sessions that say nothing", |it| {
        let (crowd, refused) = it.crowd(Door::RespTls, 2_000);
        it.linger();
        drop(crowd);
        Ok(refused)
    }),
    Shape::new("tls-churn", Door::RespTls, "handshakes one after the other", |it| {
        let mut refused = 0;
        while !it.is_over() {
            refused += it.crowd(Door::RespTls, 5).1;
        }
        Ok(refused)
    }),
    Shape::new("tls-ping-unread", Door::RespTls, "PINGs by 200 clients that do not read", |it| {
        it.flood(Door::RespTls, 200, &Script::repeat("PING\r\n", 100_000), Reading::Never)
    }),
    Shape::new(
        "tls-half-record",
        Door::RespTls,
        "500 clients send half of a large SET inside TLS",
        |it| {
            let head = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33554432\r\n";
            let script = Script::once([head.as_bytes(), &[b'h'; 16_000]].concat());
            it.flood(Door::RespTls, 500, &script, Reading::Never)
        },
    ),
    Shape::new(
        "tls-garbage",
        Door::RespTls,
        "bytes that are no TLS, and hellos over and over",
        |it| {
            let hello = hello(it)?;
            let texts = [
                b"PING\r\n".repeat(100),
                hello.repeat(20),
                [&hello[..], b"\x17\x03\x03\xff\xff"].concat(),
                b"\x16\x03\x00\x00\x00".repeat(1_000),
                b"\x15\x03\x03\x00\x02\x01\x00".repeat(1_000),
                b"\x14\x03\x03\x00\x01\x01".repeat(1_000),
            ];
            let mut refused = 0;
            for _ in 0..200 {
                if it.is_over() {
                    break;
                }
                let (mut streams, failed) = it.silent_crowd(Door::RespTls, texts.len());
                refused += failed;
                for (stream, text) in streams.iter_mut().zip(&texts) {
                    refused += u64::from(stream.write_all(text).is_err());
                }
            }
            Ok(refused)
        },
    ),
];

fn hello(target: &Target) -> Result<Vec<u8>> {
    let config = target.tls.as_ref().context("no TLS without the program openssl")?;
    Ok(client_hello(target.ip(Door::RespTls)?, config)?)
}

/// Connections that send these bytes in the clear and then wait.
fn begun(target: &Target, door: Door, count: usize, bytes: Vec<u8>) -> Result<u64> {
    let (streams, refused) = target.silent_crowd(door, count);
    Ok(refused + target.pump(streams, &Script::once(bytes), Reading::Never))
}
