//! The next hops of replies: the Ethernet addresses that datagrams came from.
//!
//! A sender keeps the number of its hop, one byte; the hop's address is stored here. All hosts
//! behind one router are one hop. No more than 255 hops fit. The next one takes the place of an
//! older one, whose replies in flight go astray until it sends again, as its client's retry does.

use super::headers::Mac;

/// The number of places that a hop may have, from its home on.
const WAYS: usize = 8;
const PLACES: usize = 256;

/// Hops by number. Number 0 is the next hop of peers that have not sent anything, if one was given.
pub(super) struct Hops {
    macs: [Option<Mac>; PLACES],
}

impl Hops {
    pub(super) fn new(next_hop: Option<Mac>) -> Hops {
        let mut macs = [None; PLACES];
        macs[0] = next_hop;
        Hops { macs }
    }

    pub(super) fn get(&self, hop: u8) -> Option<Mac> {
        self.macs[usize::from(hop)]
    }

    /// The number of an address that a frame came from; it stays the same while others find room.
    pub(super) fn number(&mut self, mac: Mac) -> u8 {
        let home = home(mac);
        let places = (home..home + WAYS).map(|place| 1 + place % (PLACES - 1));
        for place in places {
            match self.macs[place] {
                Some(known) if known != mac => {}
                Some(_) => return place as u8,
                None => {
                    self.macs[place] = Some(mac);
                    return place as u8;
                }
            }
        }
        let place = 1 + home % (PLACES - 1);
        self.macs[place] = Some(mac);
        place as u8
    }
}

/// Fibonacci hashing: neighbours' addresses often differ in the last bytes only.
fn home(mac: Mac) -> usize {
    let mut word = [0; 8];
    word[..6].copy_from_slice(&mac);
    (u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(index: u16) -> Mac {
        let [low, high] = index.to_le_bytes();
        [2, 0, 0, 0, high, low]
    }

    #[test]
    fn a_hop_keeps_its_number() {
        let mut hops = Hops::new(Some(mac(999)));
        let numbers: Vec<u8> = (0..100).map(|index| hops.number(mac(index))).collect();
        for (index, number) in (0..100).zip(numbers) {
            assert_eq!(hops.number(mac(index)), number);
            assert_eq!(hops.get(number), Some(mac(index)));
        }
        assert_eq!(hops.get(0), Some(mac(999)));
    }

    #[test]
    fn a_flood_of_hops_leaves_the_newest_reachable() {
        let mut hops = Hops::new(None);
        for index in 0..5000 {
            let number = hops.number(mac(index));
            assert_eq!(hops.get(number), Some(mac(index)));
        }
        assert_eq!(hops.get(0), None);
    }
}
