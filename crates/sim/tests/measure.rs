//! Tests of measuring this machine: properties that hold on any machine.
use policy::Access;
use sim::measure::store_costs::Sizes;
use sim::measure::{Batching, CostTable, measure};

/// Orders only, and of sizes that are 4,000 times apart: no number of nanoseconds is asked for.
#[test]
fn a_measured_table_grows_with_the_item_and_survives_its_file() {
    let table = measure("test", "2023-03-25", None, Sizes::Few).unwrap();
    for access in [Access::Read, Access::Write] {
        for batching in [Batching::One, Batching::Full] {
            let mean_ns = |size_bytes| table.mean_ns(access, size_bytes, batching);
            let (small_ns, large_ns) = (mean_ns(16), mean_ns(8 + (64 << 10)));
            assert!(small_ns > 0.0 && small_ns < large_ns, "{small_ns} and {large_ns}");
        }
    }
    if let Some(lines) = table.file().lines {
        assert!(lines.transfer_ns > 0.0 && lines.read_next_line_ns > 0.0);
        assert!(lines.transfer_spread_ns.0 <= lines.transfer_spread_ns.1);
    }
    let text = serde_json::to_string(table.file()).unwrap();
    assert_eq!(CostTable::from_json(&text).unwrap().file(), table.file());
}
