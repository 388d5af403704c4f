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
    /// A longer value would end the connection, and the copy with it.
    value_bytes_max: u64,
}

impl IntoRedis {
    /// Connects. `replaces`: keys that are there are overwritten.
    pub fn connect(place: &Place, replaces: bool) -> Result<IntoRedis, Error> {
        let mut link = RespLink::connect(place)?;
        let value_bytes_max = value_bytes_max(&mut link)?;
        Ok(IntoRedis { link, place: place.clone(), replaces, value_bytes_max })
    }
}

/// What the target takes, as far as it says.
fn value_bytes_max(link: &mut RespLink) -> Result<u64, Error> {
    let mut request = Vec::new();
    write_request(&[b"CONFIG", b"GET", b"proto-max-bulk-len"], &mut request);
    link.send(&request)?;
    let Reply::Array(Some(words)) = link.receive()? else { return Ok(u64::MAX) };
    let [_, Reply::Bulk(Some(bytes))] = &words[..] else { return Ok(u64::MAX) };
    Ok(std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX))
}

impl Target for IntoRedis {
    fn write(&mut self, items: &[Item], tally: &mut Tally) -> Result<(), Error> {
        let (mut requests, mut sent) = (Vec::new(), Vec::with_capacity(items.len()));
        for item in items {
            if item.value.len() as u64 > self.value_bytes_max {
                let max = self.value_bytes_max;
                let reason = format!("a value above the target's proto-max-bulk-len of {max}");
                *tally.refused.entry(reason).or_default() += 1;
                continue;
            }
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
