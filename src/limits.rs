//! Every limit of the product: default, range, reason.
//!
//! A limit is one line of the table below. Its name ends in its unit, is its key under `[limits]` in
//! the configuration, and is its field in [`Limits`]. A limit that a provider, source or handler
//! sets for itself (body size, handler time, concurrency, attempts) has its default here and its
//! key there.

pub mod fixed;

use std::ops::RangeInclusive;
use std::time::Duration;

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
    ($($name:ident: $unit:ident = $default:expr, $range:expr, $reason:literal;)+) => {
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
            key: stringify!($name), unit: Unit::$unit, default: $default, range: $range, reason: $reason,
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

/// Largest body of a request to the admin API: a batch of a few hundred jobs is some 20 KiB.
pub const ADMIN_REQUEST_BYTES: usize = 2 << 20;

/// Largest body of a resolution: it brings a whole answer in base64, and `answer_whole_bytes` may be 16 MiB.
pub const ADMIN_RESOLVE_BYTES: usize = 32 << 20;

/// Largest answer of the admin API: an event is shown with several bodies, in base64.
pub const ADMIN_ANSWER_BYTES: usize = 256 << 20;

/// Connections to the admin API at once; further ones wait in the kernel's queue. A command makes one for
/// each request, and an idle one is closed after seconds.
pub const ADMIN_CONNECTIONS: usize = 64;

/// Callers of the admin API that follow or back up at once: half of the connections stay for the others.
pub const ADMIN_STREAMS: usize = 32;

/// How long either end of the admin API waits for the other's next byte, and a stop for requests under way.
pub const ADMIN_WAIT: Duration = Duration::from_secs(30);

/// The limit called `key`.
pub fn limit(key: &str) -> Option<&'static Limit> {
    TABLE.iter().find(|limit| limit.key == key)
}

limits! {
    body_default_bytes: Bytes = MIB, KIB..=100 * MIB,
        "The largest body of a source whose provider file and configuration say nothing; providers' events are a few KiB.";
    bodies_in_flight_bytes: Bytes = 128 * MIB, MIB..=64 * GIB,
        "All bodies in memory together, taken by declared length before reading; without it 200 stalled 25 MiB uploads held 2 GB.";
    small_body_bytes: Bytes = 64 * KIB, KIB..=MIB,
        "Bodies up to this size use the small lane, so that large uploads never shut ordinary events out.";
    small_bodies_in_flight_bytes: Bytes = 16 * MIB, MIB..=GIB,
        "All small bodies in memory together: the lane that large uploads cannot fill.";
    body_grace_millis: Millis = 5 * SECOND, SECOND..=5 * MINUTE,
        "How long a body may take before its rate is looked at, how long it may pause, and for how long the rest of a refused one is thrown away.";
    body_rate_bytes_per_second: Bytes = 8 * KIB, 1..=GIB,
        "The slowest whole body that is waited for; the HTTP server itself has no body time-out, so a stalled body would stay open for ever.";
    header_read_millis: Millis = 5 * SECOND, SECOND..=5 * MINUTE,
        "How long a client may take to send a request's head.";
    head_bytes: Bytes = 32 * KIB, 4 * KIB..=60 * KIB,
        "A request's head, request line included; over it 431. Providers send some 2 KiB, and the HTTP server's decoder panics at a header name of 64 KiB.";
    keep_alive_millis: Millis = 180 * SECOND, SECOND..=HOUR,
        "How long a connection is kept that is idle, or whose client takes no answers; longer than the usual proxies' 60 to 75 s, so that the proxy closes first.";
    connections_count: Count = 8_000, 16..=1_000_000,
        "Open connections over all workers, at 24 KiB each; a head over 4 KiB takes the places of several. Beyond it the most stalled one is closed.";
    headers_kept_bytes: Bytes = 16 * KIB, KIB..=256 * KIB,
        "All kept headers of one event together.";
    accept_wait_millis: Millis = 8 * SECOND, 100..=MINUTE,
        "How long a provider waits for a commit before it is told 503; lower where the provider file gives a tighter deadline. The event may still be stored.";
    writer_queue_count: Count = 10_000, 16..=1_000_000,
        "Accepts waiting for the writer; full is a 503, not a wait.";
    writer_queue_bytes: Bytes = 64 * MIB, MIB..=16 * GIB,
        "Compressed bytes waiting for the writer.";
    batch_count: Count = 512, 1..=10_000,
        "Most items in one transaction.";
    batch_bytes: Bytes = 16 * MIB, MIB..=GIB,
        "Most compressed bytes in one transaction; one larger item makes a batch alone.";
    log_bytes: Bytes = 64 * MIB, 4 * MIB..=4 * GIB,
        "The write-ahead log's bound: over it the writer finishes a checkpoint between two batches, and from half of it on where little is left to copy.";
    disk_floor_bytes: Bytes = 128 * MIB, MIB..=PIB,
        "Free space below which accepts are answered 503 while completions go on: twice the log's bound.";
    ballast_bytes: Bytes = 16 * MIB, 0..=GIB,
        "A file given up on a full disk so that the results of running jobs can still be written.";
    evidence_count: Count = 4, 0..=64,
        "Differing bodies kept per event as evidence when a signed id comes again with other content.";
    quarantine_bytes: Bytes = 64 * MIB, 0..=4 * GIB,
        "All failed deliveries kept to be verified again; over it the address that has the most gives up its oldest. 0 keeps none.";
    quarantine_body_bytes: Bytes = MIB, 0..=100 * MIB,
        "Largest body kept of a failed delivery; a larger one is listed and can never be accepted.";
    quarantine_age_millis: Millis = 7 * DAY, HOUR..=90 * DAY,
        "How long failed deliveries are kept: longer than a weekend, and than the 3 days in which GitHub can be told to re-send; never longer than keep_ids.";
    quarantine_rate_bytes_per_second: Bytes = 256 * KIB, KIB..=GIB,
        "Of one source's failed deliveries so much is kept, over a minute or so, and a quarter of it from one address; the rest is only counted, so a flood of forgeries costs little.";
    quarantine_queue_bytes: Bytes = 8 * MIB, 64 * KIB..=GIB,
        "Failed deliveries in memory that wait to be written; further ones are only counted.";
    jobs_in_flight_count: Count = 64, 1..=10_000,
        "Attempts running at once, over all handlers.";
    command_concurrency_count: Count = 1, 1..=1_000,
        "Attempts of one command handler at once, where the handler says nothing: scripts are rarely written to run beside themselves.";
    forward_concurrency_count: Count = 8, 1..=1_000,
        "Attempts of one forward handler at once, where the handler says nothing.";
    command_timeout_millis: Millis = 10 * MINUTE, SECOND..=7 * DAY,
        "How long a command may run, where the handler says nothing.";
    command_grace_millis: Millis = 10 * SECOND, 100..=10 * MINUTE,
        "How long a command may take to end between SIGTERM and SIGKILL.";
    forward_timeout_millis: Millis = 30 * SECOND, SECOND..=HOUR,
        "How long a forward may take to answer, where the handler says nothing.";
    forward_connect_millis: Millis = 5 * SECOND, 100..=MINUTE,
        "How long a forward may take to connect; not connecting is the handler's failure and costs no attempt.";
    max_attempts_count: Count = 5, 1..=100,
        "Attempts of one job, where the handler says nothing: at once, then after 10 s, 40 s, 3 min and 11 min.";
    give_up_after_millis: Millis = 3 * DAY, MINUTE..=90 * DAY,
        "How long a forward is retried, where the handler says nothing: as long as Stripe would.";
    backoff_base_millis: Millis = 10 * SECOND, 100..=HOUR,
        "The delay before the second attempt; each further one is four times the last.";
    backoff_max_millis: Millis = HOUR, SECOND..=7 * DAY,
        "The longest delay between two attempts, whatever a Retry-After or a moved clock says.";
    handler_backoff_base_millis: Millis = SECOND, 100..=HOUR,
        "The first pause of a handler that cannot run at all; doubled each time.";
    handler_backoff_max_millis: Millis = 5 * MINUTE, SECOND..=DAY,
        "The longest pause of a handler that cannot run at all.";
    output_head_bytes: Bytes = 16 * KIB, 0..=MIB,
        "Kept from the start of an attempt's standard output, and as much of its standard error.";
    output_tail_bytes: Bytes = 16 * KIB, 0..=MIB,
        "Kept from the end of an attempt's standard output, and as much of its standard error.";
    answer_kept_bytes: Bytes = 4 * KIB, 0..=MIB,
        "Kept of a forward's answer.";
    answer_whole_bytes: Bytes = MIB, KIB..=16 * MIB,
        "The body of an answer that is stored for whoever asks again with the same key; a longer one is not stored, and is never cut.";
    reply_wait_millis: Millis = 5 * SECOND, 0..=10 * MINUTE,
        "How long a repeat waits for the answer of the first request with its key, where the source says nothing; then it is told to come again.";
    callers_waiting_count: Count = 1_000, 1..=100_000,
        "Requests that wait for a handler's answer at once, over all sources, one of a client that hung up too; further ones are told to come again, so that connections are left for everybody else.";
    keep_answers_millis: Millis = DAY, MINUTE..=90 * DAY,
        "How long a key and its answer are kept, where the source says nothing: 24 hours is usual, 24 to 72 for payments.";
    keep_error_answers_millis: Millis = 10 * MINUTE, 0..=90 * DAY,
        "How long an answer that says \"not now\" (5xx, 408, 425, 429) is kept, where the source says nothing: the handler may be well again soon.";
    requests_per_minute_count: Count = 600, 0..=1_000_000,
        "Requests of one caller in a minute, where the source says nothing; 0 means no bound.";
    stdin_memory_bytes: Bytes = MIB, 0..=64 * MIB,
        "Bodies up to this size reach a command from memory, larger ones from an unlinked file: the memory of a memfd cannot be reclaimed.";
    runner_attempts_count: Count = 256, 1..=10_000,
        "Attempts that a runner has at once, running or not acknowledged; further ones wait.";
    runner_connections_count: Count = 16, 2..=1_000,
        "Connections to a runner at once; a new receiver must get in beside a hanging one.";
    runner_wait_millis: Millis = 30 * SECOND, 100..=10 * MINUTE,
        "How long receiver and runner wait for the rest of a message, or for the other to read one.";
    runner_idle_millis: Millis = MINUTE, 100..=DAY,
        "How long a runner that was started by hand stays without a receiver, a command and an unread result.";
    runner_drain_millis: Millis = 10 * MINUTE, 100..=7 * DAY,
        "How long a runner that is told to stop waits for its commands and for their results to be fetched, before it ends them.";
    stop_wait_millis: Millis = 30 * SECOND, 0..=HOUR,
        "How long a stop waits for requests and forwards in flight; a second signal shortens it.";
    stop_linger_millis: Millis = 300, 0..=MINUTE,
        "Between the pause of accepting and the stop, so that clients see `Connection: close`: with it no request failed in 72 restarts.";
    tick_millis: Millis = 15 * SECOND, 100..=10 * MINUTE,
        "How often the dispatcher looks at the store and the clock without being woken.";
    keep_payloads_millis: Millis = 30 * DAY, HOUR..=3650 * DAY,
        "How long a settled event's body and headers are kept, since it arrived and since its last job ended.";
    keep_ids_millis: Millis = 90 * DAY, DAY..=3650 * DAY,
        "How long an event's id is remembered: far longer than any provider re-sends.";
    keep_dead_millis: Millis = 365 * DAY, DAY..=3650 * DAY,
        "How long a dead letter keeps its payload: long enough for a person to come back to it, and not for ever, or a handler that is broken for good fills the disk.";
    metrics_connections_count: Count = 8, 1..=1_000,
        "Scrapers of the metrics served at once; further ones wait. Prometheus is one, a second one and a person's `curl` fit.";
    metrics_wait_millis: Millis = 10 * SECOND, SECOND..=10 * MINUTE,
        "How long one scrape of the metrics may take in all: Prometheus' own default.";
    config_bytes: Bytes = MIB, KIB..=64 * MIB,
        "The largest configuration or provider file that is read.";
    config_files_count: Count = 1_000, 1..=100_000,
        "Most files read from conf.d or providers.";
    secret_bytes: Bytes = 4 * KIB, 1..=MIB,
        "The largest secret; one trailing newline does not count.";
    list_count: Count = 1_000, 1..=100_000,
        "Most rows one listing returns.";
    list_millis: Millis = SECOND, 10..=10 * MINUTE,
        "How long one listing may look through the store, for each thousand rows that it may return.";
}

impl Limits {
    /// A limit in milliseconds as a duration.
    pub fn duration(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
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
}
