//! The connection behind the prompt: carries orders out, and comes back after the server was away.

use client::{
    Client, ClientError, Config, ConnectError, RangeItems, Reason, RequestError, Stats, TagKey,
    Target, Written,
};

use super::order::{self, Order};
use super::reply::Reply;
use crate::failure::Failure;

/// A server, and the connection to it while there is one.
pub struct Session {
    target: Target,
    tag_key: Option<TagKey>,
    client: Option<Client>,
}

impl Session {
    /// Connects, or says in one line what, where, and what would be right.
    pub fn connect(target: Target, tag_key: Option<TagKey>) -> Result<Session, Failure> {
        let mut session = Session { target, tag_key, client: None };
        match session.client() {
            Ok(_) => Ok(session),
            Err(error) => {
                let hint = hint(&error);
                Err(Failure::Runtime(format!("{error}{hint}")))
            }
        }
    }

    /// What the prompt shows: the address alone where it is one.
    pub fn name(&self) -> String {
        match &self.target {
            Target::Udp(address) => address.clone(),
            target @ Target::Shm(_) => target.to_string(),
        }
    }

    /// Asks the server. After a connection that failed the next order connects anew.
    pub fn execute(&mut self, order: &Order) -> Result<Reply, ClientError> {
        let result = execute(self.client()?, order);
        if let Err(ClientError::System(_) | ClientError::Request(RequestError::NoSession(_))) =
            result
        {
            self.client = None;
        }
        result
    }

    fn client(&mut self) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let config = Config { tag_key: self.tag_key, ..Config::default() };
                Client::connect_with(&self.target.to_string(), config)?
            }
        };
        Ok(self.client.insert(client))
    }
}

fn hint(error: &ClientError) -> &'static str {
    match error {
        ClientError::Connect(ConnectError::TimedOut { .. }) => {
            "; --target takes the server's --native address, --native-key-file its key"
        }
        ClientError::Connect(ConnectError::NoSession { reason: Reason::Version, .. }) => {
            "; take the dovetail of the server's version"
        }
        ClientError::Connect(ConnectError::NoSession { reason: Reason::SessionsFull, .. }) => {
            "; --max-connections says how many"
        }
        ClientError::Connect(ConnectError::NoSession { .. }) => "",
        ClientError::Connect(ConnectError::Shm { .. }) => "; `dovetail serve --shm PATH` makes it",
        ClientError::Connect(_) => "; is `dovetail serve` running? --target takes its address",
        _ => "",
    }
}

fn execute(client: &mut Client, order: &Order) -> Result<Reply, ClientError> {
    Ok(match order {
        Order::Ping => {
            client.ping()?;
            Reply::Status("PONG")
        }
        Order::Get(key) => value_or_nil(client.get(key)?),
        Order::Gets(key) => match client.get_item(key)? {
            None => Reply::Nil,
            Some(item) => Reply::Array(vec![Reply::Bulk(item.value), Reply::Version(item.version)]),
        },
        Order::Mget(keys) => {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            Reply::Array(client.mget(&keys)?.into_iter().map(value_or_nil).collect())
        }
        Order::Set { key, value, options } => match client.set_with(key, value, *options)? {
            Written::Stored => Reply::Status("OK"),
            _ => Reply::Nil,
        },
        Order::Cas { key, value, version } => match client.cas(key, value, *version)? {
            Written::Stored => Reply::Status("OK"),
            Written::Missing => Reply::Status("NOT_FOUND"),
            Written::Changed | Written::NotStored => Reply::Status("EXISTS"),
        },
        Order::Del(keys) => {
            let mut deleted_count = 0;
            for key in keys {
                deleted_count += i64::from(client.delete(key)?);
            }
            Reply::Integer(deleted_count)
        }
        Order::Add { key, delta } => Reply::Integer(client.incr(key, *delta)?),
        Order::Append { key, value } => Reply::Integer(client.append(key, value)?),
        Order::Prepend { key, value } => Reply::Integer(client.prepend(key, value)?),
        Order::Touch { key, expiry } => Reply::Integer(i64::from(client.touch(key, *expiry)?)),
        Order::Range(range) => {
            let asked = range.asked();
            let is_whole = asked.items == RangeItems::Whole;
            let parts = client.range_with(asked)?.into_iter().flat_map(|(key, value)| {
                let value = is_whole.then_some(value);
                std::iter::once(key).chain(value).map(Reply::Bulk)
            });
            Reply::Array(parts.collect())
        }
        Order::Help => Reply::Lines(order::listing().lines().map(str::to_owned).collect()),
        Order::Stats => Reply::Lines(stats_lines(client.stats())),
    })
}

fn value_or_nil(value: Option<Vec<u8>>) -> Reply {
    value.map_or(Reply::Nil, Reply::Bulk)
}

fn stats_lines(stats: &Stats) -> Vec<String> {
    let rtt_us = |quantile: f64| {
        let rtt_ns = stats.rtt.quantile_ns(quantile);
        rtt_ns.map_or("none".to_owned(), |rtt_ns| format!("{:.1}", rtt_ns as f64 / 1e3))
    };
    let counts = [
        ("requests", stats.requests),
        ("completions", stats.completions),
        ("timeouts", stats.timeouts),
        ("unknowns", stats.unknowns),
        ("retries", stats.retries),
        ("busy", stats.busy),
        ("frames_sent", stats.frames_sent),
        ("frames_lost", stats.frames_lost),
        ("frames_received", stats.frames_received),
        ("frames_dropped", stats.frames_dropped),
        ("replies_late", stats.replies_late),
        ("sessions", stats.sessions),
    ];
    let counts = counts.iter().map(|(name, count)| format!("{name}:{count}"));
    let rtts = [("rtt_us_p50", 0.5), ("rtt_us_p99", 0.99)];
    let rtts = rtts.iter().map(|(name, quantile)| format!("{name}:{}", rtt_us(*quantile)));
    counts.chain(rtts).collect()
}
