//! The handlers' ledger: each attempt appends a line when it starts and a line when it ends.

use std::collections::BTreeMap;

/// What the handlers wrote.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By handler and event, then by attempt number.
    traces: BTreeMap<(String, String), BTreeMap<u32, Trace>>,
    /// Lines that no handler writes.
    pub(super) odd: Vec<String>,
}

/// What one attempt wrote.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) starts: usize,
    /// It did its work.
    pub(super) ended: bool,
    /// It failed on purpose.
    pub(super) failed: bool,
    /// The number of its first line.
    pub(super) first: usize,
    /// The number of its last line.
    pub(super) last: usize,
}

impl Ledger {
    /// Reads lines of `start|end|fail HANDLER EVENT ATTEMPT` in the order in which they were written.
    pub(crate) fn read(text: &str) -> Self {
        let mut ledger = Ledger::default();
        for (number, line) in text.lines().enumerate() {
            if ledger.add(number, line).is_none() {
                ledger.odd.push(line.to_owned());
            }
        }
        ledger
    }

    /// None where the line is odd.
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

    /// The attempts of one handler at one event.
    pub(super) fn of(&self, handler: &str, event: &str) -> &BTreeMap<u32, Trace> {
        const NONE: &BTreeMap<u32, Trace> = &BTreeMap::new();
        self.traces.get(&(handler.to_owned(), event.to_owned())).unwrap_or(NONE)
    }

    /// Every attempt: handler, event, number and what it wrote.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (&str, &str, u32, &Trace)> {
        self.traces.iter().flat_map(|((handler, event), traces)| {
            traces.iter().map(move |(n, trace)| (handler.as_str(), event.as_str(), *n, trace))
        })
    }

    /// How often handlers started work on `event`.
    pub(crate) fn starts(&self, event: &str) -> usize {
        let of_event = self.attempts().filter(|(_, of, ..)| *of == event);
        of_event.map(|(.., trace)| trace.starts).sum()
    }
}
