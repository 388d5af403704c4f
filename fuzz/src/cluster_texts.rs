//! What the cluster's processes read besides messages: frames of links, settings, places,
//! questions.

use cluster_io::admin::{Question, Reply};
use cluster_io::{Place, Stored, links};
use config_store_quorum::{Event, Member};

use crate::inputs;

/// An input is `what (1 byte) | bytes`: 0 settings, 1 a place, 2 a question or an answer, 3 a
/// frame, 4 the file of a config store's member.
pub fn cluster_texts(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match what % 5 {
        0 => match Stored::parse(&text) {
            Ok(stored) => {
                let again = stored.to_text();
                let read = Stored::parse(&again).map(|stored| stored.to_text());
                assert_eq!(read, Ok(again), "what was written can be read");
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "one line: {error}"),
        },
        1 => drop(text.parse::<Place>()),
        2 => {
            let question = serde_json::from_slice::<Question>(bytes);
            if let Ok(question) = question {
                let again = serde_json::to_vec(&question).expect("words and numbers");
                let read = serde_json::from_slice::<Question>(&again);
                assert_eq!(read.ok(), Some(question), "what was written can be read");
            }
            drop(serde_json::from_slice::<Reply>(bytes));
        }
        3 => drop(links::is_frame(bytes)),
        _ => {
            let settings = inputs::quorum_settings(0);
            match Member::start(&settings, Some(bytes), base::Instant::default()) {
                Ok((mut member, whole_bytes)) => {
                    assert!(whole_bytes <= bytes.len());
                    member.input(Event::Tick, base::Instant::default(), &mut Vec::new());
                }
                Err(error) => assert!(!error.to_string().contains('\n'), "one line: {error}"),
            }
        }
    }
}
