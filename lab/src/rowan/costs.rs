//! The CPU cost of a request in each role, by replication scheme: the paper's, or measured ones in
//! a file.
//!
//! ```text
//!  scheme,role,us_per_put
//!  rowan,primary_worker,2.96        all that the primary's worker does for a PUT
//!  rowan,primary_control,0          its control thread: there is one in a server
//!  rpc,backup_worker,0.55           a worker of each backup
//!  rpc,backup_control,0             the control thread of each backup
//!  rpc,get_worker,0.92              a GET
//! ```
//!
//! A role without a line for the scheme costs nothing; without `get_worker` a GET costs what the
//! paper's does. Lines of other schemes and roles are ignored.

use std::path::Path;

use sim::SimError;

/// Replication schemes (Rowan-KV §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Rowan,
    Rpc,
    Write,
    Batch,
    Share,
}

/// By name.
pub(super) const SCHEMES: [(&str, Scheme); 5] = [
    ("rowan", Scheme::Rowan),
    ("rpc", Scheme::Rpc),
    ("write", Scheme::Write),
    ("batch", Scheme::Batch),
    ("share", Scheme::Share),
];

impl Scheme {
    pub fn name(self) -> &'static str {
        SCHEMES[self as usize].0
    }
}

/// Microseconds of CPU time of one scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    pub primary_worker_us: f64,
    pub primary_control_us: f64,
    pub backup_worker_us: f64,
    pub backup_control_us: f64,
    pub get_worker_us: f64,
}

/// The extra cost of each request without DDIO (§6.3: RPC-KV is 5 % faster at reads alone).
const NO_DDIO_US: f64 = 0.045;
/// Fitted: 72.7 million a second with half of them GETs, by 144 workers, the PUTs as below.
const GET_US: f64 = 0.90;
/// Fitted: 48.2 million PUTs a second, by 144 workers.
const PUT_US: f64 = 2.80;
/// Fitted: 1.37 times as many PUTs as RPC-KV.
const REPLICATE_US: f64 = 0.40;
/// A worker saves this for each entry that is sent together with another.
const POST_US: f64 = 0.10;

impl Costs {
    /// The costs that reproduce the paper's peaks.
    pub fn of_paper(scheme: Scheme) -> Costs {
        let none = Costs {
            primary_worker_us: PUT_US + NO_DDIO_US,
            primary_control_us: 0.0,
            backup_worker_us: 0.0,
            backup_control_us: 0.0,
            get_worker_us: GET_US + NO_DDIO_US,
        };
        match scheme {
            Scheme::Rpc => Costs {
                primary_worker_us: PUT_US,
                backup_worker_us: REPLICATE_US,
                get_worker_us: GET_US,
                ..none
            },
            Scheme::Batch => Costs { primary_worker_us: none.primary_worker_us - POST_US, ..none },
            _ => none,
        }
    }
}

/// The costs of each scheme, in the order of [`SCHEMES`]: those of the file, if it has any.
pub(super) fn load(path: Option<&Path>) -> Result<Vec<Option<Costs>>, SimError> {
    let Some(path) = path else {
        return Ok(SCHEMES.iter().map(|(_, scheme)| Some(Costs::of_paper(*scheme))).collect());
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| SimError::BadParameter { what: format!("{shown}: {error}") })?;
    parse(&text).map_err(|what| SimError::BadParameter { what: format!("{shown}: {what}") })
}

fn parse(text: &str) -> Result<Vec<Option<Costs>>, String> {
    let mut all: Vec<Option<Costs>> = vec![None; SCHEMES.len()];
    for (number, line) in text.lines().enumerate().skip(1) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong = || format!("line {}: write scheme,role,us_per_put", number + 1);
        let [scheme, role, us] = cells[..] else { return Err(wrong()) };
        let us: f64 = us.parse().map_err(|_| wrong())?;
        if !(0.0..=1e6).contains(&us) {
            return Err(format!("line {}: {us} us: write 0 to 1000000", number + 1));
        }
        let Some(index) = SCHEMES.iter().position(|(name, _)| *name == scheme) else { continue };
        let paper = Costs::of_paper(SCHEMES[index].1);
        let costs = all[index].get_or_insert(Costs {
            primary_worker_us: 0.0,
            backup_worker_us: 0.0,
            ..paper
        });
        match role {
            "primary_worker" => costs.primary_worker_us = us,
            "primary_control" => costs.primary_control_us = us,
            "backup_worker" => costs.backup_worker_us = us,
            "backup_control" => costs.backup_control_us = us,
            "get_worker" => costs.get_worker_us = us,
            _ => {}
        }
    }
    if all.iter().flatten().next().is_none() {
        return Err("no scheme's costs: write lines such as rowan,primary_worker,2.9".to_owned());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_each_role_costs() {
        let text = "scheme,role,us_per_put\nrpc,primary_worker,1.5\nredis,all_servers,9\n\
                    rpc,backup_worker,0.25\nrpc,all_servers,4\n";
        let all = parse(text).unwrap();
        assert_eq!(all.iter().flatten().count(), 1);
        let rpc = all[Scheme::Rpc as usize].unwrap();
        assert_eq!((rpc.primary_worker_us, rpc.backup_worker_us), (1.5, 0.25));
        assert_eq!((rpc.primary_control_us, rpc.get_worker_us), (0.0, GET_US));
        for (text, want) in [
            ("scheme,role,us_per_put\nrpc,1.5\n", "line 2: write"),
            ("x\nrpc,backup_worker,-1\n", "line 2: -1 us"),
            ("scheme,role,us_per_put\n", "no scheme's costs"),
        ] {
            assert!(parse(text).unwrap_err().contains(want), "{text}");
        }
    }
}
