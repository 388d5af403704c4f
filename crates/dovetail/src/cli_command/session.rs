//! The connection behind the prompt: sends commands over RESP or the native protocol, and
//! reconnects when the server is back after an outage.

use client::{
    Client, ClientError, Config, ConnectError, RangeItems, Reason, RequestError, Stats, TagKey,
    Target, Written,
};

use migrate::{Place, RespLink};

use super::order::{self, Order};
use super::reply::Reply;
use crate::failure::Failure;

/// Commands that are answered more than once.
const STREAMS: [&str; 3] = ["monitor", "subscribe", "psubscribe"];

/// The server and the protocol to use.
#[derive(Clone, Debug)]
pub enum Way {
    /// RESP: any command that the server has.
    Resp(Place),
    /// The native protocol, with the server's key: the commands of [`order`].
    Native(Target, Option<TagKey>),
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The words are wrong: nothing was sent.
    Words(String),
    /// The request failed.
    Asking(String),
}

/// A server, and the connection to it while there is one.
pub struct Session {
    way: Way,
    client: Option<Client>,
    link: Option<RespLink>,
}

impl Session {
    /// Connects, or returns one line with the operation, the address, and how to fix it.
    pub fn connect(way: Way) -> Result<Session, Failure> {
        let mut session = Session { way, client: None, link: None };
        session.reach().map_err(Failure::Runtime)?;
        Ok(session)
    }

    fn reach(&mut self) -> Result<(), String> {
        match self.way.clone() {
            Way::Resp(place) => self.resp(&place).map(drop).map_err(|error| {
                let is_absent = matches!(error, migrate::Error::Connection { .. });
                let hint = "; is `dovetail serve` running? --target takes its address";
                format!("{error}{}", if is_absent { hint } else { "" })
            }),
            Way::Native(target, key) => {
                let reached = self.native(&target, key).map(drop);
                reached.map_err(|error| format!("{error}{}", hint(&error)))
            }
        }
    }

    /// The text of the prompt: the address alone if it is one.
    pub fn name(&self) -> String {
        match &self.way {
            Way::Resp(place) => place.to_string(),
            Way::Native(Target::Udp(address), _) => address.clone(),
            Way::Native(target @ Target::Shm(_), _) => target.to_string(),
        }
    }

    /// Sends the words to the server. After a failed connection the next call connects again.
    pub fn ask(&mut self, words: &[Vec<u8>]) -> Result<Reply, NoReply> {
        match self.way.clone() {
            Way::Resp(place) => {
                check_words(words)?;
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let reply = self.resp(&place).and_then(|link| link.exchange(&words));
                reply.map(Reply::from).map_err(|error| {
                    self.link = None;
                    NoReply::Asking(error.to_string())
                })
            }
            Way::Native(target, key) => {
                let order =
                    Order::from_words(words).map_err(|error| NoReply::Words(error.to_string()))?;
                let reply = self.native(&target, key).and_then(|client| execute(client, &order));
                reply.map_err(|error| {
                    if let ClientError::System(_)
                    | ClientError::Request(RequestError::NoSession(_)) = error
                    {
                        self.client = None;
                    }
                    NoReply::Asking(error.to_string())
                })
            }
        }
    }

    fn resp(&mut self, place: &Place) -> Result<&mut RespLink, migrate::Error> {
        let link = match self.link.take() {
            Some(link) => link,
            None => RespLink::open(place)?,
        };
        Ok(self.link.insert(link))
    }

    fn native(
        &mut self,
        target: &Target,
        tag_key: Option<TagKey>,
    ) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let config = Config { tag_key, ..Config::default() };
                Client::connect_with(&target.to_string(), config)?
            }
        };
        Ok(self.client.insert(client))
    }
}

/// Checks the words of a RESP command before they are sent.
pub fn check_words(words: &[Vec<u8>]) -> Result<(), NoReply> {
    let name = words.first().map(|word| String::from_utf8_lossy(word).into_owned());
    let name = name.unwrap_or_default();
    if name.starts_with('-') {
        let reason = "flags stand before it, and `dovetail cli --help` lists them";
        return Err(NoReply::Words(format!("`{name}` is no command; {reason}")));
    }
    if STREAMS.contains(&name.to_ascii_lowercase().as_str()) {
        let reason = "is answered more than once; take redis-cli for it";
        return Err(NoReply::Words(format!("`{name}` {reason}")));
    }
    Ok(())
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
        ClientError::Connect(ConnectError::NoSession { reason: Reason::Closed, .. }) => {
            "; --native-key-file takes the server's key"
        }
        ClientError::Connect(ConnectError::NoSession { .. }) => "",
        ClientError::Connect(error) if error.lacks_shm() => {
            "; `dovetail serve --shm PATH` makes it"
        }
        ClientError::Connect(_) => "; is `dovetail serve` running? --target takes its address",
        _ => "",
    }
}

fn execute(client: &mut Client, order: &Order) -> Result<Reply, ClientError> {
    Ok(match order {
        Order::Ping => {
            client.ping()?;
            Reply::Status("PONG".into())
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
            Written::Stored => Reply::Status("OK".into()),
            _ => Reply::Nil,
        },
        Order::Cas { key, value, version } => match client.cas(key, value, *version)? {
            Written::Stored => Reply::Status("OK".into()),
            Written::Missing => Reply::Status("NOT_FOUND".into()),
            Written::Changed | Written::NotStored => Reply::Status("EXISTS".into()),
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
