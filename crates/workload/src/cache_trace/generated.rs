//! Generates the request stream of a Twitter cluster from its published numbers.
//!
//! ```text
//!  operation by its share ─▶ write: a key with no request after this? ─yes─▶ the next new key
//!                            read, or no ────────────────────────────────▶ Zipf over lasting keys
//! ```
//!
//! The table gives the share of keys that were requested once, and the share of requests that were
//! the first for their key; their product is the share of requests for passing keys. Passing keys
//! are drawn for writes first (memcached's clients store what they computed), and for reads only if
//! writes do not suffice. The other first requests give the number of lasting keys. The popularity
//! of keys does not change otherwise: the table says nothing about it.
//!
//! Each key has one value length and one lifetime, drawn from the published shares.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::WorkloadError;
use crate::cache_trace::{Access, CacheRequest};
use crate::popularity::{Popularity, RankSampler};
use crate::profile::Profile;
use crate::scramble::{Scramble, mix};
use crate::sizes::ValueSizes;
use crate::twitter::Cluster;
use crate::twitter::Ttl;

/// The fewest lasting keys: fewer would not be a cache's workload.
const LASTING_KEYS_MIN: u64 = 1000;
/// The share of first requests in all requests, if the table does not give it.
const FIRST_SHARE_UNKNOWN: f64 = 0.1;

/// The given number of requests of a cluster.
#[derive(Clone, Debug)]
pub struct GeneratedRequests {
    left: u64,
    drawn: u64,
    random: SmallRng,
    ranks: RankSampler,
    scramble: Scramble,
    sizes: ValueSizes,
    ttls: Vec<Ttl>,
    key_len_bytes: u32,
    requests_per_ms: f64,
    write_share: f64,
    /// The shares of writes and of reads that go to passing keys.
    passing_shares: [f64; 2],
    lasting_keys: u64,
    next_passing_key: u64,
}

impl GeneratedRequests {
    /// `request_count` requests of Twitter's cluster `number`; `lasting_keys` replaces the number
    /// that follows from the table.
    pub fn twitter(
        number: u32,
        request_count: u64,
        lasting_keys: Option<u64>,
        seed: u64,
    ) -> Result<GeneratedRequests, WorkloadError> {
        let cluster = Cluster::of(number)?;
        let profile: Profile = format!("twitter-{number}").parse()?;
        let write_share = 1.0 - cluster.read_share();
        let first_share = cluster.first_request_share.unwrap_or(FIRST_SHARE_UNKNOWN);
        let once_share = cluster.once_key_share.unwrap_or(0.0);
        let passing_share = first_share * once_share;
        let lasting_found = request_count as f64 * first_share * (1.0 - once_share);
        let lasting_keys = lasting_keys.unwrap_or((lasting_found as u64).max(LASTING_KEYS_MIN));
        let ranks = RankSampler::new(profile.popularity, lasting_keys.max(1));
        debug_assert!(matches!(profile.popularity, Popularity::Zipf { .. }));
        Ok(GeneratedRequests {
            left: request_count,
            drawn: 0,
            random: SmallRng::seed_from_u64(seed),
            ranks,
            scramble: Scramble::new(lasting_keys.max(1), seed),
            sizes: profile.value_sizes(lasting_keys),
            ttls: cluster.ttls.clone(),
            key_len_bytes: cluster.key_len_bytes as u32,
            requests_per_ms: cluster.kilo_requests_per_second,
            write_share,
            passing_shares: passing_shares(passing_share, write_share),
            lasting_keys: lasting_keys.max(1),
            next_passing_key: 0,
        })
    }

    /// The number of lasting keys, which are requested again and again.
    pub fn lasting_keys(&self) -> u64 {
        self.lasting_keys
    }

    fn ttl_of(&self, key: u64) -> u32 {
        let total: f64 = self.ttls.iter().map(|ttl| ttl.share).sum();
        let mut point = mix(key ^ TTL_SALT) as f64 / u64::MAX as f64 * total;
        for ttl in &self.ttls {
            point -= ttl.share;
            if point <= 0.0 {
                return ttl.seconds as u32;
            }
        }
        self.ttls.last().map_or(0, |ttl| ttl.seconds as u32)
    }
}

/// Makes a key's lifetime independent of its size.
const TTL_SALT: u64 = 0x9e6c_63d0_876a_3f6b;

/// The shares of writes and of reads for passing keys, so that together `passing_share` of all
/// requests are for them.
fn passing_shares(passing_share: f64, write_share: f64) -> [f64; 2] {
    let by_writes = passing_share.min(write_share);
    let read_share = 1.0 - write_share;
    let of = |part: f64, whole: f64| if whole > 0.0 { (part / whole).min(1.0) } else { 0.0 };
    [of(by_writes, write_share), of(passing_share - by_writes, read_share)]
}

impl Iterator for GeneratedRequests {
    type Item = CacheRequest;

    fn next(&mut self) -> Option<CacheRequest> {
        self.left = self.left.checked_sub(1)?;
        let is_write = self.random.random::<f64>() < self.write_share;
        let passing_share = self.passing_shares[usize::from(!is_write)];
        let rank = self.ranks.draw(&mut self.random);
        let id = if self.random.random::<f64>() < passing_share {
            self.next_passing_key += 1;
            self.lasting_keys + self.next_passing_key
        } else {
            self.scramble.apply(rank)
        };
        let time_ms = (self.drawn as f64 / self.requests_per_ms) as u64;
        self.drawn += 1;
        Some(CacheRequest {
            time_ms,
            key: id,
            key_len_bytes: self.key_len_bytes,
            value_len_bytes: self.sizes.len_of(id) as u32,
            ttl_s: self.ttl_of(id),
            access: if is_write { Access::Write } else { Access::Look },
        })
    }
}
