//! CLIENT LIST and CLIENT KILL: walk some hundreds of clients per turn (K28).
//!
//! ```text
//!  ids:   1 ─▶ 2 ─▶ 5 ─┊▶ 6 ─▶ 9 ─▶ ... ─▶ end_id │ 1001, connected since: in no answer
//!         └─ a slice ──┘  └─ the next ...          │
//! ```
//!
//! # Invariants
//! I1: a client that is connected from the first slice to the last is visited once. CLIENT LIST ID
//!     reports each client as often as it is named, in that order.

use std::sync::Arc;

use base::UnixMillis;
use commands::work::Work;
use counters::Dialect;
use runtime::connection::Ending;
use runtime::walks::Caller;
use runtime::walks::ClientsWalk;
use runtime::walks::clients::{CLIENTS_AT_ONCE, FilterPlace, Place, Wanted};
use runtime::walks::{Slice, Source};
use sessions::clients::Client;
use sessions::end::End;
use wire::resp::number::parse_i64;
use wire::resp::{ClientFilter, ErrorReply, KillSkipMe};

use crate::gather::Gather;
use crate::resp::client::{client, describe};
use crate::resp::slices::{begin_slices, drop_gathered, gathered, may_gather_on};

/// The length of lines after which a slice ends: names may be long.
const SLICE_BYTES_MAX: usize = 256 << 10;

/// CLIENT LIST.
pub(super) fn list_clients<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    filter: &ClientFilter<'a>,
) {
    let wanted = Wanted::Lines(gathered(gather));
    begin_clients(gather, caller, filter, wanted);
}

/// CLIENT KILL.
pub(super) fn kill_clients<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    filter: &ClientFilter<'a>,
) {
    if let Some(user) = filter.user
        && gather.core.shared.acl().table().user(user).is_none()
    {
        return gather.fail(caller, &ErrorReply::NoSuchUser(user));
    }
    begin_clients(gather, caller, filter, Wanted::Closed { count: 0, closes_own: false });
}

fn begin_clients<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    filter: &ClientFilter<'a>,
    wanted: Wanted,
) {
    let clients = gather.core.shared.clients();
    let place = match (filter.ids, filter.id) {
        (Some(ids), _) => Place::Named(ids.place_in(gather.raw)),
        (None, Some(id)) => Place::Behind { id: id.saturating_sub(1), end_id: id },
        (None, None) => Place::Behind { id: 0, end_id: clients.last_id() },
    };
    let client_count = if filter.id.is_some() { 1 } else { clients.total() };
    let filter = FilterPlace::of(gather.raw, filter);
    let walk = ClientsWalk { wanted, place, filter, client_count };
    begin_slices(gather, caller, Source::Clients(walk));
}

/// The next clients.
pub(super) fn clients_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut ClientsWalk,
    command: &[u8],
) -> Slice {
    gather.settle(caller.slot);
    let filter = walk.filter.filter(command);
    let began = gather.core.work();
    let bytes_before = match &walk.wanted {
        Wanted::Lines(gathered) => gathered.bytes.len(),
        Wanted::Closed { .. } => 0,
    };
    loop {
        let (clients, looked_for, is_last) = next_clients(gather, &mut walk.place, command);
        let told = tell_clients(gather, caller, &mut walk.wanted, &filter, &clients);
        gather.core.charge(Work::clients(looked_for, told));
        let is_too_long = matches!(&walk.wanted, Wanted::Lines(gathered) if gathered.is_too_long);
        if is_last || is_too_long {
            end_clients(gather, caller, &mut walk.wanted, filter.old_form);
            return Slice::Last;
        }
        // A slice is booked after its turn.
        let gathered_bytes = match &walk.wanted {
            Wanted::Lines(gathered) => gathered.bytes.len() - bytes_before,
            Wanted::Closed { .. } => 0,
        };
        if gather.core.work().is_turn_since(began) || gathered_bytes >= SLICE_BYTES_MAX {
            break;
        }
    }
    if matches!(walk.wanted, Wanted::Closed { .. }) || may_gather_on(gather, caller) {
        return Slice::More;
    }
    drop_lines(gather, &mut walk.wanted);
    Slice::Last
}

/// Some clients, the number looked for, and whether there are no more.
fn next_clients(
    gather: &Gather<'_, '_>,
    place: &mut Place,
    command: &[u8],
) -> (Vec<Arc<Client>>, usize, bool) {
    let registry = gather.core.shared.clients();
    match place {
        Place::Behind { id, end_id } => {
            let clients = registry.between(*id, *end_id, CLIENTS_AT_ONCE);
            let is_last = clients.len() < CLIENTS_AT_ONCE;
            *id = clients.last().map_or(*end_id, |client| client.id);
            let looked_for = clients.len().max(1);
            (clients, looked_for, is_last)
        }
        Place::Named(ids) => {
            let mut words = ids.walk(command);
            let looked_for = words.len().min(CLIENTS_AT_ONCE);
            // Words that are not numbers were refused before.
            let named = words.by_ref().take(CLIENTS_AT_ONCE).filter_map(parse_i64);
            let named = named.filter_map(|id| u64::try_from(id).ok());
            let clients = named.filter_map(|id| registry.get(id)).collect();
            *ids = words.place_in(command);
            (clients, looked_for.max(1), words.len() == 0)
        }
    }
}

/// Lists the selected clients, or closes them; returns their number.
fn tell_clients(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    wanted: &mut Wanted,
    filter: &ClientFilter<'_>,
    clients: &[Arc<Client>],
) -> usize {
    let own_id = client(gather, caller).id;
    let spares_own = !filter.old_form && filter.skip_me == KillSkipMe::Yes;
    let mut told = 0;
    for client in clients {
        if !is_selected(filter, client, gather.core.now) {
            continue;
        }
        match wanted {
            Wanted::Lines(gathered) => {
                let line = describe(gather, caller, client);
                gather.core.charge(Work::bytes(line.len() as u64));
                gathered.append(line.as_bytes());
            }
            Wanted::Closed { .. } if spares_own && client.id == own_id => continue,
            Wanted::Closed { count, closes_own } if client.id == own_id => {
                *count += 1;
                *closes_own = true;
            }
            Wanted::Closed { count, .. } => {
                *count += 1;
                gather.core.shared.kill_client(client);
            }
        }
        told += 1;
    }
    told
}

/// The reply.
fn end_clients(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    wanted: &mut Wanted,
    is_old_form: bool,
) {
    match wanted {
        Wanted::Lines(gathered) if gathered.is_too_long => {
            let text = "too many clients for the client buffers: ask for some by their ids";
            gather.fail(caller, &ErrorReply::Other(text));
        }
        Wanted::Lines(gathered) => {
            gather.say(caller, |encoder| encoder.verbatim(&gathered.bytes));
        }
        Wanted::Closed { count, closes_own } => {
            match (is_old_form, *count) {
                (true, 0) => gather.fail(caller, &ErrorReply::NoSuchClient),
                (true, _) => gather.say(caller, |encoder| encoder.ok()),
                (false, count) => gather.say(caller, |encoder| encoder.integer(count)),
            }
            if *closes_own {
                gather.core.connections[caller.slot].ending = Ending::AfterFlush;
            }
        }
    }
    drop_lines(gather, wanted);
}

fn drop_lines(gather: &mut Gather<'_, '_>, wanted: &mut Wanted) {
    if let Wanted::Lines(gathered) = wanted {
        drop_gathered(gather, std::mem::take(gathered));
    }
}

/// Whether a filter selects a client. Ids are looked up before.
fn is_selected(filter: &ClientFilter<'_>, client: &Client, now: UnixMillis) -> bool {
    let age_seconds = now.0.saturating_sub(client.connected_at.0) / 1000;
    let is_address = |wanted: &[u8], address: &End| address.to_string().as_bytes() == wanted;
    client.protocol == Dialect::Resp
        && !client.is_killed()
        && filter
            .type_name
            .is_none_or(|name| name == if client.is_subscribed() { "pubsub" } else { "normal" })
        && filter.address.is_none_or(|address| is_address(address, &client.peer))
        && filter.local_address.is_none_or(|address| is_address(address, &client.local))
        && filter.user.is_none_or(|user| user == client.names().user().as_bytes())
        && filter.max_age_seconds.is_none_or(|least| age_seconds >= least)
}
