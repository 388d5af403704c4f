//! Tests of configurations: their rules and their byte format.

use super::*;

fn node(name: u16) -> NodeId {
    NodeId { name, incarnation: 1 }
}

fn addresses() -> Addresses {
    let (host, peer) = ("db2.example".to_owned(), "10.0.0.2:7400".to_owned());
    Addresses { host, resp: 6379, native: 7379, admin: 9379, peer, ..Addresses::default() }
}

fn example() -> Configuration {
    let shards = even_ranges(3).map(|(first, last)| Shard {
        first,
        last,
        epoch: 1,
        primary: node(1),
        backups: vec![node(2), node(3)],
        joining: None,
        filling_from: None,
        waiting: Vec::new(),
    });
    let members = vec![node(1), node(2), node(3), node(4)];
    let mut configuration = Configuration {
        term: Term(7),
        members,
        shards: shards.collect(),
        addresses: BTreeMap::from([(node(2), Arc::new(addresses()))]),
    };
    configuration.shards[1].joining = Some(node(4));
    configuration.shards[2].filling_from = Some(node(3));
    configuration.shards[2].waiting = vec![node(8), node(9)];
    configuration
}

#[test]
fn every_slot_has_its_shard() {
    let configuration = example();
    assert_eq!(configuration.validate(), Ok(()));
    for slot in (0..SLOT_COUNT).map(Slot) {
        let shard = configuration.shard(configuration.shard_of_slot(slot)).unwrap();
        assert!((shard.first..=shard.last).contains(&slot), "{slot:?}");
    }
    for shard_count in [1, 2, 3, 64, 1000, SLOT_COUNT] {
        assert_eq!(even_ranges(shard_count).last().unwrap().1, Slot(SLOT_COUNT - 1));
        for (shard, (first, last)) in even_ranges(shard_count).enumerate().step_by(7) {
            let shard = ShardId(shard as u16);
            assert_eq!([first, last].map(|slot| even_shard(shard_count, slot)), [shard; 2]);
        }
    }
}

#[test]
fn broken_rules_are_found() {
    #[track_caller]
    fn check(want: &str, break_it: impl Fn(&mut Configuration)) {
        let mut configuration = example();
        break_it(&mut configuration);
        let found = configuration.validate().unwrap_err();
        assert!(found.contains(want), "{found}");
        assert_eq!(Configuration::decode(&configuration.encode()), Err(DecodeError::Damaged));
    }
    check("C1", |broken| broken.shards[1].first = Slot(9));
    check("C1", |broken| drop(broken.shards.pop()));
    check("C2", |broken| broken.shards[0].backups.push(node(1)));
    check("C2", |broken| broken.shards[2].waiting.push(node(3)));
    check("C3", |broken| broken.shards[0].filling_from = Some(node(4)));
    check("sorted", |broken| broken.members.reverse());
    check("C5", |broken| drop(broken.addresses.insert(node(9), Arc::default())));
    let host = "x".repeat(300);
    let long = Arc::new(Addresses { host, ..addresses() });
    check("C5", |broken| drop(broken.addresses.insert(node(1), long.clone())));
}

#[test]
fn bytes_are_read_back_and_damage_is_found() {
    let bytes = example().encode();
    assert_eq!(Configuration::decode(&bytes), Ok(example()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Configuration::decode(&damaged).is_err(), "byte {at}");
        assert!(Configuration::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    // An earlier format had no addresses: it is refused, not misread.
    for found in [1, 9] {
        let mut other = bytes.clone();
        other[4] = found as u8;
        let want = DecodeError::UnknownVersion { found, known: 3 };
        assert_eq!(Configuration::decode(&other), Err(want));
    }
}

#[test]
fn a_copy_that_is_filling_is_not_full() {
    let configuration = example();
    let full = |shard: usize| configuration.shards[shard].full_copies().count();
    assert_eq!((full(0), full(1), full(2)), (3, 3, 2));
    assert_eq!(configuration.shards[1].role_of(node(4)), Some(Role::Joining));
}

#[test]
fn ports_of_tls_are_read_back_and_older_releases_read_what_has_none() {
    let plain = example();
    assert_eq!(plain.encode()[4], 2, "the format without them");
    let mut sealed = example();
    let addresses = Addresses { resp: 0, tls_resp: 6380, tls_memcached: 11_212, ..addresses() };
    assert_eq!(addresses.memcached_port(true), Some(11_212));
    assert_eq!((addresses.memcached_port(false), addresses.resp_port(false)), (None, None));
    sealed.addresses.insert(node(2), Arc::new(addresses));
    let bytes = sealed.encode();
    assert_eq!((bytes[4], Configuration::decode(&bytes)), (3, Ok(sealed)));
    assert_eq!(bytes.len(), plain.encode().len() + 4);
}
