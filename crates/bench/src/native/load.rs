//! One native connection and its outstanding requests, which complete in any order.

use std::collections::VecDeque;
use std::io;

use client::{
    Answer, Condition, Connection, Direction, Expiry, ItemValue, Items, Op, Range, RangeItems,
    RequestError, Set, Status, SubmitError, Token, Want,
};
use workload::values;

use crate::connection::{Kind, Source, WriteBack};
use crate::items::{is_large, is_right};
use crate::lane::Step;
use crate::plan::Plan;
use crate::tally::Tally;

#[derive(Clone, Copy, Debug)]
struct Pending {
    kind: Kind,
    id: u64,
    /// The time when it was submitted, or meant to be submitted.
    start_ns: u64,
}

pub(super) struct Load<'a> {
    pub(super) connection: Connection,
    source: Source<'a>,
    /// The requests, by the token's index.
    pending: Vec<Option<Pending>>,
    pending_count: usize,
    write_backs: VecDeque<WriteBack>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The version of the next write.
    version: u32,
}

impl<'a> Load<'a> {
    pub(super) fn new(connection: Connection, source: Source<'a>, plan: &Plan) -> Load<'a> {
        let place_count = plan.pipeline.max(super::POPULATE_DEPTH);
        Load {
            connection,
            source,
            pending: vec![None; place_count],
            pending_count: 0,
            write_backs: VecDeque::new(),
            key: vec![0; plan.key_format.len_max_bytes()],
            value: Vec::new(),
            version: 0,
        }
    }

    /// Switches from populating to load, with no request outstanding.
    pub(super) fn set_source(&mut self, source: Source<'a>) {
        debug_assert!(self.pending_count == 0);
        self.source = source;
        self.version = 1;
    }

    /// Whether no request is outstanding or to follow.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding_count() == 0
    }

    pub(super) fn has_answered_all(&self) -> bool {
        self.pending_count == 0
    }

    pub(super) fn outstanding_count(&self) -> usize {
        self.pending_count + self.write_backs.len()
    }

    pub(super) fn outstanding_start_ns(&self) -> impl Iterator<Item = u64> + '_ {
        let backs = self.write_backs.iter().map(|back| back.start_ns);
        self.pending.iter().flatten().map(|pending| pending.start_ns).chain(backs)
    }

    /// Submits requests until `depth` are outstanding or the source is empty; returns whether any
    /// was submitted.
    pub(super) fn fill(&mut self, plan: &Plan, depth: usize, now_ns: u64) -> bool {
        let before = self.pending_count;
        self.push_write_backs(plan);
        while self.pending_count < depth && self.push(plan, now_ns) {}
        self.pending_count > before
    }

    pub(super) fn push_write_backs(&mut self, plan: &Plan) {
        while let Some(back) = self.write_backs.pop_front() {
            let pending = Pending { kind: Kind::WriteBack, id: back.id, start_ns: back.start_ns };
            self.submit_set(plan, pending, back.version);
        }
    }

    /// Submits the next request; false when the source has no more.
    pub(super) fn push(&mut self, plan: &Plan, start_ns: u64) -> bool {
        let Some(step) = self.source.advance() else { return false };
        let pending = |kind, id| Pending { kind, id, start_ns };
        match step {
            Step::Read(id) => self.submit_get(plan, pending(Kind::Read, id)),
            Step::ReadModifyWrite(id) => self.submit_get(plan, pending(Kind::ReadToModify, id)),
            Step::Update(id) => self.submit_write(plan, pending(Kind::Write, id)),
            Step::Insert(id) => self.submit_write(plan, pending(Kind::Insert, id)),
            Step::Scan { id, keys } => self.submit_scan(plan, pending(Kind::Scan, id), keys),
        }
        true
    }

    fn submit_get(&mut self, plan: &Plan, pending: Pending) {
        let len = plan.key_format.write(pending.id, &mut self.key);
        let op = Op::Get { key: &self.key[..len], touch: None };
        let submitted = self.connection.submit(&op, Want::PLAIN);
        self.expect(pending, submitted);
    }

    fn submit_write(&mut self, plan: &Plan, pending: Pending) {
        self.submit_set(plan, pending, self.version);
        self.version = self.version.wrapping_add(1);
    }

    fn submit_set(&mut self, plan: &Plan, pending: Pending, version: u32) {
        let len = plan.key_format.write(pending.id, &mut self.key);
        self.value.resize(plan.value_sizes.len_of(pending.id), 0);
        values::fill(pending.id, version, &mut self.value);
        let op = Op::Set(Set {
            key: &self.key[..len],
            value: &self.value,
            client_flags: 0,
            expiry: Expiry::Never,
            condition: Condition::Always,
            part: None,
        });
        let submitted = self.connection.submit(&op, Want::PLAIN);
        self.expect(pending, submitted);
    }

    fn submit_scan(&mut self, plan: &Plan, pending: Pending, keys: u64) {
        let len = plan.key_format.write(pending.id, &mut self.key);
        let op = Op::Range(Range {
            start: std::ops::Bound::Included(&self.key[..len]),
            end: std::ops::Bound::Unbounded,
            direction: Direction::Forward,
            items: RangeItems::Whole,
            item_limit: keys as u32,
        });
        let submitted = self.connection.submit(&op, Want::PLAIN);
        self.expect(pending, submitted);
    }

    fn expect(&mut self, pending: Pending, submitted: Result<Token, SubmitError>) {
        // There are as many places as requests: a refusal here means that no server would accept
        // the request.
        let token = submitted.expect("the plan's keys and values fit, and so does the pipeline");
        self.pending[token.index()] = Some(pending);
        self.pending_count += 1;
    }

    /// Whether something arrived or ended.
    pub(super) fn has_news(&mut self) -> io::Result<bool> {
        Ok(self.connection.poll()? > 0 || self.connection.has_completion())
    }

    /// Sends submitted requests and settles the ended ones; returns whether anything arrived.
    pub(super) fn exchange(
        &mut self,
        plan: &Plan,
        tally: &mut Tally,
        now_ns: impl FnOnce() -> u64,
    ) -> io::Result<bool> {
        let count = self.connection.poll()?;
        if !self.connection.has_completion() {
            return Ok(count > 0);
        }
        let now_ns = now_ns();
        while let Some(completion) = self.connection.next_completion() {
            let Some(pending) = self.pending[completion.token.index()].take() else { continue };
            self.pending_count -= 1;
            let kind = pending.kind;
            let back = settle(plan, tally, &pending, &completion.result);
            if kind == Kind::Insert
                && let Source::Load(lane) = &mut self.source
            {
                lane.inserted();
            }
            match back {
                Some(back) => self.write_backs.push_back(back),
                None => {
                    let is_large = is_large(&plan.value_sizes, pending.id);
                    tally.answer(now_ns.saturating_sub(pending.start_ns), is_large);
                }
            }
        }
        Ok(true)
    }
}

/// Counts one ended request; returns the write that follows it, if any.
fn settle(
    plan: &Plan,
    tally: &mut Tally,
    pending: &Pending,
    result: &Result<Answer<'_>, RequestError>,
) -> Option<WriteBack> {
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            tally.refuse(|| error.to_string());
            return None;
        }
    };
    match (pending.kind, answer.status) {
        (Kind::Write | Kind::Insert | Kind::WriteBack, Status::Ok) => {
            tally.write_count += 1;
            tally.operation_count += 1;
            None
        }
        (Kind::Read | Kind::ReadToModify, Status::Ok) => {
            tally.hit_count += 1;
            let version = values::check(pending.id, answer.value);
            let is_right_len = answer.value.len() == plan.value_sizes.len_of(pending.id);
            tally.mismatch_count += u64::from(version.is_none() || !is_right_len);
            follow(tally, pending, version.unwrap_or(0))
        }
        (Kind::Read | Kind::ReadToModify, Status::Miss) => {
            tally.miss_count += 1;
            follow(tally, pending, 0)
        }
        (Kind::Scan, Status::Ok) => {
            tally.operation_count += 1;
            for item in Items::new(answer.value) {
                if let ItemValue::Here(value) = item.value {
                    tally.scanned(is_right(&plan.key_format, &plan.value_sizes, item.key, value));
                }
            }
            None
        }
        (_, status) => {
            tally.refuse(|| format!("{status:?}"));
            None
        }
    }
}

fn follow(tally: &mut Tally, pending: &Pending, version_read: u32) -> Option<WriteBack> {
    if pending.kind == Kind::Read {
        tally.operation_count += 1;
        return None;
    }
    let version = version_read.wrapping_add(1);
    Some(WriteBack { id: pending.id, version, start_ns: pending.start_ns })
}
