//! Shared memory: an acceptor's clients as lanes of one transport.

use std::path::{Path, PathBuf};

use landing::shm::{
    Accepted, Acceptor, AcceptorConfig, ClientConfig, ClientEnd, RingSize, ServerEnd, Shm,
    ShmConfig,
};
use landing::{Lane, Sender, Transport, Zone, ZoneSize};

use crate::hostile::Raw;
use crate::rig::{Rig, is_whole};

/// A quarter of it holds the longest message of a test several times over, and a buffer of the zone
/// has the same length.
const RING_BYTES: u64 = 16 << 10;
const BUFFER_BYTES: usize = 4096;
/// Includes hostile ones, until their disconnection is noticed.
const CLIENTS_MAX: usize = 1000;

/// Clients in shared memory.
pub struct Mapped {
    acceptor: Option<Acceptor>,
    shm: Option<Shm>,
    zone: Zone,
    clients: Vec<ClientEnd>,
    /// The sender that a lane belongs or belonged to.
    senders: Vec<(Lane, usize)>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

fn ring() -> RingSize {
    RingSize::new(RING_BYTES).unwrap()
}

fn zone() -> Zone {
    let size = ZoneSize { buffer_bytes: BUFFER_BYTES, buffer_count: 16, completions_max: 4096 };
    Zone::ring(size, Box::new(is_whole)).unwrap()
}

fn listen(path: &Path) -> Acceptor {
    let config =
        AcceptorConfig { ring: ring(), clients_max: CLIENTS_MAX, ..AcceptorConfig::default() };
    Acceptor::listen(path, config).unwrap()
}

fn transport() -> Shm {
    Shm::new(ShmConfig { ring: ring(), ..ShmConfig::default() }).unwrap()
}

/// The next client, for which there is room.
pub fn accept(acceptor: &Acceptor) -> ServerEnd {
    loop {
        match acceptor.accept().unwrap() {
            Accepted::Client(end) => return end,
            Accepted::NoClient => std::thread::yield_now(),
            Accepted::Refused(refusal) => panic!("{refusal}"),
            Accepted::Vanished => panic!("the client went before it was served"),
        }
    }
}

impl Mapped {
    /// The server speaks first, so the server must accept while a client connects.
    fn connect<T: Send>(&mut self, index: usize, connect: fn(&Path) -> T) -> T {
        let (path, acceptor) = (&self.path, self.acceptor.as_ref().unwrap());
        let (end, client) = std::thread::scope(|scope| {
            let client = scope.spawn(|| connect(path));
            (accept(acceptor), client.join().unwrap())
        });
        let lane = self.shm.as_mut().unwrap().add(end).unwrap();
        self.senders.push((lane, index));
        client
    }

    fn client(&mut self, index: usize) -> ClientEnd {
        self.connect(index, |path| ClientEnd::connect(path, ClientConfig::default()).unwrap())
    }
}

impl Rig for Mapped {
    fn open(sender_count: usize) -> Option<Mapped> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dovetail.sock");
        let mut rig = Mapped {
            acceptor: Some(listen(&path)),
            shm: Some(transport()),
            zone: zone(),
            clients: Vec::new(),
            senders: Vec::new(),
            path,
            _directory: directory,
        };
        for index in 0..sender_count {
            let client = rig.client(index);
            rig.clients.push(client);
        }
        Some(rig)
    }

    fn receiver(&mut self) -> (&mut dyn Transport, &mut Zone) {
        (self.shm.as_mut().unwrap(), &mut self.zone)
    }

    fn send(&mut self, index: usize, messages: &[Vec<u8>]) {
        let client = &mut self.clients[index];
        // A full ring takes no more: the messages are sent again.
        let _ = messages.iter().all(|message| client.write(message).unwrap());
        client.publish();
    }

    fn index_of(&self, sender: Sender) -> usize {
        let lane = sender.as_lane().expect("lanes only");
        self.senders.iter().find(|(known, _)| *known == lane).expect("a sender of the rig").1
    }

    fn replace_client(&mut self, index: usize) {
        self.clients[index] = self.client(index);
    }

    fn restart(&mut self) {
        (self.shm, self.acceptor) = (None, None);
        self.zone = zone();
        self.senders.clear();
        (self.shm, self.acceptor) = (Some(transport()), Some(listen(&self.path)));
        for index in 0..self.clients.len() {
            // A bell may come first.
            let has_noticed = (0..2).any(|_| self.clients[index].hear().is_err());
            assert!(has_noticed, "a client sees that its server has gone");
            self.clients[index] = self.client(index);
        }
    }

    /// Sends through a client that violates the protocol and disconnects.
    fn send_raw(&mut self, index: usize, bytes: &[u8]) {
        self.connect(index, Raw::connect).publish_frame(bytes);
    }
}
