//! The load of the power tests: providers that deliver each event until it is answered 2xx.
//!
//! They go on over a receiver's death, as real ones do, so the tests choose the moments of death by
//! the number of answers. Everything random follows from one seed, which the tests print.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, stripe_event, stripe_header, try_post};

/// A provider's wait before it delivers again what was answered 503.
const AGAIN: Duration = Duration::from_millis(20);

/// How long handlers work, in milliseconds, by the event's number: mostly short, some long enough to
/// be running at any moment.
const WORK_MILLIS: [u32; 8] = [0, 20, 0, 100, 5, 50, 0, 300];

/// Handlers' first and last act is a line in the ledger, which lies on a disk that is never cut. The
/// event's id says how many milliseconds the work takes.
pub(crate) const LEDGER_SCRIPT: &str = r#"
line="$HOOKLATCH_HANDLER $HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT"
echo "start $line" >> "$SITE/ledger.txt"
millis=${HOOKLATCH_EVENT_ID##*_}
[ "$millis" = 0 ] || sleep "$(printf '0.%03d' "$millis")"
echo "end $line" >> "$SITE/ledger.txt""#;

/// Random numbers of one seed (SplitMix64, by Vigna): the same seed, the same numbers.
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

    /// A number under `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as usize % bound
    }
}

/// Prints a line of a test's ledger, which is to be seen where the test is green too: the harness
/// holds back what the print macros write.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// How often something is done: the default, or what the variable says.
pub(crate) fn times(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |times| times.parse().unwrap())
}

/// Several providers at work.
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
    /// Where the receiver is, and which start of it this is.
    address: Option<SocketAddr>,
    start: u64,
    next: usize,
    ending: bool,
    /// When the power went in a start's life.
    cuts: BTreeMap<u64, Instant>,
    /// Events answered 2xx by machines without power, which are delivered again.
    again: Vec<usize>,
    acknowledged: Vec<Acknowledged>,
    refused: usize,
    unanswered: usize,
    /// Answers that no provider may get here.
    odd: Vec<String>,
}

/// A 2xx that a provider has got.
struct Acknowledged {
    number: usize,
    id: String,
    start: u64,
    at: Instant,
}

impl State {
    /// Whether this answer came from a machine whose power was gone.
    fn in_the_dark(&self, answer: &Acknowledged) -> bool {
        self.cuts.get(&answer.start).is_some_and(|cut| answer.at > *cut)
    }
}

impl Providers {
    /// They deliver from the first [`Providers::find`] on.
    pub(crate) fn start(count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let provider = |_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.provide())
        };
        let threads = (0..count).map(provider).collect();
        Providers { shared, threads }
    }

    /// Tells where the receiver is from now on.
    pub(crate) fn find(&self, address: SocketAddr) {
        let mut state = self.shared.lock();
        state.address = Some(address);
        state.start += 1;
        self.shared.changed.notify_all();
    }

    /// Nobody begins a delivery until the next [`Providers::find`].
    pub(crate) fn pause(&self) {
        self.shared.lock().address = None;
    }

    /// Goes on with the receiver that was there before the pause.
    pub(crate) fn go_on(&self, address: SocketAddr) {
        self.shared.lock().address = Some(address);
        self.shared.changed.notify_all();
    }

    /// The same where the power went at `moment`: an answer after it has reached nobody. Returns how
    /// many there were so far.
    pub(crate) fn cut_off(&self, moment: Instant) -> usize {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        state.address = None;
        state.cuts.insert(state.start, moment);
        let all = std::mem::take(&mut state.acknowledged);
        let (dark, seen): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| state.in_the_dark(one));
        state.acknowledged = seen;
        state.again.extend(dark.iter().map(|one| one.number));
        dark.len()
    }

    /// Waits for `count` more answers of 2xx.
    pub(crate) fn wait_for_answers(&self, count: usize) {
        let wanted = self.acknowledged().len() + count;
        self.wait(|state| state.acknowledged.len() >= wanted);
    }

    /// Waits for `count` more answers of 503.
    pub(crate) fn wait_for_refusals(&self, count: usize) {
        let wanted = self.shared.lock().refused + count;
        self.wait(|state| state.refused >= wanted);
    }

    fn wait(&self, done: impl Fn(&State) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.shared.lock();
        while !done(&state) {
            assert!(state.odd.is_empty(), "{:?}", state.odd);
            let left = end.checked_duration_since(Instant::now()).expect("the answers do not come");
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// The events answered 2xx so far.
    pub(crate) fn acknowledged(&self) -> Vec<String> {
        self.shared.lock().acknowledged.iter().map(|one| one.id.clone()).collect()
    }

    /// Events begun, 503s, and deliveries without an answer so far.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let state = self.shared.lock();
        (state.next, state.refused, state.unanswered)
    }

    /// No further events; returns when each one begun was answered 2xx.
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
            // Every third one takes several pages.
            let padding = "x".repeat(if number.is_multiple_of(3) { 9_000 } else { 200 });
            let body = stripe_event(&id, "invoice.paid", &format!(r#","padding":"{padding}""#));
            while !self.delivered(number, &id, &body) {}
        }
    }

    fn next(&self) -> Option<usize> {
        let mut state = self.lock();
        if let Some(number) = state.again.pop() {
            return Some(number);
        }
        let number = state.next;
        (!state.ending).then(|| {
            state.next += 1;
            number
        })
    }

    /// One delivery. False where it is to be repeated, after the wait that a provider makes.
    fn delivered(&self, number: usize, id: &str, body: &str) -> bool {
        let (address, start) = self.receiver();
        let answer = try_post(address, "/stripe", &stripe_header(body, 0), body.as_bytes());
        let answered = Acknowledged { number, id: id.to_owned(), start, at: Instant::now() };
        let mut state = self.lock();
        let dark = state.in_the_dark(&answered);
        let done = match answer {
            Ok((200..=299, _)) if !dark => {
                state.acknowledged.push(answered);
                true
            }
            Ok((503, _)) => {
                state.refused += 1;
                self.changed.notify_all();
                drop(state);
                std::thread::sleep(AGAIN);
                return false;
            }
            Ok((status, answer)) if !dark => {
                state.odd.push(format!("{id}: {status} {answer}"));
                true
            }
            _ => {
                state.unanswered += 1;
                // That receiver is dead; this one goes on with the next.
                while state.start == start {
                    state = self.changed.wait(state).unwrap();
                }
                false
            }
        };
        self.changed.notify_all();
        done
    }

    /// Where the receiver is; waits while it is nowhere.
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
