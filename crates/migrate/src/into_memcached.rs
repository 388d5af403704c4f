//! Writes items through Dovetail's memcached port: `ms` with the flags and the remaining lifetime
//! of each item.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::address::Place;
use crate::copy::{Tally, Target};
use crate::error::Error;
use crate::from_memcached::MemcachedLink;
use crate::item::Item;
use crate::memcached_words::key_word;

/// memcached takes a longer time for a date.
const RELATIVE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The target `memcached://`.
#[derive(Debug)]
pub struct IntoMemcached {
    link: MemcachedLink,
    place: Place,
    replaces: bool,
}

impl IntoMemcached {
    /// Connects. `replaces`: existing keys are overwritten.
    pub fn connect(place: &Place, replaces: bool) -> Result<IntoMemcached, Error> {
        Ok(IntoMemcached { link: MemcachedLink::connect(place)?, place: place.clone(), replaces })
    }
}

/// The time for the flag `T`: 0 without an expiry, a date if seconds would be taken for one.
fn time_word(left: Option<Duration>, now: SystemTime) -> u64 {
    let Some(left) = left else { return 0 };
    // Rounded up to a whole second: 0 would mean forever.
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    if left <= RELATIVE_MAX {
        return seconds;
    }
    seconds + now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Target for IntoMemcached {
    fn write(&mut self, items: &[Item], tally: &mut Tally) -> Result<(), Error> {
        let (mut requests, mut sent) = (Vec::new(), Vec::with_capacity(items.len()));
        for item in items {
            let Some(left) = item.expiry.left() else {
                tally.expired += 1;
                continue;
            };
            let Some((word, flag)) = key_word(&item.key) else {
                let reason = "a key that memcached's text protocol cannot name".to_owned();
                *tally.refused.entry(reason).or_default() += 1;
                continue;
            };
            requests.extend_from_slice(b"ms ");
            requests.extend_from_slice(&word);
            let (len, flags) = (item.value.len(), item.flags);
            let time = time_word(left, SystemTime::now());
            let mode = if self.replaces { "S" } else { "E" };
            let line = format!(" {len} F{flags} T{time} M{mode}{flag}\r\n");
            requests.extend_from_slice(line.as_bytes());
            requests.extend_from_slice(&item.value);
            requests.extend_from_slice(b"\r\n");
            sent.push(item);
        }
        self.link.send(&requests)?;
        for item in sent {
            let reply = self.link.meta()?;
            match reply.status.as_slice() {
                b"HD" => {
                    tally.copied += 1;
                    tally.bytes += item.bytes();
                }
                b"NS" => tally.existed += 1,
                b"SERVER_ERROR object too large for cache" => {
                    let reason = "object too large for cache: --max-item-size".to_owned();
                    *tally.refused.entry(reason).or_default() += 1;
                }
                answer => return Err(self.link.refused(answer, "")),
            }
        }
        Ok(())
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.link = MemcachedLink::connect(&self.place)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_never_forever_and_long_ones_are_dates() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        assert_eq!(time_word(None, now), 0);
        assert_eq!(time_word(Some(Duration::from_millis(1)), now), 1);
        assert_eq!(time_word(Some(Duration::from_secs(60)), now), 60);
        assert_eq!(time_word(Some(RELATIVE_MAX), now), 2_592_000);
        let long = RELATIVE_MAX + Duration::from_secs(1);
        assert_eq!(time_word(Some(long), now), 1_002_592_001);
    }
}
