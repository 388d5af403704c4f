//! Tests with plans whose answer is known beforehand.

use super::jobs::Jobs;
use super::presets::Setting;
use super::server::Costs;
use super::{Item, Plan, PlanOptions, Preset, Workload, find, plan};
use crate::measure::CostTable;
use policy::Access;
use policy::LargeHelp;

/// Small items cost 100 ns, items of 100,000 bytes 20 us, and lines between cores 50 ns.
fn costs() -> CostTable {
    let row = |access: &str, batch: u32, value_bytes: u32, low: f64, high: f64| {
        format!(
            r#"{{"access":"{access}","batch":{batch},"key_bytes":8,"value_bytes":{value_bytes},
               "classes":[[{low},{high},1]]}}"#
        )
    };
    let mut rows = Vec::new();
    for access in ["get", "set"] {
        for batch in [1, 32] {
            rows.push(row(access, batch, 92, 90.0, 110.0));
            rows.push(row(access, batch, 99_992, 19_000.0, 21_000.0));
        }
    }
    let text = format!(
        r#"{{"machine":"m","date":"2023-03-25","commit":null,"command":"c","unit":"ns",
           "rows":[{}],"lines":{{"transfer_ns":50.0,"read_next_line_ns":5.0,
           "write_next_line_ns":5.0,"transfer_spread_ns":[40.0,60.0]}}}}"#,
        rows.join(",")
    );
    CostTable::from_json(&text).unwrap()
}

const OPTIONS: PlanOptions =
    PlanOptions { cores: 8, slo_ns: Some(5000.0), request_ns: 100.0, seed: 1, threads: 2 };

fn workload(item: impl Fn(u64) -> Item) -> Workload {
    Workload { about: "sample".to_owned(), items: (0..30_000).map(item).collect() }
}

/// Reads of many keys, and one write in this many to one hot key.
fn hot_writes(every: u64) -> Workload {
    workload(|index| match index % every {
        0 => Item { key: 0, access: Access::Write, size_bytes: 100 },
        _ => Item { key: 1 + index * 7919 % 100_000, access: Access::Read, size_bytes: 100 },
    })
}

#[track_caller]
fn throughput(plan: &Plan, preset: &str) -> f64 {
    plan.rows.iter().find(|row| row.preset == preset).unwrap().throughput_rps
}

#[test]
fn uniform_reads_are_served_near_capacity_by_whatever_balances() {
    let reads = workload(|index| Item { key: index, access: Access::Read, size_bytes: 100 });
    let plan = plan(&reads, &costs(), &OPTIONS).unwrap();
    assert!((plan.service_mean_ns - 200.0).abs() < 2.0, "{}", plan.service_mean_ns);
    // 8 cores of 200 ns: 40 million a second, 37 with the forwarding of 12.5 ns.
    for preset in ["dovetail", "c4", "c4-crew"] {
        let found = throughput(&plan, preset);
        assert!((33e6..40e6).contains(&found), "{preset}: {found}");
    }
    assert!(plan.rows.windows(2).all(|pair| pair[0].throughput_rps >= pair[1].throughput_rps));
    assert!(plan.rows.iter().all(|row| row.p99_ns <= 5000), "I2");
}

#[test]
fn one_hot_key_with_dear_writes_is_what_compaction_is_for() {
    let hot = workload(|index| match index % 20 {
        0 => Item { key: 0, access: Access::Write, size_bytes: 100_000 },
        _ => Item { key: index, access: Access::Read, size_bytes: 100 },
    });
    let options = PlanOptions { slo_ns: Some(400_000.0), ..OPTIONS };
    let plan = plan(&hot, &costs(), &options).unwrap();
    // Its owner cannot write it more than 50,000 times a second, so a million requests in all.
    let (crew, compacting) = (throughput(&plan, "c4-crew"), throughput(&plan, "c4-comp"));
    assert!(crew < 1.05e6, "{crew}");
    assert!(compacting > 3.0 * crew, "{compacting} {crew}");
}

#[test]
fn large_items_are_what_size_awareness_is_for() {
    // 0.5 % take a hundred times as long: a third of all work, and two of eight cores.
    let mixed = workload(|index| Item {
        key: index,
        access: Access::Read,
        size_bytes: if index % 200 == 0 { 100_000 } else { 100 },
    });
    let plan = plan(&mixed, &costs(), &OPTIONS).unwrap();
    let (aware, unaware) = (throughput(&plan, "minos"), throughput(&plan, "hkh"));
    assert!(aware > 3.0 * unaware, "{aware} {unaware}");
}

#[test]
fn idle_large_cores_take_small_requests_that_wait() {
    // Of 101 requests one is large. By packets the small ones are 59 % of all work, so they get
    // five of eight cores; by time they are 71 %, and three large cores idle while requests wait.
    let mixed = workload(|index| Item {
        key: index,
        access: Access::Read,
        size_bytes: if index % 101 == 0 { 100_000 } else { 100 },
    });
    let jobs = Jobs::draw(&mixed.items, &costs(), 1);
    let lines = costs().line_transfer().unwrap();
    let costs = Costs {
        request_ns: 400.0,
        forwarding_ns: 12.5,
        layer_forwarding_ns: 60.0,
        join_ns: 35.0,
        lines,
    };
    let setting = Setting { cores: 8, costs, slo_ns: 20_000.0 };
    let is_sustained = |large_help| {
        let preset = Preset { large_help, ..*find("dovetail").unwrap() };
        // 5.3 cores' work of small requests, and 2.2 of large ones.
        preset.set_ups(&jobs, &setting)[0].run(&jobs, 0.0107).unwrap().is_sustained
    };
    assert_eq!([LargeHelp::Off, LargeHelp::On].map(is_sustained), [false, true]);
}

#[test]
fn two_layers_pay_where_a_holder_would_receive_and_answer_each_hot_write() {
    // Writes of one key: their holder has 200 ns of work for each when it also receives and
    // replies, and half of that, or less where they are compacted, when others do.
    let options = PlanOptions { slo_ns: Some(20_000.0), ..OPTIONS };
    let plan = plan(&hot_writes(2), &costs(), &options).unwrap();
    let row = |preset| plan.rows.iter().find(|row| row.preset == preset).unwrap();
    let (tuned, one_layer) = (row("dovetail"), row("c4"));
    assert!(tuned.dispatchers > 0, "{tuned:?}");
    assert!(tuned.throughput_rps > 1.5 * one_layer.throughput_rps, "{tuned:?} {one_layer:?}");
}

#[test]
fn two_layers_lose_where_every_request_crosses_them_for_nothing() {
    let reads = workload(|index| Item { key: index, access: Access::Read, size_bytes: 100 });
    let plan = plan(&reads, &costs(), &OPTIONS).unwrap();
    let (two, one) = (throughput(&plan, "mutps-h"), throughput(&plan, "basekv"));
    // 8 cores of 260 ns and some idle time on the less busy side, against 8 cores of 200 ns.
    assert!((0.6..0.85).contains(&(two / one)), "{two} {one}");
    let tuned = plan.rows.iter().find(|row| row.preset == "dovetail").unwrap();
    assert_eq!(tuned.dispatchers, 0, "the tuner finds run to completion");
}

#[test]
fn hot_reads_stay_with_the_dispatcher() {
    let hot = workload(|index| Item { key: index % 10, access: Access::Read, size_bytes: 100 });
    let plan = plan(&hot, &costs(), &OPTIONS).unwrap();
    let row = plan.rows.iter().find(|row| row.preset == "mutps-h").unwrap();
    assert_eq!(row.dispatchers, 7, "nothing is left for the other layer: {row:?}");
}

#[test]
fn one_seed_gives_one_plan_on_any_number_of_threads() {
    let workload = hot_writes(3);
    let on = |threads| plan(&workload, &costs(), &PlanOptions { threads, ..OPTIONS }).unwrap();
    assert_eq!(on(1), on(3));
}

#[test]
fn an_slo_below_the_service_time_is_met_by_no_setup() {
    let options = PlanOptions { slo_ns: Some(50.0), ..OPTIONS };
    let plan = plan(&hot_writes(3), &costs(), &options).unwrap();
    assert!(plan.rows.iter().all(|row| row.throughput_rps == 0.0));
}

#[test]
fn options_out_of_range_are_refused() {
    for options in [
        PlanOptions { cores: 0, ..OPTIONS },
        PlanOptions { cores: 257, ..OPTIONS },
        PlanOptions { slo_ns: Some(0.0), ..OPTIONS },
        PlanOptions { request_ns: f64::NAN, ..OPTIONS },
    ] {
        assert_eq!(plan(&hot_writes(3), &costs(), &options).unwrap_err().exit_code(), 2);
    }
}
