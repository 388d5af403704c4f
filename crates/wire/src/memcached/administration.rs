//! Commands on memcached's own machinery: slabs, LRU lists, their crawler, watchers.
//!
//! This server has none of these. Commands that it can fulfil are executed, those that tools use
//! are listed, and the rest is answered as by a memcached that was started without the feature.

use super::parser::{Line, NextCommand};
use super::reply::Reply;
use super::verbs::Command;
use super::watch::EventTopics;
use super::words::{Words, parse_unsigned};

/// The minimum and maximum that memcached accepts as a limit, in MiB.
const LIMIT_MIN_MIB: u64 = 8;
const LIMIT_MAX_MIB: u64 = 1_000_000_000;

/// The maximum number of memcached's size classes.
const CLASSES: u32 = 64;

/// The format of a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// `lru_crawler metadump`: a line of facts for each key, then END.
    Facts,
    /// `lru_crawler mgdump`, of later memcacheds: an mg command for each key, then EN.
    Gets,
    /// `stats cachedump class count`: an ITEM line for each key, then END.
    Items {
        /// The size class; there is only 1.
        class: u32,
        /// The maximum number of keys; 0: unlimited.
        count_max: u32,
    },
}

impl<'a> Line<'a> {
    /// Without a topic, the client watches every look at an item.
    pub(super) fn watch(&self, words: &Words<'a>) -> NextCommand<'a> {
        let noreply = words.ends_in_noreply();
        let named = 1..words.count - usize::from(noreply);
        let mut topics = EventTopics::NONE;
        for index in named {
            match EventTopics::by_name(words.get(index)) {
                Some(topic) => topics = topics.with(topic),
                None => return self.reject(Reply::Error, noreply),
            }
        }
        if topics == EventTopics::NONE {
            topics = EventTopics::FETCHERS;
        }
        self.done(Command::Watch { topics, noreply })
    }

    pub(super) fn lru_crawler(&self, words: &Words<'a>) -> NextCommand<'a> {
        match (words.get(1), words.count) {
            // Of a class or of all: there is only one.
            (b"metadump", 3) => self.done(Command::Dump(DumpKind::Facts)),
            (b"mgdump", 3) => self.done(Command::Dump(DumpKind::Gets)),
            (b"crawl" | b"tocrawl" | b"sleep", 3) | (b"enable", 2) => {
                self.reject(Reply::NoCrawler, false)
            }
            (b"disable", 2) => self.reject(Reply::Ok, false),
            _ => self.reject(Reply::Error, false),
        }
    }

    /// `stats cachedump`, by which older tools list keys.
    pub(super) fn cache_dump(&self, words: &Words<'a>) -> NextCommand<'a> {
        if words.count < 4 {
            return self.reject(Reply::BadLine, false);
        }
        // Truncated as in memcached.
        let number = |index: usize| parse_unsigned(words.get(index)).map(|number| number as u32);
        let (Some(class), Some(count_max)) = (number(2), number(3)) else {
            return self.reject(Reply::BadFormat, false);
        };
        if class >= CLASSES {
            return self.reject(Reply::NoSuchClass, false);
        }
        self.done(Command::Dump(DumpKind::Items { class, count_max }))
    }

    pub(super) fn memory_limit(&self, words: &Words<'a>) -> NextCommand<'a> {
        if words.count != 2 && words.count != 3 {
            return self.reject(Reply::Error, false);
        }
        let noreply = words.ends_in_noreply();
        let reply = match parse_unsigned(words.get(1)).map(|mib| mib & u64::from(u32::MAX)) {
            None => Reply::Error,
            Some(0..LIMIT_MIN_MIB) => Reply::LimitTooSmall,
            Some(mib) if mib > LIMIT_MAX_MIB => Reply::LimitInBytes,
            Some(mib) => return self.done(Command::MemoryLimit { mib, noreply }),
        };
        self.reject(reply, noreply)
    }

    pub(super) fn slabs(&self, words: &Words<'_>) -> NextCommand<'a> {
        let reply = match (words.get(1), words.count) {
            (b"reassign", 4) | (b"automove", 3..) => Reply::NoSlabs,
            _ => Reply::Error,
        };
        self.reject(reply, false)
    }
}
