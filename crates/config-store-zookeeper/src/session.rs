//! The session thread: opens sessions, and lets each request run without waiting for the previous
//! one.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cluster::config_store::{Answer, Ask, Request, Response, SessionId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::LocalSet;
use zookeeper_client::{Client, CreateMode, Error};

use crate::ask::{self, Outcome};
use crate::{Event, Place};

/// The time limit for connecting to the ensemble.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves requests until no caller can send any more.
pub(crate) async fn serve(
    place: Place,
    mut requests: UnboundedReceiver<Request>,
    told: Rc<dyn Fn(Event)>,
) {
    let place = Rc::new(place);
    let tasks = LocalSet::new();
    let sessions = Rc::new(std::cell::RefCell::new(BTreeMap::<SessionId, Client>::new()));
    tasks
        .run_until(async {
            while let Some(Request { session, id, ask }) = requests.recv().await {
                let client = session.and_then(|id| sessions.borrow().get(&id).cloned());
                let (place, told) = (Rc::clone(&place), Rc::clone(&told));
                let sessions = Rc::clone(&sessions);
                // The order is kept: a client sends a request when its task is first polled.
                tokio::task::spawn_local(async move {
                    let outcome = match (client, ask) {
                        (_, Ask::Open { timeout_ns }) => match open(&place, timeout_ns).await {
                            Ok(client) => {
                                let opened = session_id(&client);
                                sessions.borrow_mut().insert(opened, client);
                                Outcome::Answer(Answer::Opened(opened))
                            }
                            Err(trouble) => Outcome::Trouble(trouble),
                        },
                        (Some(client), ask) => ask::answer(&client, &place, ask).await,
                        (None, _) => Outcome::Answer(Answer::Expired),
                    };
                    if let (Some(gone), Outcome::Answer(Answer::Expired)) = (session, &outcome) {
                        sessions.borrow_mut().remove(&gone);
                    }
                    let event = match outcome {
                        Outcome::Answer(answer) => {
                            Event::Response(Response { session, id, answer })
                        }
                        Outcome::Trouble(line) => Event::Trouble(line),
                    };
                    told(event);
                });
            }
        })
        .await;
    // Dropping the clients closes their sessions; requests under way are given up.
    drop(tasks);
    sessions.borrow_mut().clear();
    tokio::time::sleep(CLOSE_TIME).await;
}

/// The time given to the message that closes a session.
const CLOSE_TIME: Duration = Duration::from_millis(20);

/// Opens a session that lasts at least `timeout_ns` after each answer (R2), and creates the nodes'
/// parents.
async fn open(place: &Place, timeout_ns: u64) -> Result<Client, String> {
    let told = |error: Error| format!("zookeeper {}: {error}", place.hosts);
    let timeout = Duration::from_nanos(timeout_ns);
    // An ensemble grants at least two ticks, whatever is requested (R2).
    let two_ticks_or_more = connect(place, timeout).await.map_err(told)?.session_timeout();
    let wanted = timeout + two_ticks_or_more;
    let client = connect(place, wanted).await.map_err(told)?;
    if client.session_timeout() < wanted {
        return Err(format!(
            "zookeeper {} grants sessions of {:?} at most, and {wanted:?} are needed: raise its \
             maxSessionTimeout or ask for shorter sessions",
            place.hosts,
            client.session_timeout(),
        ));
    }
    let options = CreateMode::Persistent.with_acls(ask::acls(place));
    match client.mkdir(&place.root, &options).await {
        Ok(()) | Err(Error::NodeExists) => Ok(client),
        Err(error) => Err(format!("zookeeper {}: {}: {error}", place.hosts, place.root)),
    }
}

async fn connect(place: &Place, timeout: Duration) -> Result<Client, Error> {
    let mut connector =
        Client::connector().with_session_timeout(timeout).with_connection_timeout(CONNECT_TIME_MAX);
    if let Some(digest) = &place.digest {
        connector = connector.with_auth("digest", digest.as_bytes());
    }
    match tokio::time::timeout(2 * CONNECT_TIME_MAX, connector.connect(&place.hosts)).await {
        Ok(connected) => connected,
        Err(_) => Err(Error::Timeout),
    }
}

fn session_id(client: &Client) -> SessionId {
    SessionId(client.session_id().0.cast_unsigned())
}
