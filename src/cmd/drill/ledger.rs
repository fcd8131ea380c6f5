//! The handlers' own ledger: a line as each attempt begins, and one as it ends.

use std::collections::BTreeMap;

/// What the handlers wrote, by handler and event, then by attempt.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    traces: BTreeMap<(String, String), BTreeMap<u32, Trace>>,
    odd: Vec<String>,
}

/// What one attempt wrote.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) starts: usize,
    /// It did its work.
    pub(super) ended: bool,
    /// It failed, as it was to.
    pub(super) failed: bool,
    /// The number of its first line.
    pub(super) first: usize,
    /// And of its last.
    pub(super) last: usize,
}

const NOTHING: &BTreeMap<u32, Trace> = &BTreeMap::new();

impl Ledger {
    /// Reads lines of `start|end|fail HANDLER EVENT ATTEMPT`, in the order of their writing.
    pub(super) fn read(text: &str) -> Self {
        let mut ledger = Ledger::default();
        for (nth, line) in text.lines().enumerate() {
            if ledger.take(nth, line).is_none() {
                ledger.odd.push(line.to_owned());
            }
        }
        ledger
    }

    fn take(&mut self, nth: usize, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, handler, event, attempt] = words.as_slice() else { return None };
        let attempt = attempt.parse().ok()?;
        let known = ["start", "end", "fail"].contains(&what);
        let traces = self.traces.entry((handler.to_owned(), event.to_owned()));
        let trace = traces.or_default().entry(attempt).or_insert(Trace {
            starts: 0,
            ended: false,
            failed: false,
            first: nth,
            last: nth,
        });
        trace.last = nth;
        trace.starts += usize::from(what == "start");
        trace.ended |= what == "end";
        trace.failed |= what == "fail";
        (known && trace.starts > 0).then_some(())
    }

    /// The attempts of one handler at one event.
    pub(super) fn of(&self, handler: &str, event: &str) -> &BTreeMap<u32, Trace> {
        self.traces.get(&(handler.to_owned(), event.to_owned())).unwrap_or(NOTHING)
    }

    /// Every attempt: handler, event, number.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        self.traces.iter().flat_map(|((handler, event), traces)| {
            traces.keys().map(move |number| (handler.as_str(), event.as_str(), *number))
        })
    }

    /// How often an attempt was begun.
    pub(super) fn started(&self) -> usize {
        self.all().map(|trace| trace.starts).sum()
    }

    /// How many attempts came to their end, well or not.
    pub(super) fn finished(&self) -> usize {
        self.all().filter(|trace| trace.ended || trace.failed).count()
    }

    /// Lines that no handler of the drill writes.
    pub(super) fn odd(&self) -> &[String] {
        &self.odd
    }

    fn all(&self) -> impl Iterator<Item = &Trace> {
        self.traces.values().flat_map(BTreeMap::values)
    }
}
