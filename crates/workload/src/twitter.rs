//! Twitter's 54 cache clusters of March 2020: the published numbers, read from `data/`.
//!
//! The file holds means only, so the spread of value sizes is our assumption: see
//! [`crate::profile`].

use crate::WorkloadError;

/// A lifetime and its share of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ttl {
    /// Seconds from the write on.
    pub seconds: f64,
    /// Its share of all items, 0 to 1.
    pub share: f64,
}

const TABLE: &str = include_str!("../data/twitter-clusters-2020mar.txt");

/// The number of clusters in the table.
pub const CLUSTERS: u32 = 54;

/// One cluster's published numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// 1 to [`CLUSTERS`].
    pub number: u32,
    /// Mean.
    pub key_len_bytes: usize,
    /// Mean.
    pub value_len_bytes: usize,
    /// Requests of the sampled instance, in thousands a second.
    pub kilo_requests_per_second: f64,
    /// Miss ratio in production; `None`: not published.
    pub miss_ratio: Option<f64>,
    /// `None`: not published.
    pub zipf_exponent: Option<f64>,
    /// Memcached operations and their shares of all requests; those below 1 % are left out.
    pub operations: Vec<(&'static str, f64)>,
    /// The commonest lifetimes.
    pub ttls: Vec<Ttl>,
    /// The share of keys that were requested once; `None`: not published.
    pub once_key_share: Option<f64>,
    /// The share of requests that were the first for their key; `None`: not published.
    pub first_request_share: Option<f64>,
}

impl Cluster {
    /// The numbers of cluster `number`.
    pub fn of(number: u32) -> Result<Cluster, WorkloadError> {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut clusters = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let fields = clusters.find(|fields| fields[0].parse() == Ok(number));
        let parsed = fields.and_then(|fields| parse(number, &fields));
        parsed.ok_or(WorkloadError::NotPublished { cluster: number })
    }

    /// The share of reads in the listed operations.
    pub fn read_share(&self) -> f64 {
        let sum_of = |wanted: fn(&str) -> bool| {
            self.operations
                .iter()
                .filter(|(name, _)| wanted(name))
                .map(|entry| entry.1)
                .sum::<f64>()
        };
        sum_of(|name| matches!(name, "get" | "gets")) / sum_of(|_| true)
    }
}

fn parse(number: u32, fields: &[&'static str]) -> Option<Cluster> {
    let [_, key_len, value_len, kilo_requests, miss_ratio, exponent, operations, ttls, rest @ ..] =
        fields
    else {
        return None;
    };
    let [once_key_pct, first_request_pct] = rest else { return None };
    let share_of = |pct: &str| pct.parse::<f64>().ok().map(|pct| pct / 100.0);
    let operations = operations.split(' ').map(|entry| {
        let (name, share) = entry.split_once(':')?;
        Some((name, share.parse().ok()?))
    });
    let ttls = ttls.split(',').map(|entry| {
        let (time, share) = entry.trim().split_once(':')?;
        Some(Ttl { seconds: seconds(time)?, share: share.parse().ok()? })
    });
    Some(Cluster {
        number,
        key_len_bytes: key_len.parse().ok()?,
        value_len_bytes: value_len.parse().ok()?,
        kilo_requests_per_second: kilo_requests.parse().ok()?,
        miss_ratio: miss_ratio.parse().ok(),
        zipf_exponent: exponent.parse().ok(),
        operations: operations.collect::<Option<_>>()?,
        ttls: ttls.collect::<Option<_>>()?,
        once_key_share: share_of(once_key_pct),
        first_request_share: share_of(first_request_pct),
    })
}

/// Reads `240s`, `1.8h`, `14d`.
fn seconds(text: &str) -> Option<f64> {
    let unit = text.chars().last()?;
    let factor = match unit {
        's' => 1.0,
        'h' => 3600.0,
        'd' => 86_400.0,
        _ => return None,
    };
    Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_but_the_fifth_has_numbers_that_make_sense() {
        for number in 1..=CLUSTERS {
            let Ok(cluster) = Cluster::of(number) else {
                assert_eq!(number, 5, "the repository leaves out cluster 5 alone");
                continue;
            };
            let listed: f64 = cluster.operations.iter().map(|entry| entry.1).sum();
            assert!((0.94..=1.021).contains(&listed), "{number}: operations {listed}");
            let ttl_share: f64 = cluster.ttls.iter().map(|ttl| ttl.share).sum();
            assert!(!cluster.ttls.is_empty() && ttl_share < 1.021, "{number}: {ttl_share}");
            assert!(cluster.ttls.iter().all(|ttl| ttl.seconds >= 1.0));
            assert!((10..=122).contains(&cluster.key_len_bytes), "{number}");
            assert!((0.0..3.0).contains(&cluster.zipf_exponent.unwrap_or(0.0)), "{number}");
            for share in [cluster.once_key_share, cluster.first_request_share] {
                assert!(share.is_some_and(|share| (0.0..=1.0).contains(&share)), "{number}");
            }
        }
        assert!(Cluster::of(0).is_err() && Cluster::of(CLUSTERS + 1).is_err());
    }

    #[test]
    fn the_clusters_of_mutps_are_as_its_table_says() {
        // μTPS Table 1: share of puts, mean value size, exponent.
        for (number, put_pct, value_len_bytes, exponent) in
            [(12, 80.0, 1030, 0.30), (19, 25.0, 101, 0.74), (31, 94.0, 15, 0.0)]
        {
            let cluster = Cluster::of(number).unwrap();
            assert!((100.0 * (1.0 - cluster.read_share()) - put_pct).abs() < 0.01, "{number}");
            assert_eq!(cluster.value_len_bytes, value_len_bytes);
            assert!((cluster.zipf_exponent.unwrap() - exponent).abs() < 0.01, "{number}");
        }
    }

    #[test]
    fn lifetimes_are_seconds() {
        let ttls = Cluster::of(4).unwrap().ttls;
        let found: Vec<f64> = ttls.iter().map(|ttl| ttl.seconds).collect();
        assert_eq!(found, [60.0, 300.0, 3600.0, 600.0, 14_400.0, 86_400.0]);
        assert_eq!(Cluster::of(7).unwrap().ttls[0].seconds, 1.8 * 3600.0);
        assert!(["", "5", "5m", "xs"].iter().all(|text| seconds(text).is_none()));
    }
}
