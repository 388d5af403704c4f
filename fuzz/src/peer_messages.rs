//! What the cluster reads from elsewhere, out of any bytes: messages, configurations, logs.

use cluster::Configuration;
use cluster::codec::{decode, encode};
use cluster::record::{Check, Entry, scan};

/// An input is `what (1 byte) | bytes`: 0 a message, 1 a configuration, 2 a log.
pub fn peer_messages(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else { return };
    match what % 3 {
        0 => {
            let Ok(message) = decode(bytes) else { return };
            let mut again = Vec::new();
            encode(&message, &mut again);
            assert_eq!(decode(&again), Ok(message), "what was written can be read");
        }
        1 => {
            let Ok(configuration) = Configuration::decode(bytes) else { return };
            let again = Configuration::decode(&configuration.encode());
            assert_eq!(again, Ok(configuration), "what was written can be read");
        }
        _ => read_log(bytes),
    }
}

fn read_log(bytes: &[u8]) {
    let mut last_end = 0;
    let scanned = scan(bytes, Check::Checksum, |before, header, piece| {
        assert!(before.end_bytes >= last_end && piece.len() == header.piece_len_bytes);
        last_end = before.end_bytes;
        if let Some(entry) = Entry::from_body(header, piece) {
            let mut again = Vec::new();
            entry.append(&mut again);
            let mut read = None;
            scan(&again, Check::Checksum, |_, header, body| read = Entry::from_body(header, body));
            assert_eq!(read, Some(entry), "what was written can be read");
        }
    });
    assert!(scanned.end_bytes <= bytes.len() && scanned.skipped_bytes <= bytes.len());
}
