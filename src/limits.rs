//! Every limit of the product: default, range, reason.
//!
//! A limit that an operator can set is a row of the table below. Its name ends in its unit, is its key
//! under `[limits]` in the configuration, and is its field in [`Limits`]. A limit that a provider, source
//! or handler sets for itself (body size, handler time, concurrency, attempts) has its default here and
//! its key there. A limit that no operator has a reason to set is a constant. The pace of a part's own work
//! (polls, pauses, sizes of buffers) stands where it is used.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a limit counts, which is also how it is written in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written `"5 MiB"`.
    Bytes,
    /// Milliseconds, written as a duration: `"30s"`.
    Millis,
    /// A plain number.
    Count,
}

impl Unit {
    /// A value as the configuration writes it: `5 MiB`, `90s`, `7`. Exact: it reads back the same.
    pub fn show(self, value: u64) -> String {
        let steps: &[(u64, &str)] = match self {
            Unit::Bytes => &[(PIB, " PiB"), (GIB, " GiB"), (MIB, " MiB"), (KIB, " KiB"), (1, " B")],
            Unit::Millis => &[(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (1, "ms")],
            Unit::Count => &[(1, "")],
        };
        let step = |&&(size, _): &&(u64, &str)| value >= size && value.is_multiple_of(size);
        let (size, name) = steps.iter().find(step).or(steps.last()).copied().unwrap_or((1, ""));
        format!("{}{name}", value / size)
    }
}

/// What puts a changed value into force. `tests/it/fixed_limits.rs` compares this with where the code reads
/// each limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliedBy {
    Reload,
    /// A restart of the receiver. A reload that changes the value is refused.
    ReceiverStart,
    /// A restart of the runner, or the execution of its program again.
    RunnerStart,
}

/// One limit's name, bounds and reason.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Its key under `[limits]`.
    pub key: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// What holds when the configuration says nothing.
    pub default: u64,
    /// What the configuration may say.
    pub range: RangeInclusive<u64>,
    pub applied_by: AppliedBy,
    /// Why it exists and why it has this default.
    pub reason: &'static str,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const PIB: u64 = 1024 * 1024 * GIB;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

macro_rules! limits {
    ($($name:ident: $unit:ident = $default:expr, $range:expr, $applied_by:ident, $reason:literal;)+) => {
        /// The limits in force.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits { $(#[doc = $reason] pub $name: u64,)+ }

        impl Default for Limits {
            fn default() -> Self {
                Limits { $($name: $default,)+ }
            }
        }

        /// The table: every limit in the order in which it is shown.
        pub const TABLE: &[Limit] = &[$(Limit {
            key: stringify!($name), unit: Unit::$unit, default: $default, range: $range,
            applied_by: AppliedBy::$applied_by, reason: $reason,
        },)+];

        impl Limits {
            /// The value of the limit called `key`.
            pub fn get(&self, key: &str) -> Option<u64> {
                match key { $(stringify!($name) => Some(self.$name),)+ _ => None }
            }

            /// Sets the limit called `key`. False where there is none or the value is out of range.
            pub fn set(&mut self, key: &str, value: u64) -> bool {
                let Some(limit) = limit(key) else { return false };
                if !limit.range.contains(&value) { return false }
                match key { $(stringify!($name) => self.$name = value,)+ _ => return false }
                true
            }
        }
    };
}

/// The default of `head_bytes`, and the bound of a head to the admin API and the dashboard.
pub const HEAD_BYTES: u64 = 32 * KIB;

/// Most lines of a head after its first: the HTTP server's decoder has room for so many.
pub const HEAD_LINES: usize = 96;

/// Largest body of a request to the admin API: a batch of a few hundred jobs is some 20 KiB.
pub const ADMIN_REQUEST_BYTES: usize = 2 << 20;

/// Largest body of a resolution: it brings a whole answer in base64, and `answer_whole_bytes` may be 16 MiB. Those over
/// [`ADMIN_REQUEST_BYTES`] are read one at a time.
pub const ADMIN_RESOLVE_BYTES: usize = 32 << 20;

/// Largest answer of the admin API in JSON, and largest line of a stream: an event with the outputs of some hundred
/// attempts. A body comes as a stream.
pub const ADMIN_ANSWER_BYTES: usize = 16 << 20;

/// Answers of the admin API in JSON that are in memory until their readers have taken them, in KiB: the largest and others.
pub const ADMIN_ANSWERS_KIB: u32 = 24 << 10;

/// How long an answer waits until others are taken, before it is refused: a person waits for it.
pub const ADMIN_BUDGET_WAIT: Duration = Duration::from_secs(5);

/// Answers that are made and wait for room; a further one is refused at once.
pub const ADMIN_WAITING_ANSWERS: usize = 8;

/// Bodies that are passed on at once, each with some 2 MiB of memory.
pub const ADMIN_BODIES: usize = 8;

/// Bytes of a stored body that are read at once, of whatever size it is. Each reading begins with a walk over the pages
/// before it, so that smaller ones would cost more.
pub const BODY_PIECE_BYTES: usize = 1 << 20;

/// The largest body that is in JSON, where it is asked for: as much as a page shows as JSON.
pub const ADMIN_BODY_BYTES: u64 = MIB;

/// Largest body of a POST that changes nothing, which the reading socket serves too: 1,000 ids to shorten have 400 KiB at
/// most, and keys of [`SECRET_BYTES`] 192 KiB.
pub const ADMIN_READING_BYTES: usize = 512 << 10;

/// Largest body of a GET, which has none: so much is read to say so.
pub const ADMIN_GET_BYTES: usize = 4 << 10;

/// Connections to the admin API at once, and to the dashboard; for a further one the most stalled is closed, at the
/// earliest 200 ms after it was opened. A head that does not come keeps one of these, and none of the places for requests.
pub const OPERATOR_CONNECTIONS: usize = 256;

/// Requests to the admin API that are answered at once, and half as many that bring a body; further ones wait. A command
/// makes a connection for each request, and an idle one is closed after seconds.
pub const ADMIN_REQUESTS: usize = 64;

/// Callers of the admin API that follow, wait for a change or back up at once: half of the requests stay for the others.
pub const ADMIN_STREAMS: usize = 32;

/// How long either end of the admin API waits for the other's next byte, and a stop for requests under way.
pub const ADMIN_WAIT: Duration = Duration::from_secs(30);

/// Largest header of the admin API that says who asks for a change: its texts in JSON in base64.
pub const BY_HEADER_BYTES: usize = 8 << 10;

/// Longest name that a caller of the admin API may claim, and its longest reason for a change. The schema has the
/// same two numbers.
pub const BY_NAME_BYTES: usize = 100;
pub const BY_REASON_BYTES: usize = 500;

/// Most events whose payloads one call of a check compares, and most bytes of their bodies, behind which the one that
/// exceeds them is the last: a call takes some 20 ms. A test is not to make so many.
pub const CHECKED_EVENTS: usize = if cfg!(test) { 5 } else { 200 };
pub const CHECKED_BYTES: u64 = 4 * MIB;

/// Most events with a damaged payload that `backup` and `doctor --deep` name: as many as a person looks at.
pub const DAMAGED_NAMED: usize = 100;

/// How long `status` says that damaged payloads were mended: a person looks once a day.
pub const MENDED_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Rows of the audit list; the oldest is deleted for the next. The longest, of a full batch, has some 10 KiB.
pub const AUDIT_ROWS: i64 = if cfg!(test) { 20 } else { 100_000 };

/// Most ids that the admin API shortens at once: each takes several look-ups.
pub const SHORTENED_IDS: usize = 1_000;

/// Most rows that one page of a listing or a selection looks at: some 20 ms of reading, and three times that while
/// deliveries keep all processors busy.
pub const PAGE_LOOK_ROWS: i64 = 20_000;

/// Most held and most dead jobs that are grouped by cause: 10 ms of reading each, because every job and its last
/// attempt may be in pages of their own. A test is not to make so many.
pub const STUCK_ROWS: i64 = if cfg!(test) { 100 } else { 2_000 };

/// Most jobs in one answer to a selection, and most events of one look for where a walk begins.
pub const SELECTED_JOBS: usize = 1_000;

/// Most jobs that one transaction moves, makes or looks at to delete: it stays as short as one of accepts, and a
/// batch fits into [`ADMIN_REQUEST_BYTES`].
pub const BATCH_JOBS: usize = 200;

/// So far back among all events, in rows, `status` looks for a source's newest one: a look of milliseconds. For a
/// source that was silent for longer, the use of its secret says when.
pub const LOOK_BACK_ROWS: i64 = 20_000;

/// Ready jobs of a handler that `status` counts at most: a millisecond for each handler. The metrics count all.
pub const COUNTED_READY: i64 = 10_000;

/// Held and dead jobs that the metrics count at most, each: they are few, or their exact count does not help.
pub const COUNTED_JOBS: i64 = 100_000;

/// Listings that run at once, each on its own connection, which takes 0.2 MiB: further ones wait for one page.
pub const LISTINGS: usize = 2;

/// Most failed deliveries in the quarantine: a folder of so many is read in a second when it is opened. Tests are not
/// to write so many.
pub const QUARANTINE_FILES: usize = if cfg!(test) { 500 } else { 20_000 };

/// How long a handler may have its jobs wait before their first attempt: not for longer than it may retry.
pub const DELAY: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

/// How long a job may wait in all, where each newer event of its group starts the wait anew.
pub const DELAY_MOST: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

/// Pauses between attempts that a handler may list, and each of them.
pub const BACKOFF_COUNT: RangeInclusive<usize> = 1..=20;
pub const BACKOFF_PAUSE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

/// The starts that a rate may have in its period, and in its burst: the store makes some thousand attempts a second.
pub const RATE_STARTS: RangeInclusive<u32> = 1..=10_000;

/// Repetitions of a notice within this time are counted and reported by one event after it: a broken handler under
/// load must not flood its operator.
pub const NOTICE_WINDOW: Duration = Duration::from_secs(10 * 60);

/// The most steps of a JSON pointer. Providers' pointers have up to 4; the JSON reader recurses once per step.
pub const POINTER_STEPS: usize = 16;

/// Most values of a handler: far more than a command has a use for.
pub const VALUES_COUNT: usize = 64;

/// Longest text of a value, unless it says otherwise: longer than a commit's subject, a name or a link.
pub const VALUE_BYTES: u64 = 4 * KIB;

/// Longest text that a value may have: Linux starts no program with a string of 128 KiB.
pub const VALUE_MOST_BYTES: u64 = 64 * KIB;

/// All values of an attempt together, and also what of them stands in the arguments: a quarter of the 256 KiB that
/// a program gets even under the smallest limit of its stack.
pub const VALUES_BYTES: usize = 64 << 10;

/// The largest body that `body:` writes anew as a whole: its members are in memory one by one, in several times their size.
pub const DOTTED_BODY_BYTES: usize = 1 << 20;

/// Largest compiled `match`, and the longest text that it looks at: their product bounds the time, some 10 ms.
pub const VALUE_PATTERN_BYTES: usize = 16 << 10;
pub const VALUE_PATTERN_TEXT_BYTES: usize = 4 << 10;

/// The shortest timestamp tolerance. The clock of a machine that asks no time server is off by seconds to a minute, and a
/// request may wait for as long in a queue on its way.
pub const TOLERANCE_MIN: Duration = Duration::from_secs(60);

/// The largest timestamp tolerance: Customer.io re-sends for 7 days, and no built-in provider that signs a time re-sends for
/// longer. Over five minutes only remembered ids and digests protect against replays: see `Scheme::check_tolerance`.
pub const TOLERANCE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The most HMACs over one body: a forged request costs one for each secret of its source in each form that the
/// provider's file has.
pub const HMACS_COUNT: usize = 32;

/// The most that a signed time may be ahead of this machine's clock: only clocks differ in that direction. A longer
/// tolerance than this needs something that tells a replay: see `Scheme::check_tolerance`.
pub const TOLERANCE_AHEAD: Duration = Duration::from_secs(5 * 60);

/// With a longer tolerance than this, deliveries signed before a restore are held: the store may have lost their events.
pub const TOLERANCE_RUNS: Duration = Duration::from_secs(60 * 60);

/// Largest header of a receiver's message to a runner: a Start, whose texts are all bounded by the model and come to
/// less than 2 KiB, and whose headers ([`HEADERS_KEPT_BYTES`]) come to 107 KiB even as lines of one letter, in base64.
pub const TO_RUNNER_BYTES: u64 = 128 * KIB;

/// Largest header of a runner's message: a list of 10,000 attempts (the maximum of `runner_attempts_count`) of some
/// 200 bytes each, and of 1,000 incarnations.
pub const TO_RECEIVER_BYTES: u64 = 4 * MIB;

/// Largest body of a message between receiver and runner: the largest that a source may be configured to accept.
pub const RUNNER_BODY_BYTES: u64 = 100 * MIB;

/// A runner's ledger with more bytes, some ten thousand lines, is rewritten without the lines that have no effect any
/// more.
pub const LEDGER_BYTES: u64 = MIB;

/// The number of dead runners of one boot that a runner answers for, the latest ones: a runner that leaves when it is
/// idle may have many successors, and no receiver asks for one that old.
pub const DEAD_RUNNERS: usize = 1000;

/// Largest body that uses the pool of small ones, so that large uploads never shut ordinary events out.
pub const SMALL_BODY_BYTES: u64 = 64 << 10;

/// Memory of one connection: two buffers of 8 KiB each in the HTTP server, its task, and a head of
/// [`USUAL_HEAD_BYTES`].
pub const CONNECTION_BYTES: u64 = 24 << 10;

/// A longer head takes twice its bound from the connections' memory: one copy is in the connection and one in
/// the HTTP server.
pub const USUAL_HEAD_BYTES: usize = 4 << 10;

/// The kernel's buffer for answers that the client has not read. Several fit: each has less than 1 KiB, but
/// for the answers of handlers.
pub const SEND_BUFFER_BYTES: usize = 16 << 10;

/// Most addresses of `X-Forwarded-For` that are read. A real chain of proxies is shorter.
pub const FORWARDED_HOPS: usize = 16;

/// Longest value of a header that names a caller: as long as a key.
pub const CALLER_BYTES: usize = 200;

/// Most callers whose request rates are remembered, at about 200 bytes each. Further ones share one rate.
pub const RATED_CALLERS: usize = 10_000;

/// Most unknown paths that `status` shows; the least recent is dropped. This is enough for an operator to find
/// a misspelt path among those of scanners, if it was requested recently.
pub const UNKNOWN_PATHS: usize = 10;

/// Longest part of an unknown path that is kept: longer than the path of any source.
pub const UNKNOWN_PATH_BYTES: usize = 200;

/// Most queued log lines: about 2 MiB, and half a second of the busiest receiver. Further ones are dropped and
/// counted.
pub const LOG_QUEUE_LINES: usize = 8192;

/// Longest value in a log line. A longer one is truncated.
pub const LOG_VALUE_BYTES: usize = 4096;

/// All kept headers of one event together. Those of a provider have less than 4 KiB.
pub const HEADERS_KEPT_BYTES: u64 = 16 << 10;

/// The largest body of a request without a signature that may be a challenge: the largest known one has 1 KiB.
pub const CHALLENGE_BYTES: u64 = 4 * KIB;

/// Most fields of a form that are sorted to be proven, for a stranger's are sorted too; our choice. A form with more is
/// refused.
pub const SORTED_FIELDS_COUNT: usize = 10_000;

/// Most parts of a form that comes as multipart/form-data: as many fields as a large form has. One with more is not read.
pub const FORM_PARTS_COUNT: usize = 1000;

/// Most log lines of answered challenges and probes without a signature that a source gets at once, and then one more a
/// second: any client can send them. An app that creates several subscriptions at Microsoft Graph gets a validation of
/// each at the same time, and two of one with a lifecycle URL; ten are five of those.
pub const CHALLENGE_LINES: u32 = 10;

/// The pause between the end of accepting and the stop, so that clients see `Connection: close`: with it no request
/// failed in 72 restarts.
pub const STOP_LINGER: Duration = Duration::from_millis(300);

/// Differing bodies kept per event as evidence when a signed id is used again with other content.
pub const EVIDENCE_COUNT: u32 = 4;

/// Largest body kept of a failed delivery; a larger one is listed and can never be accepted.
pub const QUARANTINE_BODY_BYTES: u64 = 1 << 20;

/// How long a forward may take to connect. A failure to connect is the handler's, and costs no attempt.
pub const FORWARD_CONNECT: Duration = Duration::from_secs(5);

/// Longest path and query of a forward with values in it: what most servers take of a request line.
pub const FORWARD_PATH_BYTES: usize = 8 << 10;

/// Kept of a forward's answer.
pub const ANSWER_KEPT_BYTES: usize = 4 << 10;

/// Connections to a runner at once: a new receiver must be admitted next to one that hangs.
pub const RUNNER_CONNECTIONS: usize = 16;

/// How long receiver and runner wait for the rest of a message, or for the other to read one.
pub const RUNNER_WAIT: Duration = Duration::from_secs(30);

/// Scrapers of the metrics served at once; for a further one the most stalled is closed. Prometheus is one, and a
/// second one and a person's `curl` fit.
pub const METRICS_CONNECTIONS: usize = 8;

/// How long one scrape of the metrics may take in all: Prometheus' own default.
pub const METRICS_WAIT: Duration = Duration::from_secs(10);

/// The largest configuration or provider file that is read.
pub const CONFIG_BYTES: u64 = 1 << 20;

/// The largest file of vectors that `providers test` reads.
pub const VECTORS_BYTES: u64 = 16 << 20;

/// Most files read from `conf.d` or `providers`.
pub const CONFIG_FILES: usize = 1_000;

/// The longest body of an answer in a provider file: a word, an empty document, a short message.
pub const ANSWER_TEXT_BYTES: usize = 1 << 10;

/// The most events of one request: this many, or one for each [`LIST_EVENT_BYTES`] of its body. SendGrid's and HubSpot's
/// have up to some hundred.
pub const LIST_EVENTS: usize = 1_000;

/// The most bytes that are kept of a sender's id which is not an event's: the headers of one event may have 16 KiB, and
/// the event's id is a digest of the whole text.
pub const SENDER_ID_BYTES: usize = 1_000;

/// The most bytes of the kept headers of a list, which each of its events has: they are not always signed, so a captured
/// list may come again with others.
pub const LIST_HEADERS_BYTES: usize = 16 << 20;

/// The fewest bytes that an event of a longer list has on average. An event costs about 1 KiB of memory until it is
/// stored, so a body costs at most sixteen times its size.
pub const LIST_EVENT_BYTES: usize = 64;

/// The fewest bytes that an event of a longer list has on average where each has its own proof, which costs 2.4 µs before
/// anything is proven. Microsoft Graph's have some 230 and the texts of resource and state: two GUIDs, a time, a kind and a
/// resource are required (its page on changeNotification).
pub const PROVEN_EVENT_BYTES: usize = 256;

/// The largest secret; one trailing newline does not count. A set of public keys has a few KiB.
pub const SECRET_BYTES: u64 = 32 << 10;

/// Tables of a condition, and lines of each: a decision stays a fraction of the time that an accept takes.
pub const CONDITION_TABLES: usize = 32;
pub const CONDITION_LINES: usize = 32;

/// Steps `*` in a place of a condition: the elements of lists in lists, as in `/commits/*/modified/*`.
pub const CONDITION_WILDCARDS: usize = 2;

/// The compiled program of a condition's pattern: some 120 characters. A search takes program times text.
pub const PATTERN_PROGRAM_BYTES: usize = 4 << 10;

/// The longest text that a pattern looks at: refs, paths and addresses are shorter. A longer one leaves its condition
/// undecided.
pub const PATTERN_TEXT_BYTES: usize = 4 << 10;

/// Most places of `order_by` or `coalesce_by`.
pub const KEY_PLACES: usize = 4;

/// The limit called `key`.
pub fn limit(key: &str) -> Option<&'static Limit> {
    TABLE.iter().find(|limit| limit.key == key)
}

limits! {
    body_default_bytes: Bytes = MIB, KIB..=100 * MIB, Reload,
        "The largest body of a source whose provider file and configuration say nothing; providers' events are a few KiB.";
    bodies_in_flight_bytes: Bytes = 128 * MIB, MIB..=64 * GIB, Reload,
        "All bodies in memory together, taken by declared length before reading; without it 200 stalled 25 MiB uploads held 2 GB.";
    small_bodies_in_flight_bytes: Bytes = 16 * MIB, MIB..=GIB, Reload,
        "All bodies of up to 64 KiB in memory together: the pool that large uploads cannot fill.";
    body_grace_millis: Millis = 5 * SECOND, SECOND..=5 * MINUTE, ReceiverStart,
        "How long a body may take before its rate is checked, how long it may pause, and how long the rest of a refused one is read and discarded.";
    body_rate_bytes_per_second: Bytes = 8 * KIB, 1..=GIB, Reload,
        "The slowest whole body that is waited for; the HTTP server itself has no body time-out, so a stalled body would stay open permanently.";
    header_read_millis: Millis = 5 * SECOND, SECOND..=5 * MINUTE, ReceiverStart,
        "How long a client may take to send a request's head.";
    head_bytes: Bytes = HEAD_BYTES, 4 * KIB..=60 * KIB, ReceiverStart,
        "A request's head, request line included; over it 431. Providers send some 2 KiB, and the HTTP server's decoder panics at a header name of 64 KiB.";
    keep_alive_millis: Millis = 180 * SECOND, SECOND..=HOUR, ReceiverStart,
        "How long a connection is kept that is idle, or whose client takes no answers; longer than the usual proxies' 60 to 75 s, so that the proxy closes first.";
    connections_count: Count = 8_000, 16..=1_000_000, ReceiverStart,
        "Open connections over all workers, at 24 KiB each; a head over 4 KiB takes the places of several. Beyond it the most stalled one is closed.";
    accept_wait_millis: Millis = 8 * SECOND, 100..=MINUTE, Reload,
        "How long a provider waits for a commit before it gets 503; lower where the provider file gives a tighter deadline. The event may still be stored.";
    writer_queue_count: Count = 10_000, 16..=1_000_000, ReceiverStart,
        "Accepts waiting for the writer; full is a 503, not a wait.";
    writer_queue_bytes: Bytes = 64 * MIB, MIB..=16 * GIB, ReceiverStart,
        "Compressed bytes waiting for the writer.";
    batch_count: Count = 512, 1..=10_000, ReceiverStart,
        "Most items in one transaction.";
    batch_bytes: Bytes = 16 * MIB, MIB..=GIB, ReceiverStart,
        "Most compressed bytes in one transaction; one larger item makes a batch alone.";
    log_bytes: Bytes = 64 * MIB, 4 * MIB..=4 * GIB, ReceiverStart,
        "The write-ahead log's bound: over it the writer finishes a checkpoint between two batches, and from half of it on where little is left to copy.";
    disk_floor_bytes: Bytes = 128 * MIB, MIB..=PIB, ReceiverStart,
        "Free space below which accepts are answered 503 while completions go on: twice the log's bound.";
    ballast_bytes: Bytes = 16 * MIB, 0..=GIB, ReceiverStart,
        "A file given up on a full disk so that the results of running jobs can still be written.";
    quarantine_bytes: Bytes = 64 * MIB, 0..=4 * GIB, ReceiverStart,
        "All failed deliveries kept to be verified again; over it the address that has the most gives up its oldest. 0 keeps none.";
    quarantine_age_millis: Millis = 7 * DAY, HOUR..=90 * DAY, ReceiverStart,
        "How long failed deliveries are kept: longer than a weekend, and than the 3 days in which GitHub re-sends on request; never longer than keep_ids.";
    quarantine_rate_bytes_per_second: Bytes = 256 * KIB, KIB..=GIB, ReceiverStart,
        "Of one source's failed deliveries so much is kept, over a minute or so, and a quarter of it from one address; the rest is only counted, so a flood of forgeries costs little.";
    quarantine_queue_bytes: Bytes = 8 * MIB, 64 * KIB..=GIB, ReceiverStart,
        "Failed deliveries in memory that wait to be written; further ones are only counted.";
    condition_kept_bytes: Bytes = 512 * KIB, KIB..=4 * MIB, Reload,
        "What conditions and keys fetch of one event in all; a place beyond it leaves its condition undecided, and the job is held.";
    jobs_in_flight_count: Count = 64, 1..=10_000, Reload,
        "Attempts running at once, over all handlers.";
    command_concurrency_count: Count = 1, 1..=1_000, Reload,
        "Attempts of one command handler at once, where the handler says nothing: scripts are rarely written to run several times at once.";
    forward_concurrency_count: Count = 8, 1..=1_000, Reload,
        "Attempts of one forward handler at once, where the handler says nothing.";
    command_timeout_millis: Millis = 10 * MINUTE, SECOND..=7 * DAY, Reload,
        "How long a command may run, where the handler says nothing.";
    command_grace_millis: Millis = 10 * SECOND, 100..=10 * MINUTE, Reload,
        "How long a command may take to end between SIGTERM and SIGKILL.";
    forward_timeout_millis: Millis = 30 * SECOND, SECOND..=HOUR, Reload,
        "How long a forward may take to answer, where the handler says nothing.";
    max_attempts_count: Count = 5, 1..=100, Reload,
        "Attempts of one job, where the handler says nothing: at once, then after 10 s, 40 s, 3 min and 11 min.";
    give_up_after_millis: Millis = 3 * DAY, MINUTE..=90 * DAY, Reload,
        "How long a forward is retried, where the handler says nothing: as long as Stripe would.";
    backoff_base_millis: Millis = 10 * SECOND, 100..=HOUR, Reload,
        "The delay before the second attempt; each further one is four times the last.";
    backoff_max_millis: Millis = HOUR, SECOND..=7 * DAY, Reload,
        "The longest delay between two attempts, even if a Retry-After asks for more.";
    handler_backoff_base_millis: Millis = SECOND, 100..=HOUR, Reload,
        "The first pause of a handler that cannot run at all; doubled each time.";
    handler_backoff_max_millis: Millis = 5 * MINUTE, SECOND..=DAY, Reload,
        "The longest pause of a handler that cannot run at all.";
    output_head_bytes: Bytes = 16 * KIB, 0..=MIB, Reload,
        "Kept from the start of an attempt's standard output, and as much of its standard error.";
    output_tail_bytes: Bytes = 16 * KIB, 0..=MIB, Reload,
        "Kept from the end of an attempt's standard output, and as much of its standard error.";
    answer_whole_bytes: Bytes = MIB, KIB..=16 * MIB, Reload,
        "The body of an answer that is stored for a repeat with the same key; a longer one is not stored, and is never cut.";
    reply_wait_millis: Millis = 5 * SECOND, 0..=10 * MINUTE, Reload,
        "How long a repeat waits for the answer of the first request with its key, where the source says nothing; then it is asked to repeat.";
    callers_waiting_count: Count = 1_000, 1..=100_000, ReceiverStart,
        "Requests that wait for a handler's answer at once, over all sources, including those whose client hung up; further ones are asked to repeat, so that connections are left for other clients.";
    keep_answers_millis: Millis = DAY, MINUTE..=90 * DAY, Reload,
        "How long a key and its answer are kept, where the source says nothing: 24 hours is usual, 24 to 72 for payments.";
    keep_error_answers_millis: Millis = 10 * MINUTE, 0..=90 * DAY, Reload,
        "How long an answer that says \"not now\" (5xx, 408, 425, 429) is kept, where the source says nothing: the handler may be well again soon.";
    requests_per_minute_count: Count = 600, 0..=1_000_000, Reload,
        "Requests of one caller in a minute, where the source says nothing; 0 means no bound.";
    stdin_memory_bytes: Bytes = MIB, 0..=64 * MIB, Reload,
        "Bodies up to this size reach a command from memory, larger ones from an unlinked file: the memory of a memfd cannot be reclaimed.";
    runner_attempts_count: Count = 256, 1..=10_000, RunnerStart,
        "Attempts that a runner has at once, running or not acknowledged; further ones wait.";
    runner_idle_millis: Millis = MINUTE, 100..=DAY, RunnerStart,
        "How long a runner that was started by hand stays without a receiver, a command and an unread result.";
    runner_drain_millis: Millis = 10 * MINUTE, 100..=7 * DAY, RunnerStart,
        "How long a runner that stops waits for its commands and for their results to be fetched, before it ends them.";
    stop_wait_millis: Millis = 30 * SECOND, 0..=HOUR, ReceiverStart,
        "How long a stop waits for requests and forwards in flight; a second signal shortens it.";
    tick_millis: Millis = 15 * SECOND, 100..=10 * MINUTE, Reload,
        "How often the dispatcher looks at the store and the clock without being woken.";
    keep_payloads_millis: Millis = 30 * DAY, HOUR..=3650 * DAY, Reload,
        "How long a settled event's body and headers are kept, since it arrived and since its last job ended.";
    keep_ids_millis: Millis = 90 * DAY, DAY..=3650 * DAY, Reload,
        "How long an event's id is remembered: far longer than any provider re-sends.";
    keep_dead_millis: Millis = 365 * DAY, DAY..=3650 * DAY, Reload,
        "How long a dead letter keeps its payload: long enough for a person to come back to it, but not permanently, or a handler that is broken for good fills the disk.";
    list_count: Count = 1_000, 1..=100_000, ReceiverStart,
        "Most rows one listing returns.";
    list_millis: Millis = SECOND, 10..=10 * MINUTE, ReceiverStart,
        "How long one listing may look through the store, for each thousand rows that it may return.";
}

impl Limits {
    /// A limit in milliseconds as a duration.
    pub fn duration(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The values that differ in `new`, of the limits that `selects` takes, in the order of the table.
    pub fn changes(&self, new: &Limits, selects: impl Fn(AppliedBy) -> bool) -> Vec<Change> {
        let change = |limit: &Limit| {
            let (from, to) = (self.get(limit.key)?, new.get(limit.key)?);
            let show = |value| limit.unit.show(value);
            let key = limit.key.to_owned();
            (from != to).then(|| Change { key, from: show(from), to: show(to) })
        };
        TABLE.iter().filter(|limit| selects(limit.applied_by)).filter_map(change).collect()
    }
}

/// A value that differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The limit's key, or the configuration's dotted one.
    pub key: String,
    /// What it is in the configuration in force.
    pub from: String,
    /// What it is in the new one.
    pub to: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_its_range_and_every_name_ends_in_its_unit() {
        for limit in TABLE {
            assert!(limit.range.contains(&limit.default), "{}", limit.key);
            let unit = match limit.unit {
                Unit::Bytes => ["_bytes", "_bytes_per_second"].as_slice(),
                Unit::Millis => &["_millis"],
                Unit::Count => &["_count"],
            };
            assert!(unit.iter().any(|u| limit.key.ends_with(u)), "{}", limit.key);
            assert!(limit.reason.ends_with('.'), "{}", limit.key);
        }
    }

    #[test]
    fn a_value_is_shown_as_it_is_written() {
        let shown = [
            Unit::Bytes.show(5 * MIB),
            Unit::Bytes.show(1025),
            Unit::Bytes.show(0),
            Unit::Millis.show(90 * SECOND),
            Unit::Millis.show(3650 * DAY),
            Unit::Millis.show(0),
            Unit::Count.show(7),
        ];
        assert_eq!(shown, ["5 MiB", "1025 B", "0 B", "90s", "3650d", "0ms", "7"]);
    }

    #[test]
    fn a_value_out_of_range_is_not_taken() {
        let mut limits = Limits::default();
        assert!(limits.set("batch_count", 7) && limits.batch_count == 7);
        assert!(!limits.set("batch_count", 0) && !limits.set("nothing", 1));
    }

    #[test]
    fn changes_are_found_by_what_applies_them() {
        let (start, mut new) = (Limits::default(), Limits::default());
        for limit in TABLE {
            assert!(new.set(limit.key, *limit.range.start()), "{}", limit.key);
        }
        for applied_by in [AppliedBy::Reload, AppliedBy::ReceiverStart, AppliedBy::RunnerStart] {
            let all = TABLE.iter().filter(|limit| limit.applied_by == applied_by);
            let keys: Vec<_> = all
                .filter(|limit| limit.default != *limit.range.start())
                .map(|limit| limit.key)
                .collect();
            let changes = start.changes(&new, |one| one == applied_by);
            let changed: Vec<_> = changes.iter().map(|change| change.key.as_str()).collect();
            assert_eq!(changed, keys);
        }
        let new = Limits { tick_millis: 100, ..start.clone() };
        let change = Change { key: "tick_millis".into(), from: "15s".into(), to: "100ms".into() };
        assert_eq!(start.changes(&new, |_| true), [change]);
    }
}
