//! Rules for manifests: dependencies follow the drawn arrows, and every dependency has a reason.

use toml::Table;

use crate::tidy::{Problem, Repository};

/// The drawn arrows: a crate and the crates it may use besides `base`. A new one needs a decision
/// note.
const ARROWS: [(&str, &str); 39] = [
    ("base", ""),
    ("wire", ""),
    ("workload", ""),
    ("policy", ""),
    // What the store finds entries by, and the memory under it (decision 0105).
    ("index", ""),
    ("store", "index"),
    ("landing", ""),
    ("landing-rdma", "landing"),
    ("cluster", "store"),
    ("config-store-zookeeper", "cluster"),
    // The config store in the cluster's own servers (decision 0116).
    ("config-store-quorum", "cluster"),
    // Sockets and files of the cluster; policy says which shards move.
    ("cluster-io", "cluster config-store-quorum config-store-zookeeper policy"),
    // A server, from the bottom: each of its floors is a crate (decision 0104).
    ("host", "store"),
    ("counters", "policy wire"),
    ("budget", "store"),
    ("config", "cluster cluster-io policy store host"),
    ("commands", "policy store wire counters"),
    ("sessions", "store wire host counters budget config commands"),
    ("dispatch", "policy store wire host counters budget config commands"),
    (
        "replication",
        "cluster cluster-io landing store wire host counters budget config commands dispatch",
    ),
    (
        "runtime",
        "cluster landing policy store wire host counters budget config commands sessions \
         dispatch replication",
    ),
    (
        "observe",
        "cluster policy store host counters budget config sessions dispatch replication \
         runtime",
    ),
    ("control", "policy store wire host counters config sessions dispatch runtime"),
    (
        "handlers",
        "cluster landing store wire host counters budget config commands sessions dispatch \
         replication runtime observe",
    ),
    (
        "native",
        "cluster landing policy store wire host counters budget config commands sessions \
         replication runtime",
    ),
    (
        "workers",
        "cluster landing policy store wire host counters budget config commands sessions \
         dispatch replication runtime handlers native",
    ),
    (
        "server",
        "cluster cluster-io landing policy store wire host counters budget config commands \
         sessions dispatch replication runtime observe control handlers native workers",
    ),
    ("client", "wire landing"),
    ("client-c", "client"),
    ("bench", "client wire store workload"),
    ("sim", "policy cluster store workload"),
    // What xtask and lab share: steps, and the programs they start.
    ("steps", ""),
    // Builds xtask.
    ("launch", "steps"),
    // The papers' figures, and comparisons with peers; in no shipped binary.
    ("lab", "policy sim steps workload"),
    // Other servers' configuration and keys.
    ("migrate", "wire"),
    (
        "dovetail",
        "server config host sessions replication sim bench client cluster cluster-io migrate wire",
    ),
    (
        "fuzz",
        "migrate wire store policy client server counters sessions cluster config-store-quorum \
         cluster-io",
    ),
    // The judge of histories.
    ("xtask", "steps workload"),
    // The linearizability checker drives the server from outside.
    ("blackbox", "server workload"),
];

/// All rules of this module.
pub fn check(repository: &Repository) -> Vec<Problem> {
    [arrows, reasons, lints].iter().flat_map(|rule| rule(repository)).collect()
}

fn manifests(repository: &Repository) -> impl Iterator<Item = (&str, &str, Table)> {
    let members = repository.named(|path| path.ends_with("/Cargo.toml"));
    members.filter_map(|(path, text)| Some((path, text, text.parse::<Table>().ok()?)))
}

fn package_name(manifest: &Table) -> &str {
    manifest.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default()
}

fn is_ours(name: &str) -> bool {
    ARROWS.iter().any(|(ours, _)| *ours == name)
}

fn arrows(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, _, manifest) in manifests(repository) {
        let name = package_name(&manifest);
        let Some((_, may_use)) = ARROWS.iter().find(|(ours, _)| *ours == name) else {
            problems.push(Problem::of(path, format!("the crate {name} is not on the map")));
            continue;
        };
        let Some(dependencies) = manifest.get("dependencies").and_then(|table| table.as_table())
        else {
            continue;
        };
        for used in dependencies.keys().filter(|used| is_ours(used) && *used != "base") {
            if !may_use.split(' ').any(|name| name == used.as_str()) {
                let message = format!("{name} may not use {used}: no such arrow is drawn");
                problems.push(Problem::of(path, message));
            }
        }
    }
    problems
}

/// Every foreign dependency of a crate says in its line what it is for.
fn reasons(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text, _) in manifests(repository) {
        let mut is_in_dependencies = false;
        for (index, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                is_in_dependencies = line.contains("dependencies");
                continue;
            }
            let Some((name, _)) = line.split_once(['.', '=', ' ']) else { continue };
            let is_foreign = is_in_dependencies && !line.starts_with('#') && !is_ours(name);
            if is_foreign && !line.contains(" # ") {
                let message = format!("say in a comment what {name} is for");
                problems.push(Problem::at(path, index + 1, message));
            }
        }
    }
    problems
}

/// Every crate uses the workspace's lints, which include the rules for unsafe code.
fn lints(repository: &Repository) -> Vec<Problem> {
    let takes_lints = |manifest: &Table| {
        manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool()) == Some(true)
    };
    manifests(repository)
        .filter(|(.., manifest)| !takes_lints(manifest))
        .map(|(path, ..)| Problem::of(path, "write `[lints]` and `workspace = true`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::expect;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n[dependencies]\n{rest}")
    }

    #[track_caller]
    fn check_arrow(name: &str, used: &str, want: &[&str]) {
        let text = manifest(name, &format!("{used}.workspace = true\n"));
        expect(arrows, "crates/x/Cargo.toml", &text, want);
    }

    #[test]
    fn an_arrow_that_is_not_drawn_is_found() {
        check_arrow("policy", "store", &["policy may not use store"]);
        check_arrow("store", "wire", &["store may not use wire"]);
        check_arrow("server", "sim", &["server may not use sim"]);
        check_arrow("sim", "server", &["sim may not use server"]);
        check_arrow("server", "store", &[]);
        check_arrow("wire", "base", &[]);
        check_arrow("newcomer", "base", &["newcomer is not on the map"]);
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let path = "crates/x/Cargo.toml";
        let with = |rest: &str, want: &[&str]| expect(reasons, path, &manifest("wire", rest), want);
        with("base.workspace = true\nitoa.workspace = true\n", &["what itoa is for"]);
        with("itoa = { version = \"1\" }\n", &["what itoa is for"]);
        with("itoa.workspace = true # Integers in replies.\n", &[]);
        with("[dev-dependencies]\nproptest.workspace = true\n", &["what proptest is for"]);
    }

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let path = "crates/x/Cargo.toml";
        expect(lints, path, "[package]\nname = \"wire\"\n", &["write `[lints]`"]);
        expect(lints, path, &manifest("wire", ""), &[]);
    }
}
