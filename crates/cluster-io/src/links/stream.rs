//! The core of the links' thread: the address of each peer, and the two halves of a link.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster::Peer;
use cluster::message::Hold;
use crossbeam_channel::Sender;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::Key;
use crate::key::TAG_BYTES;
use crate::links::frame::{self, FRAME_MAX_BYTES, Frame, LEN_BYTES, Lane};
use crate::links::handshake::Proven;
use crate::links::{
    Command, Endpoint, HEARD_BYTES_MAX, LinkEvent, LinkId, Parcel, Weight, accept, dial,
};

/// The most parcels that wait for one peer.
pub(super) const QUEUE_MAX: usize = 1024;

/// A link without messages sends a sign of life after this time.
const ALIVE_PAUSE: Duration = Duration::from_secs(1);

/// A peer that sends nothing, or accepts nothing, for this long is disconnected (L5).
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The time for one frame, from its length to its tag.
const FRAME_TIME_MAX: Duration = Duration::from_secs(30);

/// Small frames are sent together up to this size.
const GATHER_BYTES: usize = 256 << 10;

/// The bytes read at once of a long frame, so that a claimed length alone costs no memory.
const READ_BYTES: usize = 256 << 10;

/// The time between two checks whether the driver has taken in the messages delivered to it.
const HEARD_PAUSE: Duration = Duration::from_millis(1);

/// The same line is not logged again within this time.
const LOG_PAUSE: Duration = Duration::from_secs(30);

/// The number of lines remembered for that.
const LOG_LINES_MAX: usize = 256;

/// State shared by the tasks.
pub(super) struct Hub {
    pub(super) own: Peer,
    pub(super) key: Key,
    events: Sender<LinkEvent>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// Bytes of messages that the driver has not taken in.
    heard_bytes: Arc<AtomicUsize>,
    next_link: Cell<u64>,
    pub(super) links: RefCell<BTreeMap<LinkId, mpsc::Sender<Parcel>>>,
    pub(super) dials: RefCell<HashMap<Arc<str>, mpsc::Sender<Parcel>>>,
    logged: RefCell<HashMap<String, Instant>>,
}

impl Hub {
    pub(super) fn new(
        own: Peer,
        key: Key,
        events: Sender<LinkEvent>,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Rc<Hub> {
        Rc::new(Hub {
            own,
            key,
            events,
            wake,
            heard_bytes: Arc::default(),
            next_link: Cell::new(1),
            links: RefCell::default(),
            dials: RefCell::default(),
            logged: RefCell::default(),
        })
    }

    /// Logs a warning once in a while, however often it occurs.
    pub(super) fn warn(&self, line: String) {
        let mut logged = self.logged.borrow_mut();
        let now = Instant::now();
        logged.retain(|_, at| now.duration_since(*at) < LOG_PAUSE);
        if logged.contains_key(&line) || logged.len() >= LOG_LINES_MAX {
            return;
        }
        warn!("{line}");
        logged.insert(line, now);
    }

    fn tell(&self, event: LinkEvent) {
        if self.events.try_send(event).is_err() {
            self.warn("messages are dropped: more come in than are read".to_owned());
        }
        (self.wake)();
    }

    /// Whether a message is for this process (L3). A message for one manager is for each: the
    /// leading one answers.
    fn is_for_us(&self, to: Peer) -> bool {
        to == self.own || matches!((to, self.own), (Peer::Manager(_), Peer::Manager(_)))
    }
}

/// Runs until no caller can send any more.
pub(super) async fn serve(
    hub: Rc<Hub>,
    listener: Option<TcpListener>,
    mut commands: mpsc::Receiver<Command>,
) {
    let tasks = LocalSet::new();
    let work = async {
        if let Some(listener) = listener {
            tokio::task::spawn_local(accept::serve(Rc::clone(&hub), listener));
        }
        while let Some(Command { at, parcel }) = commands.recv().await {
            route(&hub, &at, parcel);
        }
    };
    tasks.run_until(work).await;
}

fn route(hub: &Rc<Hub>, at: &Endpoint, parcel: Parcel) {
    let address = match at {
        Endpoint::Link(link) => {
            if let Some(queue) = hub.links.borrow().get(link) {
                let _ = queue.try_send(parcel); // Gone, or full: lost (L1).
            }
            return;
        }
        Endpoint::Address(address) => address,
    };
    let mut dials = hub.dials.borrow_mut();
    let queue = dials.entry(Arc::clone(address)).or_insert_with(|| {
        let (queue, queued) = mpsc::channel(QUEUE_MAX);
        tokio::task::spawn_local(dial::serve(Rc::clone(hub), Arc::clone(address), queued));
        queue
    });
    if queue.try_send(parcel).is_err() {
        debug!(to = %address, "a message is dropped: its queue is full");
    }
}

/// The messages of a link: a parcel that was already taken, and the queued ones.
pub(super) struct Ends<'a> {
    pub(super) queue: &'a mpsc::Sender<Parcel>,
    pub(super) first: Option<Parcel>,
    pub(super) queued: &'a mut mpsc::Receiver<Parcel>,
}

/// Runs a proven link until it breaks, and returns the reason. `None`: no caller sends on it any
/// more.
pub(super) async fn run(
    hub: &Rc<Hub>,
    stream: TcpStream,
    proven: Proven,
    ends: Ends<'_>,
) -> Option<String> {
    let link = LinkId(hub.next_link.get());
    hub.next_link.set(link.0 + 1);
    // Without this option small messages would wait for acknowledgements. A socket that refuses it
    // is broken.
    let _ = stream.set_nodelay(true);
    let (reading, writing) = stream.into_split();
    hub.links.borrow_mut().insert(link, ends.queue.clone());
    let Proven { from, outward, inward } = proven;
    let why = tokio::select! {
        why = read_all(hub, reading, inward, from, link) => Some(why),
        why = write_all(hub, writing, outward, ends) => why,
    };
    hub.links.borrow_mut().remove(&link);
    why
}

async fn read_all(
    hub: &Hub,
    mut stream: OwnedReadHalf,
    mut lane: Lane,
    from: Peer,
    link: LinkId,
) -> String {
    let mut bytes = Vec::new();
    loop {
        while hub.heard_bytes.load(Ordering::Relaxed) >= HEARD_BYTES_MAX {
            tokio::time::sleep(HEARD_PAUSE).await; // The driver takes them in by turns (L6).
        }
        let mut len = [0; LEN_BYTES];
        match timeout(SILENCE_MAX, stream.read_exact(&mut len)).await {
            Err(_) => return "it was silent for 5 s".to_owned(),
            Ok(Err(error)) => return error.to_string(),
            Ok(Ok(_)) => {}
        }
        let content_bytes = u32::from_le_bytes(len) as usize;
        if content_bytes > FRAME_MAX_BYTES {
            return format!("a frame of {content_bytes} bytes: {FRAME_MAX_BYTES} are the most");
        }
        let read = read_frame(&mut stream, content_bytes + TAG_BYTES, &mut bytes);
        match timeout(FRAME_TIME_MAX, read).await {
            Err(_) => return "a frame took longer than 30 s".to_owned(),
            Ok(Err(error)) => return error.to_string(),
            Ok(Ok(())) => {}
        }
        if !lane.prove(len, &bytes) {
            return "a frame's tag is wrong: it was changed on its way".to_owned();
        }
        let frame = frame::read(&bytes[..content_bytes]);
        bytes.clear();
        bytes.shrink_to(READ_BYTES);
        match frame {
            None => return "a frame says nothing that this release knows".to_owned(),
            Some(Frame::Alive) => {}
            Some(Frame::Message { to, .. }) if !hub.is_for_us(to) => {
                debug!(?to, ?from, "a message for another incarnation is dropped");
            }
            Some(Frame::Message { message, .. }) => {
                // Counted only once it is complete: a peer that stops in the middle would otherwise
                // hold up all others.
                let hold = Hold::new(Weight::new(&hub.heard_bytes, content_bytes));
                hub.tell(LinkEvent::Message { from, link, message, hold });
            }
            Some(Frame::Ask { id, bytes }) => hub.tell(LinkEvent::Ask { link, id, bytes }),
            Some(Frame::Answer { id, bytes }) => hub.tell(LinkEvent::Answer { id, bytes }),
        }
    }
}

async fn read_frame(
    stream: &mut OwnedReadHalf,
    frame_bytes: usize,
    bytes: &mut Vec<u8>,
) -> std::io::Result<()> {
    bytes.clear();
    while bytes.len() < frame_bytes {
        let start = bytes.len();
        bytes.resize(frame_bytes.min(start + READ_BYTES), 0);
        stream.read_exact(&mut bytes[start..]).await?;
    }
    Ok(())
}

async fn write_all(
    hub: &Hub,
    mut stream: OwnedWriteHalf,
    mut lane: Lane,
    ends: Ends<'_>,
) -> Option<String> {
    let Ends { queued, mut first, .. } = ends;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        bytes.shrink_to(GATHER_BYTES);
        let mut next = match first.take() {
            Some(parcel) => Some(parcel),
            None => match timeout(ALIVE_PAUSE, queued.recv()).await {
                Ok(None) => return None,
                Ok(parcel) => parcel,
                Err(_) => None,
            },
        };
        let mut tail = None;
        loop {
            match lane.put(next.as_ref(), &mut bytes) {
                Ok(end) => tail = end,
                Err(line) => hub.warn(line),
            }
            if tail.is_some() || bytes.len() >= GATHER_BYTES {
                break;
            }
            next = queued.try_recv().ok();
            if next.is_none() {
                break;
            }
        }
        // The parcel lives until its tail has left: until then its driver has booked the memory.
        let parts = [Some(&bytes[..]), tail.as_ref().map(|tail| &tail.bytes[..])];
        let tag = tail.as_ref().map(|tail| &tail.tag[..]);
        for part in parts.into_iter().chain([tag]).flatten() {
            match timeout(SILENCE_MAX, stream.write_all(part)).await {
                Err(_) => return Some("it took nothing for 5 s".to_owned()),
                Ok(Err(error)) => return Some(error.to_string()),
                Ok(Ok(())) => {}
            }
        }
    }
}
