//! What the whole appliance does beside what the machine allows, measured in turns in the same run.
//!
//! `cargo bench --bench appliance`, or `-- WORD ...` for the lines whose names have one of the words.
//! `HOOKLATCH_BENCH=short` is what CI runs: fewer and shorter rounds, and only what is far off fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod accepts;
mod ceiling;
mod large;
mod load;
mod requests;
mod site;
mod size;
mod table;
mod webhook;

use table::Table;

fn main() -> std::process::ExitCode {
    let table = Table::new();
    accepts::measure(&table);
    size::measure(&table);
    large::measure(&table);
    webhook::measure(&table);
    table.end()
}
