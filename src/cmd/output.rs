//! Prints the answers of commands: tables and colours for people, JSON for programs. Every command prints
//! through this module.

mod print;
mod table;
mod text;
mod wrap;

pub(super) use print::{
    answer, either, fact, facts, ignore_left_reader, json_line, line, list, note, said, verbatim,
};
pub(super) use table::{
    Cell, Field, Table, below, cut, listing, painted, rows, styled, whole, words_of,
};
pub(super) use text::{
    count, escape, escape_lines, good_or_bad, local, outcome_style, short_span, size, span,
    state_style, thousands, zoned,
};
pub(super) use wrap::chars;
