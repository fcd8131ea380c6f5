//! Reads the handlers' ledger: each attempt appends a line when it starts and a line when it ends.
//!
//! `Account` compares it with the store. Must stay true: a line that no handler writes is kept as an
//! error and is not skipped.

use std::collections::BTreeMap;

/// The parsed lines of all handlers.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The lines of each attempt, by handler and event, then by attempt number.
    traces: BTreeMap<(String, String), BTreeMap<u32, Trace>>,
    /// Malformed lines.
    pub(super) odd: Vec<String>,
}

/// The lines of one attempt.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The number of `start` lines; more than 1 breaks a promise.
    pub(super) starts: usize,
    /// It wrote `end` after its work.
    pub(super) ended: bool,
    /// It wrote `fail`, on purpose.
    pub(super) failed: bool,
    /// The number of its first line in the ledger.
    pub(super) first: usize,
    /// The number of its last line in the ledger.
    pub(super) last: usize,
}

impl Ledger {
    /// Reads lines of the form `start|end|fail HANDLER EVENT ATTEMPT`, in the order of writing.
    pub(crate) fn read(text: &str) -> Self {
        let mut ledger = Ledger::default();
        for (number, line) in text.lines().enumerate() {
            if ledger.add(number, line).is_none() {
                ledger.odd.push(line.to_owned());
            }
        }
        ledger
    }

    /// Adds a line; `None` if it is malformed.
    fn add(&mut self, number: usize, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let &[step, handler, event, attempt] = words.as_slice() else { return None };
        let attempt = attempt.parse().ok()?;
        let traces = self.traces.entry((handler.to_owned(), event.to_owned())).or_default();
        let new = || Trace { first: number, ..Trace::default() };
        let trace = traces.entry(attempt).or_insert_with(new);
        trace.last = number;
        match step {
            "start" => trace.starts += 1,
            "end" => trace.ended = true,
            "fail" => trace.failed = true,
            _ => return None,
        }
        (trace.starts > 0).then_some(())
    }

    /// The attempts of `handler` at `event`, by number.
    pub(super) fn of(&self, handler: &str, event: &str) -> &BTreeMap<u32, Trace> {
        const NONE: &BTreeMap<u32, Trace> = &BTreeMap::new();
        self.traces.get(&(handler.to_owned(), event.to_owned())).unwrap_or(NONE)
    }

    /// Every attempt: handler, event, number and its lines.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (&str, &str, u32, &Trace)> {
        self.traces.iter().flat_map(|((handler, event), traces)| {
            traces.iter().map(move |(n, trace)| (handler.as_str(), event.as_str(), *n, trace))
        })
    }

    /// The number of `start` lines for `event`.
    pub(crate) fn starts(&self, event: &str) -> usize {
        let of_event = self.attempts().filter(|(_, of, ..)| *of == event);
        of_event.map(|(.., trace)| trace.starts).sum()
    }
}
