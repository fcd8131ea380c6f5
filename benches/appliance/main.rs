//! Measures the whole appliance, compared with what the machine allows, in alternating rounds of one run.
//!
//! `cargo bench --bench appliance` runs all lines; `-- WORD ...` those whose names contain one of the words.
//! `HOOKLATCH_BENCH=short` makes fewer and shorter rounds, which fail only far beyond a bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod accepts;
mod answers;
mod backlog;
mod ceiling;
mod commands;
mod dashboard;
mod first;
mod forwards;
mod groups;
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
    if first::ran_as_handler() {
        return ExitCode::SUCCESS;
    }
    let table = Table::new();
    accepts::measure(&table);
    answers::measure(&table);
    commands::measure(&table);
    forwards::measure(&table);
    groups::measure(&table);
    first::measure(&table);
    start::measure(&table);
    idle::measure(&table);
    size::measure(&table);
    large::measure(&table);
    webhook::measure(&table);
    dashboard::measure(&table);
    table.end()
}
