//! The load of the power tests: providers that deliver each event until it is answered 2xx.
//!
//! They continue when a receiver dies, as real providers do; the tests choose the moment of death by the
//! number of answers. All random choices follow from one seed, which the tests print.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, stripe_event, stripe_header, try_post};

/// How long a provider waits before it repeats a delivery that was answered 503.
const RETRY_WAIT: Duration = Duration::from_millis(20);

/// How long handlers work, in milliseconds, chosen by the event's number. Most times are short; a few are
/// long, so that at any moment some handlers run.
const WORK_MILLIS: [u32; 8] = [0, 20, 0, 100, 5, 50, 0, 300];

/// The handlers' script. It first and last appends a line to the ledger, which is on another disk. The
/// number at the end of the event's id is the time that the work takes, in milliseconds.
pub(crate) const LEDGER_SCRIPT: &str = r#"
line="$HOOKLATCH_HANDLER $HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT"
echo "start $line" >> "$SITE/ledger.txt"
millis=${HOOKLATCH_EVENT_ID##*_}
[ "$millis" = 0 ] || sleep "$(printf '0.%03d' "$millis")"
echo "end $line" >> "$SITE/ledger.txt""#;

/// A generator of random numbers (SplitMix64, by Vigna): a seed always gives the same numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by `HOOKLATCH_SEED`, or by the clock; prints the seed.
    pub(crate) fn new(test: &str) -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let given = std::env::var("HOOKLATCH_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or(clock.as_nanos() as u64);
        say(&format!("{test}: HOOKLATCH_SEED={seed}"));
        Random(seed)
    }

    /// A number less than `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as usize % bound
    }
}

/// Prints a line even if the test passes: the test harness captures the output of the print macros.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A number of repetitions: the value of `variable`, or `default`.
pub(crate) fn times(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |times| times.parse().unwrap())
}

/// Several running providers.
pub(crate) struct Providers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The receiver's address; `None` while it does not run.
    address: Option<SocketAddr>,
    /// The number of the receiver's current start.
    start: u64,
    next: usize,
    ending: bool,
    /// When the power was cut, by the receiver's start.
    cuts: BTreeMap<u64, Instant>,
    /// Events answered 2xx after a cut, which must be delivered again.
    redeliver: Vec<usize>,
    acknowledged: Vec<Acknowledged>,
    refused: usize,
    unanswered: usize,
    /// Unexpected answers.
    odd: Vec<String>,
}

/// A 2xx answer that a provider got.
struct Acknowledged {
    number: usize,
    id: String,
    start: u64,
    at: Instant,
}

impl State {
    /// Whether this answer came after the cut of its receiver's power.
    fn after_cut(&self, answer: &Acknowledged) -> bool {
        self.cuts.get(&answer.start).is_some_and(|cut| answer.at > *cut)
    }
}

impl Providers {
    /// Starts `count` providers, which deliver after the first [`Providers::find`].
    pub(crate) fn start(count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let provider = |_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.provide())
        };
        let threads = (0..count).map(provider).collect();
        Providers { shared, threads }
    }

    /// Sets the address of a newly started receiver.
    pub(crate) fn find(&self, address: SocketAddr) {
        let mut state = self.shared.lock();
        state.address = Some(address);
        state.start += 1;
        self.shared.changed.notify_all();
    }

    /// Stops beginning deliveries until the next [`Providers::find`] or [`Providers::go_on`].
    pub(crate) fn pause(&self) {
        self.shared.lock().address = None;
    }

    /// Continues after a pause with the same receiver.
    pub(crate) fn go_on(&self, address: SocketAddr) {
        self.shared.lock().address = Some(address);
        self.shared.changed.notify_all();
    }

    /// Pauses because the power was cut at `moment`. Answers after it do not count; returns how many there
    /// were so far.
    pub(crate) fn cut_off(&self, moment: Instant) -> usize {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        state.address = None;
        state.cuts.insert(state.start, moment);
        let all = std::mem::take(&mut state.acknowledged);
        let (dark, seen): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| state.after_cut(one));
        state.acknowledged = seen;
        state.redeliver.extend(dark.iter().map(|one| one.number));
        dark.len()
    }

    /// Waits for `count` more 2xx answers.
    pub(crate) fn wait_for_answers(&self, count: usize) {
        let wanted = self.acknowledged().len() + count;
        self.wait(|state| state.acknowledged.len() >= wanted);
    }

    /// Waits for `count` more 503 answers.
    pub(crate) fn wait_for_refusals(&self, count: usize) {
        let wanted = self.shared.lock().refused + count;
        self.wait(|state| state.refused >= wanted);
    }

    fn wait(&self, done: impl Fn(&State) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.shared.lock();
        while !done(&state) {
            assert!(state.odd.is_empty(), "{:?}", state.odd);
            let left =
                end.checked_duration_since(Instant::now()).expect("the answers did not come");
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// The ids of the events answered 2xx so far.
    pub(crate) fn acknowledged(&self) -> Vec<String> {
        self.shared.lock().acknowledged.iter().map(|one| one.id.clone()).collect()
    }

    /// The numbers of begun events, of 503 answers, and of deliveries without an answer so far.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let state = self.shared.lock();
        (state.next, state.refused, state.unanswered)
    }

    /// Stops beginning events, and waits until each one that was begun is answered 2xx.
    pub(crate) fn finish(&mut self) {
        self.shared.lock().ending = true;
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        self.wait(|_| true);
        let (sent, ..) = self.counts();
        assert_eq!(self.acknowledged().len(), sent, "a provider never got its 2xx");
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn provide(&self) {
        while let Some(number) = self.next() {
            let id = format!("evt_{number}_{}", WORK_MILLIS[number % WORK_MILLIS.len()]);
            // The body of every third event takes several pages.
            let padding = "x".repeat(if number.is_multiple_of(3) { 9_000 } else { 200 });
            let body = stripe_event(&id, "invoice.paid", &format!(r#","padding":"{padding}""#));
            while !self.delivered(number, &id, &body) {}
        }
    }

    fn next(&self) -> Option<usize> {
        let mut state = self.lock();
        if let Some(number) = state.redeliver.pop() {
            return Some(number);
        }
        let number = state.next;
        (!state.ending).then(|| {
            state.next += 1;
            number
        })
    }

    /// Makes one delivery. Returns false, after a provider's wait, if it must be repeated.
    fn delivered(&self, number: usize, id: &str, body: &str) -> bool {
        let (address, start) = self.receiver();
        let answer = try_post(address, "/stripe", &stripe_header(body, 0), body.as_bytes());
        let answered = Acknowledged { number, id: id.to_owned(), start, at: Instant::now() };
        let mut state = self.lock();
        let dark = state.after_cut(&answered);
        let done = match answer {
            Ok((200..=299, _)) if !dark => {
                state.acknowledged.push(answered);
                true
            }
            Ok((503, _)) => {
                state.refused += 1;
                self.changed.notify_all();
                drop(state);
                std::thread::sleep(RETRY_WAIT);
                return false;
            }
            Ok((status, answer)) if !dark => {
                state.odd.push(format!("{id}: {status} {answer}"));
                true
            }
            _ => {
                state.unanswered += 1;
                // That receiver is dead, so this provider waits for the next one.
                while state.start == start {
                    state = self.changed.wait(state).unwrap();
                }
                false
            }
        };
        self.changed.notify_all();
        done
    }

    /// The receiver's address and start; waits while there is none.
    fn receiver(&self) -> (SocketAddr, u64) {
        let mut state = self.lock();
        loop {
            if let Some(address) = state.address {
                return (address, state.start);
            }
            state = self.changed.wait(state).unwrap();
        }
    }
}
