//! Properties that must hold for every input of the parsers of network and file input, one file per parser.
//!
//! Two programs use them: the fuzzer (`fuzz/main.rs`), which searches for inputs, and `tests/http/corpus.rs`,
//! which runs the committed inputs on every change. A target panics if a property does not hold.

mod answers;
mod captured;
mod challenges;
pub(crate) mod conditions;
mod configuration;
mod facts;
mod ledger;
mod names;
mod parameters;
mod pipeline;
mod provider;
mod quantities;
mod references;
mod runner;
mod signature;
mod signing;
mod since;
pub(crate) mod sizes;
mod template;
mod tokens;
mod values;

/// A target: its name, which is also the name of its corpus folder, and its check.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const ALL: &[Target] = &[
    ("answers", answers::check),
    ("captured", captured::check),
    ("challenges", challenges::check),
    ("conditions", conditions::check),
    ("configuration", configuration::check),
    ("facts", facts::check),
    ("ledger", ledger::check),
    ("names", names::check),
    ("parameters", parameters::check),
    ("pipeline", pipeline::check),
    ("provider", provider::check),
    ("quantities", quantities::check),
    ("references", references::check),
    ("runner", runner::check),
    ("signature", signature::check),
    ("since", since::check),
    ("template", template::check),
    ("tokens", tokens::check),
    ("values", values::check),
];

/// Splits an input into its first line and the rest, for targets with several parameters.
fn line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, b""),
    }
}

/// Like [`line`], for an input whose first line is text.
fn text_line(data: &[u8]) -> Option<(&str, &[u8])> {
    let (first, rest) = line(data);
    Some((std::str::from_utf8(first).ok()?, rest))
}
