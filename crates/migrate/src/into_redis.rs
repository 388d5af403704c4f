//! Writes items through Dovetail's RESP port: SET with the remaining lifetime of each item. In a
//! cluster each item goes to the node that has its slot.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::address::Place;
use crate::copy::{Tally, Target};
use crate::error::Error;
use crate::from_redis::RespLink;
use crate::item::Item;
use crate::nodes::{Elsewhere, Node, Nodes};
use crate::resp::{Reply, write_request};

/// Errors that concern one key; all others end the copy.
const OF_ONE_KEY: &[u8] = b"ERR ";

/// Most redirections of an item before that counts as a failure.
const ROUNDS_MAX: u32 = 5;

/// The target `redis://`.
#[derive(Debug)]
pub struct IntoRedis {
    nodes: Nodes,
    replaces: bool,
    /// A longer value would end the connection, and the copy with it.
    value_bytes_max: u64,
}

/// Items for one node, with or without ASKING, and the bytes to send.
#[derive(Default)]
struct Parcel<'i> {
    items: Vec<(&'i Item, bool)>,
    requests: Vec<u8>,
}

impl IntoRedis {
    /// Connects. `replaces`: existing keys are overwritten.
    pub fn connect(place: &Place, replaces: bool) -> Result<IntoRedis, Error> {
        let mut nodes = Nodes::connect(place)?;
        let value_bytes_max = value_bytes_max(nodes.entrance()?)?;
        Ok(IntoRedis { nodes, replaces, value_bytes_max })
    }

    fn put(&self, item: &Item, left: Option<Duration>, requests: &mut Vec<u8>) {
        let left_ms = left.map(|left| left.as_millis().to_string());
        let mut words: Vec<&[u8]> = vec![b"SET", &item.key, &item.value];
        if let Some(left_ms) = &left_ms {
            words.extend_from_slice(&[b"PX", left_ms.as_bytes()]);
        }
        if !self.replaces {
            words.push(b"NX");
        }
        write_request(&words, requests);
    }

    /// The items by their nodes.
    fn pack<'i>(
        &self,
        items: Vec<(&'i Item, Option<Node>)>,
        tally: &mut Tally,
    ) -> BTreeMap<Node, Parcel<'i>> {
        let mut parcels: BTreeMap<Node, Parcel<'i>> = BTreeMap::new();
        for (item, asked) in items {
            let Some(left) = item.expiry.left() else {
                tally.expired += 1;
                continue;
            };
            let node = asked.as_ref().unwrap_or_else(|| self.nodes.owner(&item.key));
            let parcel = parcels.entry(node.clone()).or_default();
            if asked.is_some() {
                write_request(&[b"ASKING"], &mut parcel.requests);
            }
            self.put(item, left, &mut parcel.requests);
            parcel.items.push((item, asked.is_some()));
        }
        parcels
    }

    /// Sends to every node, then reads from each; returns the redirected items.
    fn deliver<'i>(
        &mut self,
        parcels: &BTreeMap<Node, Parcel<'i>>,
        tally: &mut Tally,
    ) -> Result<Vec<(&'i Item, Option<Node>)>, Error> {
        for (node, parcel) in parcels {
            self.nodes.link(node)?.send(&parcel.requests)?;
        }
        let mut elsewhere = Vec::new();
        for (node, parcel) in parcels {
            for (item, is_asking) in &parcel.items {
                let link = self.nodes.link(node)?;
                if *is_asking {
                    link.receive()?;
                }
                let Some(answer) = judge(link, item, tally)? else { continue };
                match Elsewhere::read(&answer, node) {
                    Some(Elsewhere::Moved(slot, owner)) => {
                        self.nodes.learn(slot, owner);
                        elsewhere.push((*item, None));
                    }
                    Some(Elsewhere::Ask(owner)) => elsewhere.push((*item, Some(owner))),
                    None => return Err(self.nodes.link(node)?.refused(&answer, hint(&answer))),
                }
            }
        }
        Ok(elsewhere)
    }
}

/// Reads the result of an item; returns an answer that does not concern it alone.
fn judge(link: &mut RespLink, item: &Item, tally: &mut Tally) -> Result<Option<Vec<u8>>, Error> {
    match link.receive()? {
        Reply::Simple(_) => {
            tally.copied += 1;
            tally.bytes += item.bytes();
        }
        Reply::Bulk(None) => tally.existed += 1,
        Reply::Error(answer) if answer.starts_with(OF_ONE_KEY) => {
            let reason = String::from_utf8_lossy(&answer).into_owned();
            *tally.refused.entry(reason).or_default() += 1;
        }
        Reply::Error(answer) => return Ok(Some(answer)),
        _ => return Err(link.unexpected("an answer to SET that is neither")),
    }
    Ok(None)
}

fn hint(answer: &[u8]) -> &'static str {
    if answer.starts_with(b"OOM") {
        "; a larger --memory holds more, --mode cache evicts"
    } else {
        ""
    }
}

/// The target's longest value, if it reports it.
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
        let mut left = Vec::with_capacity(items.len());
        for item in items {
            if item.value.len() as u64 > self.value_bytes_max {
                let max = self.value_bytes_max;
                let reason = format!("a value above the target's proto-max-bulk-len of {max}");
                *tally.refused.entry(reason).or_default() += 1;
                continue;
            }
            left.push((item, None));
        }
        for _ in 0..ROUNDS_MAX {
            let parcels = self.pack(left, tally);
            left = self.deliver(&parcels, tally)?;
            if left.is_empty() {
                return Ok(());
            }
        }
        // The map is changing, or two nodes redirect to each other: the item is retried later, or
        // refused.
        let sent_around = b"TRYAGAIN keys are sent from node to node";
        Err(self.nodes.entrance()?.refused(sent_around, ""))
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.nodes.reconnect()
    }
}
