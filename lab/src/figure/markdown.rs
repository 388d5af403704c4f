//! The Markdown page of a figure: the command that made it, what it shows, and the numbers if they
//! are few.

use std::fmt::Write;

use crate::figure::{Fidelity, Figure, Options, Report, Table};

/// Longer tables are only in the CSV.
const TABLE_ROWS_MAX: usize = 40;

/// What the words say was seen in runs of the figure's own length.
const OTHER_LENGTH: &str = "The words below were written for the figure's own number of requests. \
                            With fewer, a 99th percentile rests on a handful of them: believe the \
                            numbers where the words say something else.";

/// Title, command, picture, text, table.
pub(super) fn compose(figure: &Figure, options: &Options, report: &Report) -> String {
    let name = figure.name;
    let mut page = format!("# {name}: {}\n\n", figure.about);
    let requests = match options.requests {
        Some(count) => format!("{count} requests a point"),
        None => "the figure's own number of requests a point".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(page, "```sh\n{}\n```\n", command(name, options));
    let _ = writeln!(
        page,
        "Seed {}, {requests}, {} model. The same command gives the same bytes on any number of \
         threads.\n",
        options.seed,
        options.fidelity.name(),
    );
    if options.requests.is_some() {
        let _ = writeln!(page, "{OTHER_LENGTH}\n");
    }
    let _ = writeln!(page, "![{}]({name}.svg)\n", figure.about);
    let _ = writeln!(page, "{}\n", report.text.trim());
    let rows = report.table.rows.len();
    if rows <= TABLE_ROWS_MAX {
        page.push_str(&table(&report.table));
        page.push('\n');
    }
    let _ = writeln!(page, "All {rows} rows: [{name}.csv]({name}.csv).");
    page
}

fn command(name: &str, options: &Options) -> String {
    let mut line =
        format!("cargo run -p lab --release -- {name} --out DIRECTORY --seed {}", options.seed);
    if let Some(requests) = options.requests {
        let _ = write!(line, " --requests {requests}");
    }
    if options.fidelity == Fidelity::Artifact {
        line.push_str(" --fidelity artifact");
    }
    if let Some(costs) = &options.costs {
        let _ = write!(line, " --costs {}", costs.display());
    }
    if let Some(objects) = &options.objects {
        let _ = write!(line, " --objects {objects}");
    }
    line
}

fn table(table: &Table) -> String {
    if table.columns.is_empty() {
        return String::new();
    }
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&table.columns);
    text.push_str(&format!("|{}\n", "---|".repeat(table.columns.len())));
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(row_count: usize, options: &Options) -> String {
        let figure = Figure {
            name: "sample",
            about: "a sample",
            run: |_| unreachable!("nothing is run here"),
        };
        let columns = ["load", "p99 (ns)"].map(str::to_owned).to_vec();
        let rows = vec![["0.5", "a|b"].map(str::to_owned).to_vec(); row_count];
        let report = Report {
            table: Table { columns, rows },
            charts: Vec::new(),
            text: "\nAs in the paper.\n".to_owned(),
        };
        compose(&figure, options, &report)
    }

    #[test]
    fn the_page_says_how_to_make_the_figure_again() {
        let options = Options {
            requests: Some(2000),
            seed: 7,
            fidelity: Fidelity::Artifact,
            threads: 3,
            costs: None,
            objects: None,
        };
        let text = page(1, &options);
        let command = "cargo run -p lab --release -- sample --out DIRECTORY --seed 7 \
                       --requests 2000 --fidelity artifact\n";
        assert!(text.starts_with("# sample: a sample\n\n```sh\n"), "{text}");
        let parts =
            [command, "As in the paper.", "(sample.svg)", "| 0.5 | a\\|b |\n", OTHER_LENGTH];
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
        let other = Options { threads: 1, ..options };
        assert_eq!(text, page(1, &other), "threads change nothing");
    }

    #[test]
    fn a_long_table_stays_in_the_csv() {
        let options = Options {
            requests: None,
            seed: 1,
            fidelity: Fidelity::Honest,
            threads: 1,
            costs: None,
            objects: None,
        };
        let text = page(TABLE_ROWS_MAX + 1, &options);
        assert!(!text.contains("| 0.5 |") && text.contains("All 41 rows"), "{text}");
        assert!(text.contains("--seed 1\n"), "{text}");
        assert!(!text.contains(OTHER_LENGTH), "{text}");
    }
}
