//! Address look-ups of host names. A name may have no address yet: a starting host is often known
//! before its name is.
//!
//! ```text
//!  look up ─ none, or no answer ─▶ 100 ms ─▶ look up ─▶ 200 ms ─▶ ... ─▶ 5 s ─▶ look up
//!  another configuration: a link that still needs the address begins anew
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Duration;

/// Pause after the first look-up; it doubles each time, up to the second value.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Looks `name` up until there is an address, or until no caller needs it any more: `wanted` is
/// gone.
pub fn until_found(
    name: &str,
    mut resolve: impl FnMut() -> io::Result<Option<SocketAddr>>,
    wanted: &Weak<()>,
    mut sleep: impl FnMut(Duration),
) -> Option<SocketAddr> {
    let mut pause = PAUSE;
    while wanted.strong_count() > 0 {
        match resolve() {
            Ok(Some(at)) => return Some(at),
            Ok(None) => tracing::warn!("the peer {name} has no address: looked up again"),
            Err(error) => tracing::warn!("the peer {name}: {error}: looked up again"),
        }
        sleep(pause);
        pause = PAUSE_MAX.min(2 * pause);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_name_is_looked_up_until_it_has_an_address() {
        let wanted = Arc::new(());
        let at: SocketAddr = "127.0.0.1:7400".parse().expect("an address");
        let mut answers = vec![Ok(Some(at)), Ok(None), Err(io::ErrorKind::TimedOut.into())];
        let mut pauses = Vec::new();
        let resolve = || answers.pop().expect("asked no more once it is there");
        let found =
            until_found("db1:7400", resolve, &Arc::downgrade(&wanted), |time| pauses.push(time));
        assert_eq!(found, Some(at));
        assert_eq!(pauses, [PAUSE, 2 * PAUSE]);
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_looked_for() {
        let mut wanted = Some(Arc::new(()));
        let weak = wanted.as_ref().map(Arc::downgrade).expect("made above");
        let mut longest = Duration::ZERO;
        let mut rounds = 0;
        let found = until_found(
            "db1:7400",
            || Ok(None),
            &weak,
            |time| {
                longest = time;
                rounds += 1;
                if rounds == 10 {
                    wanted = None;
                }
            },
        );
        assert_eq!((found, rounds, longest), (None, 10, PAUSE_MAX));
    }
}
