//! Writes through our RESP port: SET with what is left of each item's time.

use crate::address::Place;
use crate::copy::{Tally, Target};
use crate::error::Error;
use crate::from_redis::RespLink;
use crate::item::Item;
use crate::resp::{Reply, write_request};

/// Answers that concern one key; all others end the copy.
const OF_ONE_KEY: &[u8] = b"ERR ";

/// The target `redis://`.
#[derive(Debug)]
pub struct IntoRedis {
    link: RespLink,
    place: Place,
    replaces: bool,
}

impl IntoRedis {
    /// Connects. `replaces`: keys that are there are overwritten.
    pub fn connect(place: &Place, replaces: bool) -> Result<IntoRedis, Error> {
        Ok(IntoRedis { link: RespLink::connect(place)?, place: place.clone(), replaces })
    }
}

impl Target for IntoRedis {
    fn write(&mut self, items: &[Item], tally: &mut Tally) -> Result<(), Error> {
        let (mut requests, mut sent) = (Vec::new(), Vec::with_capacity(items.len()));
        for item in items {
            let Some(left) = item.expiry.left() else {
                tally.expired += 1;
                continue;
            };
            let left_ms = left.map(|left| left.as_millis().to_string());
            let mut words: Vec<&[u8]> = vec![b"SET", &item.key, &item.value];
            if let Some(left_ms) = &left_ms {
                words.extend_from_slice(&[b"PX", left_ms.as_bytes()]);
            }
            if !self.replaces {
                words.push(b"NX");
            }
            write_request(&words, &mut requests);
            sent.push(item);
        }
        self.link.send(&requests)?;
        for item in sent {
            match self.link.receive()? {
                Reply::Simple(_) => {
                    tally.copied += 1;
                    tally.bytes += item.bytes();
                }
                Reply::Bulk(None) => tally.existed += 1,
                Reply::Error(answer) if answer.starts_with(OF_ONE_KEY) => {
                    let reason = String::from_utf8_lossy(&answer).into_owned();
                    *tally.refused.entry(reason).or_default() += 1;
                }
                Reply::Error(answer) => {
                    let hint = if answer.starts_with(b"OOM") {
                        "; a larger --memory holds more, --mode cache evicts"
                    } else if answer.starts_with(b"MOVED") {
                        "; a cluster is filled by clients that follow its map"
                    } else {
                        ""
                    };
                    return Err(self.link.refused(&answer, hint));
                }
                _ => return Err(self.link.unexpected("an answer to SET that is neither")),
            }
        }
        Ok(())
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.link = RespLink::connect(&self.place)?;
        Ok(())
    }
}
