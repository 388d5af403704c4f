//! Medians, quartiles and ratios of the measurements.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cluster::Layout;
use crate::comparisons::statistics::quartiles;

/// The CPU time per SET of the threads of one role on one server.
#[derive(Clone, Debug)]
pub struct Cost {
    /// `primary` or `backup`, if only one server is the primary.
    pub part: &'static str,
    /// `worker`, `control` or `other`.
    pub role: &'static str,
    /// Microseconds of CPU time.
    pub us: f64,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Or `redis`.
    pub scheme: String,
    /// The placement of primaries.
    pub layout: Layout,
    /// Requests in flight on each connection.
    pub pipeline: u64,
    /// Of each server and role.
    pub costs: Vec<Cost>,
    /// The number of logs in which others' writes landed, of all servers.
    pub streams: u64,
}

impl Sample {
    /// All servers, all roles.
    pub fn total_us(&self) -> f64 {
        self.costs.iter().map(|cost| cost.us).sum()
    }

    /// Of one role; of backups the mean of both.
    fn of(&self, part: &str, role: &str) -> f64 {
        let found = self.costs.iter().filter(|cost| (cost.part, cost.role) == (part, role));
        let count = if part == "backup" { 2.0 } else { 1.0 };
        found.map(|cost| cost.us).sum::<f64>() / count
    }
}

type Key = (String, Layout, u64);

fn grouped(samples: &[Sample]) -> BTreeMap<Key, Vec<&Sample>> {
    let mut groups: BTreeMap<Key, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let key = (sample.scheme.clone(), sample.layout, sample.pipeline);
        groups.entry(key).or_default().push(sample);
    }
    groups
}

const ROLES: [(&str, &str); 5] = [
    ("primary", "control"),
    ("primary", "worker"),
    ("backup", "control"),
    ("backup", "worker"),
    ("backup", "other"),
];

/// As in docs/results/cluster.md.
pub fn table(samples: &[Sample]) -> String {
    let groups = grouped(samples);
    let median = |key: &Key, value: &dyn Fn(&Sample) -> f64| {
        groups.get(key).map(|group| quartiles(group.iter().map(|it| value(it)).collect()))
    };
    let mut out = String::from(
        "| scheme | pipeline | all servers, us a SET | quartiles | of rpc | write streams |\n\
         |---|---|---|---|---|---|\n",
    );
    for (scheme, layout, pipeline) in groups.keys().filter(|key| key.1 == Layout::Spread) {
        let key = |scheme: &str| (scheme.to_owned(), *layout, *pipeline);
        let Some([low, middle, high]) = median(&key(scheme), &Sample::total_us) else { continue };
        let rpc = median(&key("rpc"), &Sample::total_us).map(|[_, rpc, _]| middle / rpc);
        let ratio = rpc.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let streams = median(&key(scheme), &|it| it.streams as f64).map_or(0.0, |it| it[1]);
        let _ = writeln!(
            out,
            "| {scheme} | {pipeline} | {middle:.2} | {low:.2}-{high:.2} | {ratio} | {streams} |"
        );
    }
    out += "\n| scheme, one primary | pipeline | its control thread | its worker | a backup's \
            control thread | its worker |\n|---|---|---|---|---|---|\n";
    for key @ (scheme, _, pipeline) in groups.keys().filter(|key| key.1 == Layout::OnePrimary) {
        let of = |(part, role): (&'static str, &'static str)| {
            median(key, &|sample| sample.of(part, role)).map_or(0.0, |it| it[1])
        };
        let [control, worker, backup, backup_worker, _] = ROLES.map(of);
        let _ = writeln!(
            out,
            "| {scheme} | {pipeline} | {control:.2} | {worker:.2} | {backup:.2} | \
             {backup_worker:.2} |"
        );
    }
    out
}

/// Costs by role with pipelines, for models.
pub fn csv(samples: &[Sample]) -> String {
    let mut out = String::from("scheme,role,us_per_put\n");
    for ((scheme, layout, pipeline), group) in grouped(samples) {
        if pipeline == 1 {
            continue;
        }
        let median = |value: &dyn Fn(&Sample) -> f64| {
            quartiles(group.iter().map(|sample| value(sample)).collect())[1]
        };
        if layout == Layout::Spread {
            let _ = writeln!(out, "{scheme},all_servers,{:.3}", median(&Sample::total_us));
            continue;
        }
        for (part, role) in ROLES {
            let us = median(&|sample| sample.of(part, role));
            let _ = writeln!(out, "{scheme},{part}_{role},{us:.3}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_by_scheme_and_role() {
        let cost = |part, role, us| Cost { part, role, us };
        let costs = vec![
            cost("primary", "control", 2.0),
            cost("backup", "control", 1.0),
            cost("backup", "control", 0.5),
        ];
        let one = |scheme: &str, layout| {
            let costs = costs.clone();
            Sample { scheme: scheme.to_owned(), layout, pipeline: 16, costs, streams: 3 }
        };
        let samples = [one("rpc", Layout::Spread), one("rpc", Layout::OnePrimary)];
        assert!(csv(&samples).contains("rpc,backup_control,0.750\n"));
        assert!(csv(&samples).contains("rpc,all_servers,3.500\n"));
        let table = table(&samples);
        assert!(table.contains("| rpc | 16 | 3.50 | 3.50-3.50 | 1.00 | 3 |"), "{table}");
    }
}
