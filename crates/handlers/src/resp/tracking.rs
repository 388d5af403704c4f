//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO, and the reads of clients that track.
//!
//! ```text
//!  CLIENT TRACKING ON ─▶ do all threads know? ─ no ─▶ wake them, parse the command again later
//!                               │ yes
//!  its commands:  reads  ─▶ keys into the table ─▶ run
//!                 others ─▶ what was gathered runs ─▶ run ─▶ what changed is told
//! ```
//!
//! # Invariants
//! I1: the commands of a client that tracks are executed by its own worker, in its gathering; where
//!     requests are routed, they are barriers (tracking T4).

use std::sync::Arc;

use budget::Kind;
use commands::work::Work;
use runtime::connection::Resp;
use runtime::core::tell::{self, redirect_target};
use runtime::shared::Shared;
use runtime::walks::Caller;
use sessions::acl::{PATTERN_BYTES, ReadPrefixes, Standing};
use sessions::tracking::{Consent, Mode, Overlap, Refused, Tracker, prefix_count_max};
use wire::resp::number::parse_i64;
use wire::resp::{ArgIter, Command, CommandError, CommandId, Encoder, ErrorReply, Flags};

use super::acl_log::DENIED_KEY;
use super::id_of;
use super::redirect::keys_in;
use crate::gather::Gather;
use crate::resp::acl_log::note_denied_prefix;
use crate::resp::perform_admitted;
use crate::resp::subscribe::listens_only;

const NOT_ASKED: ErrorReply<'static> = ErrorReply::Other(
    "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
     mode enabled",
);

const NOT_OPT_IN: ErrorReply<'static> =
    ErrorReply::Other("CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");

const NOT_OPT_OUT: ErrorReply<'static> =
    ErrorReply::Other("CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");

const TWO_TARGETS: ErrorReply<'static> =
    ErrorReply::Other("A client can only redirect to a single other client");

const NO_TARGET: ErrorReply<'static> =
    ErrorReply::Other("The client ID you want redirect to does not exist");

const PREFIX_ALONE: ErrorReply<'static> =
    ErrorReply::Other("PREFIX option requires BCAST mode to be enabled");

const SWITCHES_BROADCAST: ErrorReply<'static> = ErrorReply::Other(
    "You can't switch BCAST mode on/off before disabling tracking for this client, and then \
     re-enabling it with a different mode.",
);

const BROADCAST_WITH_CONSENT: ErrorReply<'static> =
    ErrorReply::Other("OPTIN and OPTOUT are not compatible with BCAST");

const BOTH_CONSENTS: ErrorReply<'static> =
    ErrorReply::Other("You can't specify both OPTIN mode and OPTOUT mode");

const SWITCHES_CONSENT: ErrorReply<'static> = ErrorReply::Other(
    "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
     re-enabling it with a different mode.",
);

const NO_ROOM: ErrorReply<'static> =
    ErrorReply::Other("the prefixes have no room in the client buffers");

const NOT_IN_CLUSTER: ErrorReply<'static> = ErrorReply::Other(
    "client-side caching is not supported in a cluster: other nodes change keys, too",
);

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct Wanted<'a> {
    redirect: Option<u64>,
    prefixes: Vec<&'a [u8]>,
    is_broadcasting: bool,
    opts_in: bool,
    opts_out: bool,
    is_no_loop: bool,
}

impl<'a> Wanted<'a> {
    fn parse(shared: &Shared, mut args: ArgIter<'a>) -> Result<Wanted<'a>, ErrorReply<'static>> {
        let mut wanted = Wanted::default();
        while let Some(word) = args.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("redirect") && args.len() > 0 {
                let id = args.next().unwrap_or_default();
                if wanted.redirect.is_some() {
                    return Err(TWO_TARGETS);
                }
                let id = parse_i64(id).ok_or(ErrorReply::NotAnInteger)?;
                let id = u64::try_from(id).map_err(|_| NO_TARGET)?;
                wanted.redirect = Some(redirect_target(shared, id).ok_or(NO_TARGET)?.id);
            } else if is("prefix") && args.len() > 0 {
                // Checked before the prefixes are gathered: more than one client may have are
                // refused anyway.
                if wanted.prefixes.len() >= prefix_count_max(shared.buffer_budget()) {
                    return Err(NO_ROOM);
                }
                wanted.prefixes.extend(args.next());
            } else if is("bcast") {
                wanted.is_broadcasting = true;
            } else if is("optin") {
                wanted.opts_in = true;
            } else if is("optout") {
                wanted.opts_out = true;
            } else if is("noloop") {
                wanted.is_no_loop = true;
            } else {
                return Err(ErrorReply::Syntax);
            }
        }
        Ok(wanted)
    }

    /// The error in the options, except for overlapping prefixes.
    fn error(&self, before: Option<&Tracker>) -> Option<ErrorReply<'static>> {
        if !self.is_broadcasting && !self.prefixes.is_empty() {
            return Some(PREFIX_ALONE);
        }
        if before.is_some_and(|before| before.is_broadcasting() != self.is_broadcasting) {
            return Some(SWITCHES_BROADCAST);
        }
        if self.is_broadcasting && (self.opts_in || self.opts_out) {
            return Some(BROADCAST_WITH_CONSENT);
        }
        if self.opts_in && self.opts_out {
            return Some(BOTH_CONSENTS);
        }
        let consent = before.and_then(Tracker::consent);
        let switches = (self.opts_in && consent == Some(Consent::OptOut))
            || (self.opts_out && consent == Some(Consent::OptIn));
        switches.then_some(SWITCHES_CONSENT)
    }

    fn consent(&self) -> Consent {
        match (self.opts_in, self.opts_out) {
            (true, _) => Consent::OptIn,
            (_, true) => Consent::OptOut,
            _ => Consent::Always,
        }
    }
}

/// Whether a plain command of this connection may take the fast path, although those of some
/// connections may not.
#[cold]
pub(super) fn is_unexceptional(gather: &mut Gather<'_, '_>, slot: usize) -> bool {
    gather.core.pauses.current().is_none() && !tracks(gather, slot) && !listens_only(gather, slot)
}

/// Whether the connection's client tracks.
pub(super) fn tracks(gather: &mut Gather<'_, '_>, slot: usize) -> bool {
    gather.core.connections[slot].resp().tracker.is_some()
}

/// Whether CLIENT TRACKING may run: before it confirms that the client tracks, every writing
/// thread knows (tracking T2).
#[cold]
pub(super) fn may_track<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: &Result<Command<'a>, CommandError<'a>>,
) -> bool {
    let Ok(Command::Operator { args, .. }) = parsed else { return true };
    let is_on = args.clone().next().is_some_and(|word| word.eq_ignore_ascii_case(b"on"));
    let standing = gather.core.connections[slot].resp().pass.standing;
    let is_refused = standing == Standing::NeedsAuth || gather.core.cluster.is_some();
    if !is_on || is_refused || gather.core.shared.run().is_stopping() {
        return true;
    }
    let client_id = gather.core.connections[slot].client.id;
    let is_ready = gather.core.shared.tracking().is_ready(client_id);
    if !is_ready {
        gather.core.shared.wake_all();
    }
    is_ready
}

/// A command of a client that tracks.
#[cold]
pub(super) fn perform_tracked<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    parsed: Result<Command<'a>, CommandError<'a>>,
    raw: &'a [u8],
) {
    let slot = caller.slot;
    let id = id_of(&parsed);
    let reads = id.is_some_and(|id| id.spec().flags.contains(Flags::READONLY));
    if reads {
        if parsed.is_ok() && !gather.core.connections[slot].resp().is_queueing() {
            remember_reads(gather, slot, id, raw);
        }
        perform_admitted(gather, caller, parsed, raw);
        return end_tracked(gather, slot, id);
    }
    let tracker = gather.core.connections[slot].resp().tracker.clone();
    let own = tracker.filter(|tracker| tracker.is_no_loop).map(|tracker| tracker.client.id);
    if own.is_some() {
        tell_changes(gather, None); // Those of others.
    }
    perform_admitted(gather, caller, parsed, raw);
    tell_changes(gather, own);
    end_tracked(gather, slot, id);
}

/// Executes the gathered requests, and sends messages about the keys they have changed.
fn tell_changes(gather: &mut Gather<'_, '_>, by: Option<u64>) {
    look_up_changes(gather, by);
    tell::send(gather.core);
}

/// Executes the gathered requests, and looks up the clients to notify of the keys they have
/// changed.
fn look_up_changes(gather: &mut Gather<'_, '_>, by: Option<u64>) {
    gather.flush();
    gather.engine.take_changes(&mut gather.core.telling.changes);
    tell::look_up(gather.core, by);
}

/// Called after a queued command of a client that tracks: the reads of the next command are
/// registered separately.
#[cold]
pub(super) fn end_queued(gather: &mut Gather<'_, '_>, slot: usize, id: Option<CommandId>) {
    let Some(tracker) = gather.core.connections[slot].resp().tracker.clone() else { return };
    if id.is_none_or(|id| !id.spec().flags.contains(Flags::READONLY)) {
        look_up_changes(gather, Some(tracker.client.id).filter(|_| tracker.is_no_loop));
    }
}

/// Ends CLIENT CACHING, which holds for one command, or for one transaction.
fn end_tracked(gather: &mut Gather<'_, '_>, slot: usize, id: Option<CommandId>) {
    let resp = gather.core.connections[slot].resp();
    let is_of_client = id.is_some_and(|id| id.name().starts_with("client|"));
    if !is_of_client && !resp.is_queueing() {
        resp.is_caching_asked = false;
    }
}

/// Called after a command that was refused before it could run.
#[cold]
pub(super) fn end_refused(gather: &mut Gather<'_, '_>, slot: usize, id: Option<CommandId>) {
    if tracks(gather, slot) {
        end_tracked(gather, slot, id);
    }
    if id == Some(CommandId::ClientTracking) {
        end_asking(gather, slot);
    }
}

/// Called after CLIENT TRACKING: a client that does not track by then is no longer about to.
#[cold]
pub(super) fn end_asking(gather: &mut Gather<'_, '_>, slot: usize) {
    let resp = gather.core.connections[slot].resp();
    // A queued command may still request it; a subscriber counts as tracking.
    if resp.tracker.is_none() && !resp.is_queueing() && !resp.is_subscribed {
        let client_id = gather.core.connections[slot].client.id;
        gather.core.shared.tracking().forget(client_id);
    }
}

/// Registers the keys that a command is about to read, if its client keeps copies (tracking
/// T3).
pub(super) fn remember_reads(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    id: Option<CommandId>,
    raw: &[u8],
) {
    let Some(id) = id.filter(|id| id.spec().flags.contains(Flags::READONLY)) else { return };
    let Resp { tracker: Some(tracker), is_caching_asked, .. } =
        gather.core.connections[slot].resp()
    else {
        return;
    };
    let is_remembered = match tracker.consent() {
        None => false,
        Some(Consent::Always) => true,
        Some(Consent::OptIn) => *is_caching_asked,
        Some(Consent::OptOut) => !*is_caching_asked,
    };
    if !is_remembered {
        return;
    }
    let client_id = tracker.client.id;
    let tracking = gather.core.shared.tracking();
    let mut work = Work::default();
    for key in keys_in(id, raw).into_iter().flatten() {
        work += tracking.remember(key, client_id, &mut gather.core.telling.taken);
    }
    gather.core.charge(work);
    gather.holds_tracked = true;
}

/// CLIENT TRACKING and related subcommands.
pub(super) fn track<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    id: CommandId,
    mut args: ArgIter<'a>,
) {
    gather.settle(caller.slot);
    match id {
        CommandId::ClientTracking => {
            let word = args.next().unwrap_or_default();
            match Wanted::parse(&gather.core.shared, args) {
                Err(error) => gather.fail(caller, &error),
                Ok(wanted) if word.eq_ignore_ascii_case(b"on") => {
                    start_tracking(gather, caller, &wanted);
                }
                Ok(_) if word.eq_ignore_ascii_case(b"off") => {
                    gather.core.connections[caller.slot].resp().tracker = None;
                    let client_id = gather.core.connections[caller.slot].client.id;
                    gather.core.shared.tracking().stop(client_id);
                    gather.say(caller, |encoder| encoder.ok());
                }
                Ok(_) => gather.fail(caller, &ErrorReply::Syntax),
            }
        }
        CommandId::ClientCaching => ask_caching(gather, caller, args.next().unwrap_or_default()),
        CommandId::ClientGetRedir => {
            let tracker = &gather.core.connections[caller.slot].resp().tracker;
            let shown = tracker.as_ref().map_or(-1, |tracker| tracker.redirect_shown());
            gather.say(caller, |encoder| encoder.integer(shown));
        }
        _ => {
            let resp = gather.core.connections[caller.slot].resp();
            let (tracker, is_asked) = (resp.tracker.clone(), resp.is_caching_asked);
            let client_id = gather.core.connections[caller.slot].client.id;
            let prefixes = gather.core.shared.tracking().prefixes_of(client_id);
            gather.say(caller, |encoder| {
                encode_info(encoder, tracker.as_deref(), &prefixes, is_asked);
            });
        }
    }
}

fn start_tracking<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, wanted: &Wanted<'a>) {
    // Each prefix is looked up among those of the command, of its client and of all clients.
    gather.core.charge(Work::keys(3 * wanted.prefixes.len()));
    let before = gather.core.connections[caller.slot].resp().tracker.clone();
    if gather.core.cluster.is_some() {
        return gather.fail(caller, &NOT_IN_CLUSTER);
    }
    if let Some(error) = wanted.error(before.as_deref()) {
        return gather.fail(caller, &error);
    }
    if wanted.is_broadcasting {
        match is_prefix_denied(gather, caller, &wanted.prefixes) {
            Ok(false) => {}
            Ok(true) => return gather.fail(caller, &DENIED_KEY),
            Err(error) => return gather.fail(caller, &error),
        }
    }
    let mode = if wanted.is_broadcasting { Mode::Broadcast } else { Mode::Read(wanted.consent()) };
    let mut tracker = Tracker::new(&gather.core.connections[caller.slot].client, mode);
    tracker.is_no_loop = wanted.is_no_loop;
    tracker.redirect = wanted.redirect;
    let tracker = Arc::new(tracker);
    let shared = &gather.core.shared;
    match shared.tracking().start(&tracker, &wanted.prefixes, shared.buffer_budget()) {
        Ok(()) => {
            gather.core.connections[caller.slot].resp().tracker = Some(tracker);
            gather.say(caller, |encoder| encoder.ok());
        }
        Err(Refused::NoRoom) => gather.fail(caller, &NO_ROOM),
        Err(Refused::Overlap(Overlap { prefix, other, is_known })) => {
            let other = &other;
            gather.fail(caller, &ErrorReply::PrefixOverlap { prefix, other, is_known });
        }
    }
}

/// Whether the client's user may not read all keys with one of these prefixes; without
/// prefixes: all keys.
fn is_prefix_denied(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    prefixes: &[&[u8]],
) -> Result<bool, ErrorReply<'static>> {
    let all: &[&[u8]] = &[b""];
    let prefixes = if prefixes.is_empty() { all } else { prefixes };
    let core = &mut *gather.core;
    let user = Arc::clone(core.connections[caller.slot].resp().pass.user(&core.acl));
    let pattern_count = user.pattern_count();
    let scratch_bytes = ((pattern_count + prefixes.len()) * PATTERN_BYTES) as u64;
    if !core.ledger.try_reserve(Kind::Groups, scratch_bytes) {
        return Err(NO_ROOM);
    }
    // The patterns are sorted, and each prefix is looked up among them.
    let sort_steps = pattern_count * (1 + pattern_count.checked_ilog2().unwrap_or(0) as usize);
    core.charge(Work::keys(prefixes.len()));
    core.charge(Work::steps((sort_steps + user.held_bytes() as usize) as u64));
    let readable = ReadPrefixes::new(&user);
    let denied = prefixes.iter().find(|prefix| !readable.covers(prefix));
    drop(readable);
    core.ledger.release(Kind::Groups, scratch_bytes);
    if let Some(prefix) = denied {
        note_denied_prefix(gather, caller, prefix, &user);
    }
    Ok(denied.is_some())
}

/// CLIENT CACHING.
fn ask_caching(gather: &mut Gather<'_, '_>, caller: Caller, word: &[u8]) {
    let resp = gather.core.connections[caller.slot].resp();
    let consent = resp.tracker.as_ref().map(|tracker| tracker.consent());
    let error = match consent {
        None => NOT_ASKED,
        Some(consent) if word.eq_ignore_ascii_case(b"yes") => {
            if consent == Some(Consent::OptIn) {
                resp.is_caching_asked = true;
                return gather.say(caller, |encoder| encoder.ok());
            }
            NOT_OPT_IN
        }
        Some(consent) if word.eq_ignore_ascii_case(b"no") => {
            if consent == Some(Consent::OptOut) {
                resp.is_caching_asked = true;
                return gather.say(caller, |encoder| encoder.ok());
            }
            NOT_OPT_OUT
        }
        Some(_) => ErrorReply::Syntax,
    };
    gather.fail(caller, &error);
}

/// CLIENT TRACKINGINFO.
fn encode_info(
    encoder: &mut Encoder<'_>,
    tracker: Option<&Tracker>,
    prefixes: &[Box<[u8]>],
    is_asked: bool,
) {
    let mut flags = vec![if tracker.is_some() { "on" } else { "off" }];
    let mut redirect = -1;
    if let Some(tracker) = tracker {
        match tracker.consent() {
            None => flags.push("bcast"),
            Some(Consent::Always) => {}
            Some(Consent::OptIn) => {
                flags.push("optin");
                flags.extend(is_asked.then_some("caching-yes"));
            }
            Some(Consent::OptOut) => {
                flags.push("optout");
                flags.extend(is_asked.then_some("caching-no"));
            }
        }
        flags.extend(tracker.is_no_loop.then_some("noloop"));
        flags.extend(tracker.is_broken().then_some("broken_redirect"));
        redirect = tracker.redirect_shown();
    }
    encoder.map_header(3);
    encoder.bulk(b"flags");
    encoder.set_header(flags.len());
    flags.iter().for_each(|flag| encoder.bulk(flag.as_bytes()));
    encoder.bulk(b"redirect");
    encoder.integer(redirect);
    encoder.bulk(b"prefixes");
    encoder.array_header(prefixes.len());
    prefixes.iter().for_each(|prefix| encoder.bulk(prefix));
}
