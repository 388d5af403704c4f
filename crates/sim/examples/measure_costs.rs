//! Measures this machine and prints the cost table in the form that is committed in
//! `crates/sim/data`.
//!
//! `cargo run --release -p sim --example measure_costs -- DATE [COMMIT] > costs.json`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let date = arguments.next().ok_or("usage: measure_costs DATE [COMMIT]")?;
    let commit = arguments.next();
    let command = "cargo run --release -p sim --example measure_costs";
    let sizes = sim::measure::store_costs::Sizes::All;
    let table = sim::measure::measure(command, &date, commit.as_deref(), sizes)?;
    if table.file().lines.is_none() {
        eprintln!("one core only: the cost of moving lines was not measured");
    }
    println!("{}", serde_json::to_string(table.file())?);
    Ok(())
}
