//! Writes the samples of one family in Prometheus' text format, version 0.0.4.

use std::fmt::Write;

use crate::measure::Distribution;

/// The samples of one family, which are consecutive on the page.
pub(super) struct Samples<'p> {
    page: &'p mut String,
    name: &'static str,
    labels: &'static [&'static str],
}

impl<'p> Samples<'p> {
    pub(super) fn new(
        page: &'p mut String,
        name: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Samples { page, name, labels }
    }

    /// `labels` are the values of the family's labels in their order.
    pub(super) fn value(&mut self, labels: &[&str], value: f64) {
        self.sample("", labels, None, value);
    }

    /// Exact up to 2^53, like the numbers of Prometheus.
    pub(super) fn count(&mut self, labels: &[&str], value: u64) {
        self.value(labels, value as f64);
    }

    /// A sample for each count. The family's labels are that of `first` and that of the counted words.
    pub(super) fn counts(
        &mut self,
        first: &str,
        counts: impl Iterator<Item = (&'static str, u64)>,
    ) {
        counts.for_each(|(word, count)| self.count(&[first, word], count));
    }

    pub(super) fn histogram(&mut self, labels: &[&str], seen: &Distribution) {
        let mut all = 0;
        for (bound, below) in &seen.buckets {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            self.sample("_bucket", labels, Some(&bound), *below as f64);
            all = *below;
        }
        self.sample("_sum", labels, None, seen.sum);
        self.sample("_count", labels, None, all as f64);
    }

    fn sample(&mut self, suffix: &str, labels: &[&str], bound: Option<&str>, value: f64) {
        debug_assert_eq!(labels.len(), self.labels.len(), "{}", self.name);
        let named = self.labels.iter().copied().zip(labels.iter().copied());
        let pairs: Vec<String> = named
            .chain(bound.map(|bound| ("le", bound)))
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        let in_braces =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        // Writing to a string cannot fail.
        let _ = writeln!(self.page, "{}{suffix}{in_braces} {value}", self.name);
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

    #[test]
    fn samples_have_the_text_format_of_prometheus() {
        let seconds = Histogram::new(&[0.25, 1.0]);
        seconds.observe(0.5);
        seconds.observe(2.0);
        let mut page = String::new();
        let mut counted = Samples::new(&mut page, "a_total", &["x", "y"]);
        counted.count(&["a\"b\\c\nd", "e"], 7);
        counted.count(&["", "f"], 0);
        Samples::new(&mut page, "b_seconds", &["x"]).histogram(&["z"], &seconds.get());
        let wanted = "\
a_total{x=\"a\\\"b\\\\c\\nd\",y=\"e\"} 7
a_total{x=\"\",y=\"f\"} 0
b_seconds_bucket{x=\"z\",le=\"0.25\"} 0
b_seconds_bucket{x=\"z\",le=\"1\"} 1
b_seconds_bucket{x=\"z\",le=\"+Inf\"} 2
b_seconds_sum{x=\"z\"} 2.5
b_seconds_count{x=\"z\"} 2
";
        assert_eq!(page, wanted);
    }
}
