//! A client that sends many requests at once to each server, and learns the servers of slots.
//!
//! ```text
//!  requests ─ by slot ─▶ n1: GET GET GET ─▶ replies, in order
//!                        n2: GET GET     ─▶ MOVED: the slot's server from the next time on
//! ```

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;

use anyhow::Result;

use super::resp::{Reply, connect, reply};

/// One connection per server.
pub struct Pipe {
    servers: Vec<String>,
    by_slot: HashMap<u16, String>,
    connections: HashMap<String, BufReader<TcpStream>>,
    next: usize,
}

impl Pipe {
    /// A client of these servers.
    pub fn new(servers: &[String]) -> Pipe {
        let (by_slot, connections) = (HashMap::new(), HashMap::new());
        Pipe { servers: servers.to_vec(), by_slot, connections, next: 0 }
    }

    /// Sends each request, a line, to the server of its slot. Returns the answers in the order of
    /// the requests; `None`: the slot is elsewhere, not served, or unknown.
    pub fn ask(&mut self, requests: &[(u16, String)]) -> Vec<Option<Reply>> {
        let mut by_server: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, (slot, _)) in requests.iter().enumerate() {
            let at = self.by_slot.get(slot).cloned().unwrap_or_else(|| self.any());
            by_server.entry(at).or_default().push(index);
        }
        let mut replies = vec![None; requests.len()];
        for (at, indices) in by_server {
            let slots = indices.iter().map(|index| requests[*index].0);
            if self.exchange(&at, requests, &indices, &mut replies).is_err() {
                self.connections.remove(&at);
                slots.for_each(|slot| drop(self.by_slot.remove(&slot)));
            }
        }
        replies
    }

    fn exchange(
        &mut self,
        at: &str,
        requests: &[(u16, String)],
        indices: &[usize],
        replies: &mut [Option<Reply>],
    ) -> Result<()> {
        if !self.connections.contains_key(at) {
            self.connections.insert(at.to_owned(), connect(at)?);
        }
        let Some(connection) = self.connections.get_mut(at) else { return Ok(()) };
        let text: String = indices.iter().map(|index| requests[*index].1.as_str()).collect();
        connection.get_mut().write_all(text.as_bytes())?;
        for index in indices {
            let slot = requests[*index].0;
            match reply(connection)? {
                Reply::Error(line) => match line.strip_prefix("MOVED ") {
                    Some(_) => {
                        let to = line.rsplit(' ').next().unwrap_or_default().to_owned();
                        self.by_slot.insert(slot, to);
                    }
                    None => drop(self.by_slot.remove(&slot)),
                },
                reply => {
                    self.by_slot.insert(slot, at.to_owned());
                    replies[*index] = Some(reply);
                }
            }
        }
        Ok(())
    }

    fn any(&mut self) -> String {
        self.next = (self.next + 1) % self.servers.len();
        self.servers[self.next].clone()
    }
}
