//! Attacks on doors without connections: memcached over UDP, the native protocol, shared memory.

use anyhow::{Result, ensure};

use super::{OPEN, Shape, UNNAMED};
use crate::attack::door::Door;
use crate::attack::frames::{HELLO, REQUESTS, frame, get, hello, part, session};
use crate::attack::pump::Reading;
use crate::attack::script::Script;
use crate::attack::target::Target;
use crate::conformance::reply::Reply;
use crate::conformance::rng::Rng;

/// A medium value, which other clients must still be able to store.
const OTHERS_VALUE_BYTES: usize = 100_000;
/// Of a datagram's body, on loopback.
const DATAGRAM_MAX: usize = 60_000;

pub const SHAPES: &[Shape] = &[
    Shape::new("udp-parts", Door::MemcachedUdp, "datagrams that say they are one of many", |it| {
        let body = "p".repeat(1_300);
        shower(it, Door::MemcachedUdp, 1, |number| {
            let header = udp_header(number as u16, (number % 7) as u16, u16::MAX);
            Some([&header[..], b"set k 0 0 100000000\r\n", body.as_bytes()].concat())
        })
    })
    .by(OPEN)
    .holding(others_may_write),
    Shape::new("udp-long", Door::MemcachedUdp, "datagrams of 60 KB with half of a `set`", |it| {
        let body = vec![b'l'; DATAGRAM_MAX];
        shower(it, Door::MemcachedUdp, 16, |number| {
            let header = udp_header(number as u16, 0, 1);
            Some([&header[..], b"set k 0 0 1000000\r\n", &body].concat())
        })
    })
    .by(OPEN)
    .holding(others_may_write),
    Shape::new(
        "udp-amplify",
        Door::MemcachedUdp,
        "short requests for large values and long lists",
        |it| {
            it.load_large(1)?;
            let lines = ["get large:0\r\n", "stats\r\n", "stats settings\r\n", "mg large:0 v\r\n"];
            shower(it, Door::MemcachedUdp, 16, |number| {
                let header = udp_header(number as u16, 0, 1);
                Some([&header[..], lines[number as usize % lines.len()].as_bytes()].concat())
            })
        },
    )
    .by(OPEN)
    .holding(others_may_write),
    Shape::new("udp-pipelined", Door::MemcachedUdp, "datagrams of 60 KB full of `get`", |it| {
        it.load_small(1)?;
        let lines = "get small:0\r\n".repeat(4_000);
        shower(it, Door::MemcachedUdp, 4, |number| {
            Some([&udp_header(number as u16, 0, 1)[..], lines.as_bytes()].concat())
        })
    })
    .by(OPEN),
    Shape::new("udp-garbage", Door::MemcachedUdp, "random datagrams of any length", |it| {
        garbage(it, Door::MemcachedUdp)
    })
    .by(OPEN),
    Shape::new("native-hellos", Door::Native, "hellos without a cookie, from 200 ports", |it| {
        shower(it, Door::Native, 200, |number| Some(hello(0, number)))
    })
    .by(UNNAMED),
    Shape::new("native-forged", Door::Native, "hellos with cookies that were never given", |it| {
        let mut rng = Rng::new(3);
        shower(it, Door::Native, 200, |number| Some(hello(rng.next_u64(), number)))
    })
    .by(UNNAMED),
    Shape::new("native-garbage", Door::Native, "random datagrams of any length", |it| {
        garbage(it, Door::Native)
    })
    .by(UNNAMED),
    Shape::new("native-wrong-lengths", Door::Native, "frames that contradict themselves", |it| {
        let mut rng = Rng::new(5);
        shower(it, Door::Native, 16, |number| {
            let body: Vec<u8> = (0..40).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
            let kind = [HELLO, REQUESTS, 2, 3, 5, 7][number as usize % 6];
            Some(frame(kind, number, number as u32, &body))
        })
    })
    .by(UNNAMED),
    Shape::new(
        "native-sessions",
        Door::Native,
        "as many sessions as there may be, that do nothing",
        |it| {
            let (mut sockets, mut refused) = (Vec::new(), 0);
            for nonce in 0..it.connections_max as u64 {
                if it.is_over() || refused > 5 {
                    break;
                }
                let socket = it.datagrams(Door::Native)?;
                refused += u64::from(session(&socket, nonce).is_err());
                sockets.push(socket);
            }
            it.linger();
            Ok(refused)
        },
    )
    .by(OPEN)
    .holding(others_may_write),
    Shape::new(
        "native-transfers",
        Door::Native,
        "first parts of large values that never come whole",
        |it| {
            let mut sockets = Vec::new();
            for nonce in 0..64 {
                let socket = it.datagrams(Door::Native)?;
                let session = session(&socket, nonce)?;
                sockets.push((socket, session));
            }
            let large = it.large_bytes() as u32 & !63;
            let mut refused = 0;
            for id in 0..10_000u32 {
                if it.is_over() {
                    break;
                }
                for (socket, session) in &sockets {
                    let request = part(format!("part:{session}:{id}").as_bytes(), id, large);
                    refused +=
                        u64::from(socket.send(&frame(REQUESTS, *session, id, &request)).is_err());
                }
            }
            it.linger();
            Ok(refused)
        },
    )
    .by(OPEN)
    .holding(others_may_write),
    Shape::new(
        "native-gets",
        Door::Native,
        "gets of large values whose replies are not read",
        |it| {
            it.load_large(1)?;
            let socket = it.datagrams(Door::Native)?;
            let session = session(&socket, 1)?;
            shower(it, Door::Native, 0, |_| None)?;
            let request = get(b"large:0", 1).repeat(40);
            it.shower(&[socket], |number| Some(frame(REQUESTS, session, number as u32, &request)))
                .map_err(Into::into)
        },
    )
    .by(OPEN),
    Shape::new(
        "shm-silent",
        Door::Shm,
        "as many clients as there may be, that write nothing",
        |it| {
            let (crowd, refused) = it.silent_crowd(Door::Shm, usize::MAX);
            it.linger();
            drop(crowd);
            Ok(refused)
        },
    )
    .by(UNNAMED)
    .holding(others_may_write),
    Shape::new("shm-doorbells", Door::Shm, "clients that ring and have nothing to say", |it| {
        let (crowd, refused) = it.silent_crowd(Door::Shm, 16);
        let script = Script::repeat([7; 1_000], 1_000_000);
        Ok(refused + it.pump(crowd, &script, Reading::Never))
    })
    .by(UNNAMED),
    Shape::new("shm-churn", Door::Shm, "clients that come and go", |it| {
        let mut refused = 0;
        while !it.is_over() {
            refused += it.silent_crowd(Door::Shm, 5).1;
        }
        Ok(refused)
    })
    .by(UNNAMED),
];

/// The eight bytes before a request over UDP.
fn udp_header(request: u16, part: u16, parts: u16) -> [u8; 8] {
    let [[a, b], [c, d], [e, f]] = [request, part, parts].map(u16::to_be_bytes);
    [a, b, c, d, e, f, 0, 0]
}

fn shower(
    target: &Target,
    door: Door,
    sockets: usize,
    make: impl FnMut(u64) -> Option<Vec<u8>>,
) -> Result<u64> {
    let sockets = sockets.min(target.connections_max);
    let sockets = (0..sockets).map(|_| target.datagrams(door)).collect::<Result<Vec<_>>>()?;
    Ok(target.shower(&sockets, make)?)
}

fn garbage(target: &Target, door: Door) -> Result<u64> {
    let mut rng = Rng::new(9);
    shower(target, door, 16, |_| {
        let length = rng.below(300);
        let mut bytes: Vec<u8> = (0..length).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        // Half of them begin as what is understood does.
        match rng.below(4) {
            0 => drop(bytes.splice(0..0, *b"DV\x01\x04")),
            1 => drop(bytes.splice(0..0, udp_header(1, 0, 1))),
            _ => {}
        }
        Some(bytes)
    })
}

/// Checks that another client can still store 100 KB.
fn others_may_write(target: &Target) -> Result<()> {
    let mut wire = target.operator()?;
    let value = vec![b'o'; OTHERS_VALUE_BYTES];
    for at in 0..10 {
        let reply = wire.ask(&[b"SET", format!("others:{at}").as_bytes(), &value])?;
        let is_stored = reply == Reply::One(b"+OK\r\n".to_vec());
        ensure!(is_stored, "another client's SET of 100 KB: {}", reply.shown());
    }
    Ok(())
}
