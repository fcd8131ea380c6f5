//! Writes the page: Prometheus' text format, version 0.0.4.
//!
//! The crate `prometheus-client` writes OpenMetrics only, which `promtool check metrics` rejects, and would keep a
//! second set of the counts that `status` shows. What must stay true: every family is one of [`super::FAMILIES`],
//! and its samples are consecutive.

use std::fmt::Write;

use crate::measure::Distribution;

use super::families::{Family, Kind};

/// The media type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// Begins a family. Its samples must follow.
    pub(super) fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let Family { name, kind, help, .. } = family;
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Samples { page: &mut self.0, family }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// The samples of one family.
pub(super) struct Samples<'p> {
    page: &'p mut String,
    family: &'static Family,
}

impl Samples<'_> {
    /// `labels` are the values of the family's labels in their order.
    pub(super) fn value(&mut self, labels: &[&str], value: f64) -> &mut Self {
        debug_assert_ne!(self.family.kind, Kind::Histogram);
        self.sample("", labels, None, value);
        self
    }

    pub(super) fn count(&mut self, labels: &[&str], value: u64) -> &mut Self {
        // Exact up to 2^53, like the numbers of Prometheus.
        self.value(labels, value as f64)
    }

    pub(super) fn histogram(&mut self, labels: &[&str], seen: &Distribution) -> &mut Self {
        debug_assert_eq!(self.family.kind, Kind::Histogram);
        let mut all = 0;
        for (bound, below) in &seen.buckets {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            self.sample("_bucket", labels, Some(&bound), *below as f64);
            all = *below;
        }
        self.sample("_sum", labels, None, seen.sum);
        self.sample("_count", labels, None, all as f64);
        self
    }

    fn sample(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: f64) {
        debug_assert_eq!(labels.len(), self.family.labels.len(), "{}", self.family.name);
        let names = self.family.labels.iter().copied().zip(labels.iter().copied());
        let labels: Vec<String> = names
            .chain(bound.map(|bound| ("le", bound)))
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.page, "{}{suffix}{labels} {value}", self.family.name);
    }
}

/// Escapes a label's value: the reference of a secret's file may contain any of these characters.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Histogram;

    const COUNTED: Family =
        Family { name: "a_total", kind: Kind::Counter, labels: &["x", "y"], help: "Some." };
    const SPREAD: Family =
        Family { name: "b_seconds", kind: Kind::Histogram, labels: &["x"], help: "Others." };

    #[test]
    fn a_page_has_the_text_format_of_prometheus() {
        let seconds = Histogram::new(&[0.25, 1.0]);
        seconds.observe(0.5);
        seconds.observe(2.0);
        let mut page = Page::default();
        page.family(&COUNTED).count(&["a\"b\\c\nd", "e"], 7).count(&["", "f"], 0);
        page.family(&SPREAD).histogram(&["z"], &seconds.get());
        let wanted = "\
# HELP a_total Some.
# TYPE a_total counter
a_total{x=\"a\\\"b\\\\c\\nd\",y=\"e\"} 7
a_total{x=\"\",y=\"f\"} 0
# HELP b_seconds Others.
# TYPE b_seconds histogram
b_seconds_bucket{x=\"z\",le=\"0.25\"} 0
b_seconds_bucket{x=\"z\",le=\"1\"} 1
b_seconds_bucket{x=\"z\",le=\"+Inf\"} 2
b_seconds_sum{x=\"z\"} 2.5
b_seconds_count{x=\"z\"} 2
";
        assert_eq!(page.into_text(), wanted);
    }
}
