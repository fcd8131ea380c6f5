//! The page that Prometheus reads. Pure: [`Facts`] in, text out.
//!
//! `scrape` collects the facts. What must stay true: a label's value comes from the configuration or is one of a few
//! fixed words, so that a request cannot add a series; every family is in [`FAMILIES`], and the page has its type
//! even without a sample.

mod facts;
mod families;
mod samples;

use std::fmt::Write;

use samples::Samples;

pub use facts::{Facts, Front, Runner};
pub use families::{FAMILIES, Family, Kind};

/// The media type of the page: Prometheus' text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn page(facts: &Facts) -> String {
    let mut page = String::new();
    for Family { name, kind, labels, help, samples } in FAMILIES {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        samples(facts, &mut Samples::new(&mut page, name, labels));
    }
    page
}
