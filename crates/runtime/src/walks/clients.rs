//! How far a CLIENT LIST or CLIENT KILL has come.

use wire::resp::{ArgPlace, ClientFilter, KillSkipMe};

use super::Gathered;

/// The number of clients taken from the registry under one lock.
pub const CLIENTS_AT_ONCE: usize = 64;

/// A command that is being answered.
pub struct ClientsWalk {
    /// What is done with them.
    pub wanted: Wanted,
    /// How far it is.
    pub place: Place,
    /// Which clients it is about.
    pub filter: FilterPlace,
    /// The number of clients when the walk began.
    pub client_count: usize,
}

/// The action on the selected clients.
pub enum Wanted {
    /// Their lines are gathered.
    Lines(Gathered),
    /// They are closed.
    Closed {
        /// How many so far.
        count: i64,
        /// The command's own client is one of them, and is closed last.
        closes_own: bool,
    },
}

/// How far the walk has come.
pub enum Place {
    /// After this id, among the clients of the start.
    Behind {
        /// The last one that was seen.
        id: u64,
        /// The youngest of the start.
        end_id: u64,
    },
    /// At this one of the ids that the client named.
    Named(ArgPlace),
}

/// A filter as plain data: the places of its words in the command.
pub struct FilterPlace {
    /// ID.
    pub id: Option<u64>,
    /// TYPE.
    pub type_name: Option<&'static str>,
    /// ADDR.
    pub address: Option<WordPlace>,
    /// LADDR.
    pub local_address: Option<WordPlace>,
    /// MAXAGE.
    pub max_age_seconds: Option<u64>,
    /// USER.
    pub user: Option<WordPlace>,
    /// SKIPME.
    pub skip_me: KillSkipMe,
    /// The form with an address alone.
    pub old_form: bool,
}

/// The place of a word in the command.
#[derive(Clone, Copy)]
pub struct WordPlace {
    /// Where the word begins in the command.
    pub start: usize,
    /// Its length.
    pub len_bytes: usize,
}

impl WordPlace {
    /// The place of a word of the command.
    pub fn of(command: &[u8], word: &[u8]) -> WordPlace {
        let start = word.as_ptr().addr().wrapping_sub(command.as_ptr().addr());
        WordPlace { start, len_bytes: word.len() }
    }

    /// The word there.
    pub fn word(self, command: &[u8]) -> &[u8] {
        let end = self.start.saturating_add(self.len_bytes);
        command.get(self.start..end).unwrap_or_default()
    }
}

impl FilterPlace {
    /// The places of a filter's words.
    pub fn of(command: &[u8], filter: &ClientFilter<'_>) -> FilterPlace {
        let place = |word: Option<&[u8]>| word.map(|word| WordPlace::of(command, word));
        FilterPlace {
            id: filter.id,
            type_name: filter.type_name,
            address: place(filter.address),
            local_address: place(filter.local_address),
            max_age_seconds: filter.max_age_seconds,
            user: place(filter.user),
            skip_me: filter.skip_me,
            old_form: filter.old_form,
        }
    }

    /// The filter without the ids of CLIENT LIST.
    pub fn filter<'c>(&self, command: &'c [u8]) -> ClientFilter<'c> {
        let word = |place: Option<WordPlace>| place.map(|place| place.word(command));
        ClientFilter {
            ids: None,
            id: self.id,
            type_name: self.type_name,
            address: word(self.address),
            local_address: word(self.local_address),
            max_age_seconds: self.max_age_seconds,
            user: word(self.user),
            skip_me: self.skip_me,
            old_form: self.old_form,
        }
    }
}

impl ClientsWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        match &self.wanted {
            Wanted::Lines(gathered) => gathered.bytes.capacity(),
            Wanted::Closed { .. } => 0,
        }
    }

    /// Whether it takes more than one look at the registry.
    pub fn is_long(&self) -> bool {
        match &self.place {
            Place::Behind { .. } => self.client_count > CLIENTS_AT_ONCE,
            Place::Named(place) => place.remaining() > CLIENTS_AT_ONCE,
        }
    }
}
