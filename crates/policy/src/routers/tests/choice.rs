//! Tests of the settings as users spell them, and of which pairs are valid.

use super::*;

#[test]
fn settings_are_read_as_they_are_written() {
    for policy in WritePolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for dispatch in DISPATCHES {
        assert_eq!(dispatch.to_string().parse(), Ok(dispatch));
    }
}

#[track_caller]
fn check_bad(text: &str, want: &str) {
    let error = text.parse::<Dispatch>().expect_err("it is bad").to_string();
    assert_eq!(error, want);
}

#[test]
fn a_bad_setting_is_answered_by_the_good_ones() {
    let error = "drew".parse::<WritePolicy>().unwrap_err().to_string();
    assert_eq!(error, "unknown write policy \"drew\"; it can be erew, crew, d-crew or crcw");
    let all = "key-hash, any, jbsq:N, round-robin, hand-off:N, steal or size-aware";
    check_bad("jbsq", &format!("unknown dispatch \"jbsq\"; it can be {all}"));
    check_bad("Any", &format!("unknown dispatch \"Any\"; it can be {all}"));
    check_bad("jbsq:0", "the N of jbsq:N can be 1 to 4294967295, not \"0\"");
    check_bad("hand-off:x", "the N of hand-off:N can be 1 to 65535, not \"x\"");
    check_bad("hand-off:65536", "the N of hand-off:N can be 1 to 65535, not \"65536\"");
}

const DISPATCHES: [Dispatch; 7] = [
    Dispatch::KeyHash,
    Dispatch::Any,
    Dispatch::Jbsq(2),
    Dispatch::RoundRobin,
    Dispatch::HandOff(1),
    Dispatch::Steal,
    Dispatch::SizeAware,
];

/// The routes of a read and of a write of partition 3, received by one of three workers, of which
/// the first is busy.
struct Ask {
    receiver: u16,
}

impl UseRouter for Ask {
    type Output = [Route; 2];

    fn with<R: Router + Send + 'static>(self, router: R) -> [Route; 2] {
        let mut depths = Depths::new(3);
        depths.add(WorkerId(0));
        [read(3), write(3)]
            .map(|request| router.route(&received_by(self.receiver, request), &depths))
    }
}

fn open(write_policy: WritePolicy, dispatch: Dispatch) -> Result<[Route; 2], NotTogether> {
    let choice = Choice {
        write_policy,
        dispatch,
        dispatcher: WorkerId(1),
        worker_count: 3,
        batch: 32,
        executes: false,
        bound_unit: 1,
        holder_depth_max: u32::MAX,
        table: WriteTable::new(64),
        plan: Arc::new(SizePlan::all_small(3, 1400)),
    };
    choice.open(Ask { receiver: 1 })
}

/// K15: a worker that receives and executes keeps small requests; a dispatcher that executes
///     nothing sends them to the shortest queue.
#[test]
fn by_size_a_receiver_that_executes_keeps_small_requests() {
    for write_policy in [WritePolicy::DCrew, WritePolicy::Crcw] {
        for (executes, want) in [(true, 0), (false, 1)] {
            let choice = Choice {
                write_policy,
                dispatch: Dispatch::SizeAware,
                dispatcher: WorkerId(0),
                worker_count: 3,
                batch: 32,
                executes,
                bound_unit: 1,
                holder_depth_max: u32::MAX,
                table: WriteTable::new(64),
                plan: Arc::new(SizePlan::all_small(3, 1400)),
            };
            let routes = choice.open(Ask { receiver: 0 }).unwrap();
            assert_eq!(routes, [to(want); 2], "{write_policy}, executes: {executes}");
        }
    }
}

/// The architecture of the presets: the router of each pair of settings.
#[test]
fn each_pair_of_settings_is_a_router_or_a_refusal() {
    use WritePolicy::{Crcw, Crew, DCrew, Erew};
    let table = [
        (Erew, [Some((0, 0)), Some((0, 0)), Some((0, 0)), Some((0, 0)), None, None, None]),
        (
            Crew,
            [
                Some((1, 0)),
                Some((1, 0)),
                Some((1, 0)),
                Some((1, 0)),
                None,
                Some((1, 0)),
                Some((1, 0)),
            ],
        ),
        (
            DCrew,
            [
                Some((0, 0)),
                Some((1, 1)),
                Some((1, 1)),
                Some((1, 2)),
                Some((1, 1)),
                None,
                Some((1, 1)),
            ],
        ),
        (
            Crcw,
            [
                Some((0, 0)),
                Some((1, 1)),
                Some((1, 1)),
                Some((1, 2)),
                Some((1, 1)),
                Some((1, 1)),
                Some((1, 1)),
            ],
        ),
    ];
    for (write_policy, wants) in table {
        for (dispatch, want) in DISPATCHES.into_iter().zip(wants) {
            let want = want.map(|(read, write)| [to(read), to(write)]);
            let found = open(write_policy, dispatch).ok();
            assert_eq!(found, want, "{write_policy} with {dispatch}");
        }
    }
}

#[test]
fn a_contradiction_says_what_would_do() {
    let error = |policy, dispatch| open(policy, dispatch).unwrap_err().to_string();
    assert_eq!(
        error(WritePolicy::Erew, Dispatch::Steal),
        "write policy erew cannot go with dispatch steal; try key-hash"
    );
    assert_eq!(
        error(WritePolicy::Crcw, Dispatch::HandOff(3)),
        "dispatch hand-off:3 leaves none of 3 workers to execute"
    );
}
