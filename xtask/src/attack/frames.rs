//! Frames of the native protocol, implemented from docs/formats/native.md alone.

use std::net::UdpSocket;

use anyhow::{Context, Result, ensure};

/// Kinds of frames.
pub const HELLO: u8 = 1;
pub const REQUESTS: u8 = 4;
const CHALLENGE: u8 = 2;
const WELCOME: u8 = 3;
const HEADER_BYTES: usize = 32;
/// Any worker.
const STEERING: u16 = 65_535;
const FRAME_MAX: u32 = 1400;

/// A frame without a tag; the body is padded to a multiple of 8.
pub fn frame(kind: u8, session: u64, number: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(8);
    let mut frame = vec![b'D', b'V', 1, kind];
    frame.extend_from_slice(&STEERING.to_le_bytes());
    frame.extend_from_slice(&(((HEADER_BYTES + padded) / 8) as u16).to_le_bytes());
    frame.extend_from_slice(&session.to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    // No floor and no tag.
    frame.resize(HEADER_BYTES, 0);
    frame.extend_from_slice(body);
    frame.resize(HEADER_BYTES + padded, 0);
    frame
}

/// The hello frame, which requests a session.
pub fn hello(cookie: u64, nonce: u64) -> Vec<u8> {
    let mut body = vec![1, 1, 0, 0];
    body.extend_from_slice(&FRAME_MAX.to_le_bytes());
    body.extend_from_slice(&cookie.to_le_bytes());
    body.extend_from_slice(&nonce.to_le_bytes());
    body.resize(96, 0);
    frame(HELLO, 0, 0, &body)
}

/// The first part of a value that is never completed: 1,024 bytes of `whole`, as request `id`.
pub fn part(key: &[u8], id: u32, whole: u32) -> Vec<u8> {
    const PART_BYTES: u32 = 1024;
    // A set, once, with the word that says which part this is.
    let mut request = vec![4, 1];
    request.extend_from_slice(&0x20u16.to_le_bytes());
    request.extend_from_slice(&(key.len() as u16).to_le_bytes());
    request.extend_from_slice(&[0, 0]);
    request.extend_from_slice(&id.to_le_bytes());
    request.extend_from_slice(&PART_BYTES.to_le_bytes());
    request.extend_from_slice(&(u64::from(whole) << 32).to_le_bytes());
    request.extend_from_slice(key);
    request.resize(request.len() + PART_BYTES as usize, b'p');
    request.resize(request.len().next_multiple_of(8), 0);
    request
}

/// A get.
pub fn get(key: &[u8], id: u32) -> Vec<u8> {
    let mut request = vec![2, 0, 0, 0];
    request.extend_from_slice(&(key.len() as u16).to_le_bytes());
    request.extend_from_slice(&[0, 0]);
    request.extend_from_slice(&id.to_le_bytes());
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(key);
    request.resize(request.len().next_multiple_of(8), 0);
    request
}

/// Opens a session; returns its number.
pub fn session(socket: &UdpSocket, nonce: u64) -> Result<u64> {
    let word = |bytes: &[u8], at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    socket.send(&hello(0, nonce))?;
    let mut buffer = [0; FRAME_MAX as usize];
    let length = socket.recv(&mut buffer)?;
    let challenge = &buffer[..length];
    ensure!(challenge.get(3) == Some(&CHALLENGE), "no challenge: {}", challenge.escape_ascii());
    let cookie = word(challenge, HEADER_BYTES).context("a challenge has a cookie")?;
    socket.send(&hello(cookie, nonce))?;
    let length = socket.recv(&mut buffer)?;
    let welcome = &buffer[..length];
    ensure!(welcome.get(3) == Some(&WELCOME), "no welcome: {}", welcome.escape_ascii());
    word(welcome, 8).context("a welcome has a session")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_that_of_the_pages_example() {
        // get, want version, key of 9 bytes, id 7: the first message of the page.
        let mut request = get(b"user:1000", 7);
        request[1] = 2;
        let mut frame = frame(REQUESTS, 0x1122_3344_5566_7788, 9, &request);
        frame[4..6].copy_from_slice(&3u16.to_le_bytes());
        let want = [0x44, 0x56, 1, 4, 3, 0, 8, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        assert_eq!(frame[..16], want);
        assert_eq!(frame[16..32], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let want = [2, 2, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(frame[32..48], want);
        assert_eq!(&frame[48..], b"user:1000\0\0\0\0\0\0\0");
    }

    #[test]
    fn parts_and_hellos_have_the_lengths_of_the_page() {
        assert_eq!(hello(1, 2).len(), 32 + 96);
        assert_eq!(part(b"k", 0, 1 << 20).len(), 16 + 8 + 1032);
    }
}
