//! What the whole appliance does beside what the machine allows, measured in turns in the same run.
//!
//! `cargo bench --bench appliance`, or `-- WORD ...` for the lines whose names have one of the words.
//! `HOOKLATCH_BENCH=short` is what CI runs: fewer and shorter rounds, and only what is far off fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod accepts;
mod answers;
mod backlog;
mod ceiling;
mod commands;
mod first;
mod forwards;
mod idle;
mod large;
mod load;
mod requests;
mod site;
mod size;
mod start;
mod table;
mod webhook;

use std::process::ExitCode;

use table::Table;

fn main() -> ExitCode {
    if first::told() {
        return ExitCode::SUCCESS;
    }
    let table = Table::new();
    accepts::measure(&table);
    answers::measure(&table);
    commands::measure(&table);
    forwards::measure(&table);
    first::measure(&table);
    start::measure(&table);
    idle::measure(&table);
    size::measure(&table);
    large::measure(&table);
    webhook::measure(&table);
    table.end()
}
