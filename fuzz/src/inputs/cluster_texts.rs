//! Inputs of the cluster's texts: each kind as it should be, half of them damaged a little.

use std::collections::VecDeque;

use base::Instant;
use cluster::config_store::{Ask, Request};
use cluster_io::{Key, Stored};
use config_store_quorum::{Action, Event, Member, Settings};

use crate::inputs::{damage, peer_messages};
use crate::rng::Rng;

/// What it is, and settings, a place, a question or a frame.
pub fn cluster_texts(rng: &mut Rng) -> Vec<u8> {
    // `damage` spares the first byte.
    let mut out = vec![rng.below(5) as u8];
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
            let places = [
                "zk://a:1,b:2/x/y",
                "zk://me:secret@a:1/x",
                "file:///tmp/x",
                "zk://a/",
                "quorum://a,b:7,[::1]:9/x?key=/k",
            ];
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
        4 => out.extend(quorum_file(rng)),
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

/// A member of three.
pub fn quorum_settings(own: usize) -> Settings {
    let members = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
    Settings { name: "fuzz".to_owned(), members, own, start: own as u64 + 1, tick_ns: 1 }
}

/// The file of the first of three members that founded a quorum and served some requests.
fn quorum_file(rng: &mut Rng) -> Vec<u8> {
    let started = |own| Member::start(&quorum_settings(own), None, Instant::default());
    let mut members: Vec<Member> =
        (0..3).map(|own| started(own).expect("no file is wrong").0).collect();
    let mut file = Vec::new();
    for round in 0..40 + rng.below(200) as u64 {
        let now = Instant { ns: round };
        let mut sent: VecDeque<(usize, usize, Vec<u8>)> = VecDeque::new();
        for (own, member) in members.iter_mut().enumerate() {
            let mut actions = Vec::new();
            member.input(Event::Tick, now, &mut actions);
            let request =
                Request { session: None, id: round, ask: Ask::Open { timeout_ns: 1 << 40 } };
            if rng.one_in(4) {
                member.input(Event::Request { client: 1, request }, now, &mut actions);
            }
            carry_out(own, actions, &mut file, &mut sent);
        }
        while let Some((from, to, bytes)) = sent.pop_front() {
            let mut actions = Vec::new();
            members[to].input(Event::Message { from, bytes: &bytes }, now, &mut actions);
            carry_out(to, actions, &mut file, &mut sent);
        }
    }
    file
}

fn carry_out(
    own: usize,
    actions: Vec<Action>,
    file: &mut Vec<u8>,
    sent: &mut VecDeque<(usize, usize, Vec<u8>)>,
) {
    for action in actions {
        match action {
            Action::Persist { bytes, .. } if own == 0 => file.extend(bytes),
            Action::Replace { bytes } if own == 0 => *file = bytes,
            Action::Send { to, bytes } => sent.push_back((own, to, bytes)),
            Action::Persist { .. } | Action::Replace { .. } | Action::Respond { .. } => {}
        }
    }
}
