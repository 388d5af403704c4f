//! A table as comma-separated values (RFC 4180, lines end in a line feed).

use crate::chart::Table;

/// The columns' names and then the rows.
pub(super) fn encode(table: &Table) -> String {
    let mut text = String::new();
    for line in std::iter::once(&table.columns).chain(&table.rows) {
        let cells: Vec<String> = line.iter().map(|cell| quoted(cell)).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_read_back() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let table = Table {
            columns: row(["policy", "p99 (ns)"]),
            rows: vec![row(["d-CREW, \"comp\"", "1781"]), row(["EREW", ""])],
        };
        assert_eq!(encode(&table), "policy,p99 (ns)\n\"d-CREW, \"\"comp\"\"\",1781\nEREW,\n");
    }
}
