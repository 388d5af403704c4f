//! Inputs of the cluster's texts: each kind as it should be, half of them damaged a little.

use cluster_io::{Key, Stored};

use crate::inputs::{damage, peer_messages};
use crate::rng::Rng;

/// What it is, and settings, a place, a question or a frame.
pub fn cluster_texts(rng: &mut Rng) -> Vec<u8> {
    // `damage` spares the first byte.
    let mut out = vec![rng.below(4) as u8];
    match out[0] {
        0 => {
            let stored = Stored {
                name: "test".to_owned(),
                key: Key::new([rng.below(256) as u8; 16]),
                rebalance: rng.one_in(2),
                settings: Stored::defaults(),
            };
            out.extend(stored.to_text().into_bytes());
        }
        1 => {
            let places = ["zk://a:1,b:2/x/y", "zk://me:secret@a:1/x", "file:///tmp/x", "zk://a/"];
            out.extend(rng.pick(&places).bytes());
        }
        2 => {
            let questions = [
                r#"{"ask":"status"}"#,
                r#"{"ask":"move","shard":7,"node":"n3"}"#,
                r#"{"ask":"drain","node":"n3.1","leaves":true}"#,
                r#"{"ask":"pause","is-paused":false}"#,
                r#"{"done":"shard 7 moves"}"#,
            ];
            out.extend(rng.pick(&questions).bytes());
        }
        _ => {
            // A message for n1.2; some are of another kind.
            out.push(rng.below(5) as u8);
            out.extend([0, 2, 0, 0, 0, 1, 0, 0, 0]);
            out.extend(peer_messages(rng).split_off(1));
        }
    }
    if rng.one_in(2) {
        damage(rng, &mut out);
    }
    out
}
