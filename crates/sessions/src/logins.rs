//! The delay of failed logins, by address.
//!
//! ```text
//!  failures of an address:  1 ... 10 | 11      12      13 ... | 30
//!  its next answers wait:   0        | 0.5 s   1 s     1.5 s  | more than 10 s: refused unlooked
//!                           each failure is forgiven after 0.5 s
//! ```
//!
//! # The rule
//! Ten failures are free. Each further failure delays the address's login replies by another half
//! second, successful ones too: an immediate reply would distinguish a right password from a wrong
//! one. Beyond ten seconds, attempts are refused without checking the password. Loopback and Unix
//! sockets count as one address, on which wrong passwords wait and right ones never do.
//!
//! # Limits
//! L1: the table has at most `ADDRESSES_MAX` addresses; the others share one entry.
//! L2: an IPv6 address counts as its network of 64 bits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::UnixMillis;

use crate::end::End;
use crate::end::is_loopback;

/// The maximum number of addresses with an entry of their own.
const ADDRESSES_MAX: usize = 4096;

/// The time after which a failure is forgiven, and by which it delays answers.
const STEP_MS: u64 = 500;

/// Failures without a delay.
const FREE: u64 = 10;

/// The maximum delay of answers.
pub const WAIT_MAX_MS: u64 = 10_000;

/// An address that logins come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(IpAddr);

impl Origin {
    /// This machine, through the loopback interface or a Unix socket.
    const HERE: Origin = Origin(IpAddr::V4(Ipv4Addr::LOCALHOST));
    /// All addresses without an entry of their own (L1).
    const OTHERS: Origin = Origin(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// The origin of one end of a connection.
    pub fn of(peer: &End) -> Origin {
        match peer {
            End::Unix(_) => Origin::HERE,
            End::Ip(address) if is_loopback(address.ip()) => Origin::HERE,
            End::Ip(address) => Origin(match address.ip().to_canonical() {
                IpAddr::V6(ip) => {
                    let network = u128::from(ip) >> 64 << 64;
                    Ipv6Addr::from(network).into()
                }
                ip @ IpAddr::V4(_) => ip,
            }),
        }
    }
}

/// When an attempt to log in is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It is answered at once.
    Now,
    /// It is answered at that time, and its connection is not read before.
    At(UnixMillis),
}

/// Failures by address, as all threads see them.
#[derive(Debug, Default)]
pub struct Logins {
    /// When the last failure of each address will be forgiven.
    clear_at: Mutex<HashMap<Origin, u64>>,
}

impl Logins {
    /// Whether an attempt is refused before its password is checked.
    pub fn refuses(&self, origin: Origin, now: UnixMillis) -> bool {
        let table = self.table();
        origin != Origin::HERE && wait_ms(entry(&table, origin), now) > WAIT_MAX_MS
    }

    /// When an attempt is answered whose password was checked.
    pub fn pace(&self, origin: Origin, is_right: bool, now: UnixMillis) -> Pace {
        let mut table = self.table();
        if is_right && (origin == Origin::HERE || table.is_empty()) {
            return Pace::Now;
        }
        if !is_right {
            let origin = place(&mut table, origin, now);
            let clear_at = table.entry(origin).or_default();
            *clear_at = (*clear_at).max(now.0) + STEP_MS;
            let latest = now.0 + FREE * STEP_MS + WAIT_MAX_MS + STEP_MS;
            *clear_at = (*clear_at).min(latest); // More would be no slower.
        }
        match wait_ms(entry(&table, origin), now) {
            0 => Pace::Now,
            wait_ms => Pace::At(UnixMillis(now.0 + wait_ms.min(WAIT_MAX_MS))),
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Origin, u64>> {
        self.clear_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When an address's last failure will be forgiven; 0: it has none.
fn entry(table: &HashMap<Origin, u64>, origin: Origin) -> u64 {
    let is_full = table.len() >= ADDRESSES_MAX;
    let others = || table.get(&Origin::OTHERS).copied().filter(|_| is_full);
    table.get(&origin).copied().or_else(others).unwrap_or(0)
}

/// The entry in which a failure is recorded (L1).
fn place(table: &mut HashMap<Origin, u64>, origin: Origin, now: UnixMillis) -> Origin {
    // The shared entry needs a place, too.
    if table.contains_key(&origin) || table.len() + 1 < ADDRESSES_MAX {
        return origin;
    }
    table.retain(|_, clear_at| *clear_at > now.0);
    if table.len() + 1 < ADDRESSES_MAX { origin } else { Origin::OTHERS }
}

fn wait_ms(clear_at: u64, now: UnixMillis) -> u64 {
    clear_at.saturating_sub(now.0 + FREE * STEP_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(last: u8) -> Origin {
        Origin::of(&End::Ip(([192, 0, 2, last], 5).into()))
    }

    #[test]
    fn ten_failures_are_free_and_each_further_one_waits_half_a_second_longer() {
        let (logins, now) = (Logins::default(), UnixMillis(1_000_000));
        let paces: Vec<Pace> = (0..12).map(|_| logins.pace(far(1), false, now)).collect();
        assert!(paces[..10].iter().all(|pace| *pace == Pace::Now), "{paces:?}");
        let at = |ms: u64| Pace::At(UnixMillis(now.0 + ms));
        assert_eq!(paces[10..], [at(500), at(1000)]);
        assert_eq!(logins.pace(far(1), true, now), at(1000), "a right one tells nothing by time");
        assert_eq!(logins.pace(far(2), true, now), Pace::Now, "of another address");
        let later = UnixMillis(now.0 + 12 * STEP_MS);
        assert_eq!(logins.pace(far(1), true, later), Pace::Now);
    }

    #[test]
    fn an_address_that_goes_on_failing_is_refused_until_some_is_forgiven() {
        let (logins, now) = (Logins::default(), UnixMillis(1));
        let tried = (0..1000).take_while(|_| {
            let is_refused = logins.refuses(far(1), now);
            logins.pace(far(1), false, now);
            !is_refused
        });
        assert_eq!(tried.count(), 31, "ten for free, twenty of half a second, one beyond");
        assert!(!logins.refuses(far(2), now));
        assert!(!logins.refuses(far(1), UnixMillis(now.0 + STEP_MS)));
        let Pace::At(at) = logins.pace(far(1), false, now) else { panic!("it waits") };
        assert!(at.0 - now.0 <= WAIT_MAX_MS);
    }

    #[test]
    fn right_passwords_of_this_machine_never_wait_and_wrong_ones_do() {
        let (logins, now) = (Logins::default(), UnixMillis(1));
        let unix = Origin::of(&End::Unix(std::path::Path::new("/s").into()));
        for _ in 0..1000 {
            logins.pace(unix, false, now);
        }
        let here = Origin::of(&End::Ip(([127, 9, 9, 9], 1).into()));
        assert!(!logins.refuses(here, now));
        assert_eq!(logins.pace(here, true, now), Pace::Now);
        let want = Pace::At(UnixMillis(now.0 + WAIT_MAX_MS));
        assert_eq!(logins.pace(here, false, now), want);
    }

    #[test]
    fn addresses_without_number_take_bounded_memory_and_are_slowed_together() {
        let (logins, now) = (Logins::default(), UnixMillis(1));
        let of = |network: u32| {
            Origin::of(&End::Ip((Ipv6Addr::from(u128::from(network + 1) << 64), 1).into()))
        };
        for network in 0..100_000 {
            logins.pace(of(network), false, now);
        }
        assert_eq!(logins.table().len(), ADDRESSES_MAX);
        assert!(logins.refuses(of(100_001), now), "it has no entry of its own");
        assert!(!logins.refuses(of(5), now), "it has");
        let later = UnixMillis(now.0 + 60_000);
        assert_eq!(logins.pace(of(7_000_000), false, later), Pace::Now);
        assert_eq!(logins.table().len(), 1, "what is forgiven has gone");
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let of = |text: &str| Origin::of(&End::Ip((text.parse::<IpAddr>().unwrap(), 1).into()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.9"), far(9));
        assert_eq!(of("::1"), of("127.0.0.1"));
    }
}
