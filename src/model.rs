//! The product's words as types: what every layer may talk about.
//!
//! Nothing here does I/O or knows how it is stored or sent. A value of one of these types is valid
//! by construction; the text forms are the ones used in SQL, JSON, logs and help.

mod answer;
mod broken;
pub mod host;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use uuid::Uuid;

pub use answer::Answer;
pub(crate) use answer::is_header_name;
pub use broken::Broken;

/// Declares an enum whose variants have one fixed text each, used in SQL, JSON and messages.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The one text of this value.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                $name::ALL.iter().copied().find(|w| w.as_str() == text).ok_or_else(|| UnknownWord {
                    text: text.to_owned(),
                    known: $name::ALL.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// A text that is none of the fixed words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {known}, not '{text}'")]
pub struct UnknownWord {
    text: String,
    known: String,
}

words! {
    /// The state of a job. `ARCHITECTURE.md` draws the machine; the schema's CHECK lists the same words.
    State {
        /// May be claimed now.
        Ready = "ready",
        /// Has exactly one live attempt.
        Running = "running",
        /// Will be claimable when it is due.
        Waiting = "waiting",
        /// Waits for a person; the reason is a [`HeldReason`].
        Held = "held",
        /// The handler said so.
        Succeeded = "succeeded",
        /// A dead letter: known to have failed for good; the reason is a [`DeadReason`].
        Dead = "dead",
        /// Taken out by the operator or superseded; the reason is a [`DropReason`].
        Dropped = "dropped",
    }
}

words! {
    /// How an attempt ended. A live attempt has none.
    Outcome {
        /// Exit 0, or a 2xx.
        Succeeded = "succeeded",
        /// The handler said that it failed: another attempt may help.
        Failed = "failed",
        /// The handler said that no other attempt will help (exit 65; 400, 410, 422).
        Rejected = "rejected",
        /// Ended by its time-out; its effects are unknown.
        TimedOut = "timed_out",
        /// The handler said nothing; its effects are unknown.
        Unknown = "unknown",
        /// Ended by the operator.
        Cancelled = "cancelled",
        /// Proven never to have begun.
        NotStarted = "not_started",
    }
}

words! {
    /// Why a job waits for a person.
    HeldReason {
        /// An attempt ended without saying anything.
        UnknownOutcome = "unknown outcome",
        /// The same signed body came under another event id or type.
        SuspectedReplay = "suspected replay",
        /// The event id came before with another body, and the signature does not cover the id.
        IdReused = "id reused",
        /// The store was restored from a backup while the job was unfinished.
        Restored = "restored",
        /// The operator cancelled the running attempt.
        Cancelled = "cancelled",
        /// The configuration no longer has the handler.
        HandlerGone = "handler gone",
    }
}

words! {
    /// Why a job is a dead letter.
    DeadReason {
        /// The handler rejected the event.
        Rejected = "rejected",
        /// Failed as often, or for as long, as its handler allows.
        Exhausted = "attempts exhausted",
        /// Its payload has been deleted by retention.
        PayloadGone = "payload gone",
        /// The operator resolved it as failed.
        Resolved = "resolved as failed",
    }
}

words! {
    /// Why a job was dropped.
    DropReason {
        Operator = "by the operator",
        /// A newer event replaced it.
        Superseded = "superseded",
    }
}

words! {
    /// What to do when an attempt's effects are unknown.
    OnUnknown {
        /// Wait for a person.
        Hold = "hold",
        /// Run again: the handler is idempotent by its key.
        Rerun = "rerun",
    }
}

words! {
    /// What a duplicate delivery does to its event's dead letters.
    OnRedelivery {
        /// Nothing: it is counted.
        Ignore = "ignore",
        /// Puts them back: whoever pressed the provider's Redeliver button wants another attempt.
        ReplayDead = "replay-dead",
    }
}

words! {
    /// What the same signed body under a new event id means, for schemes that leave the id unsigned.
    ReplayGuard {
        /// Accept and store, jobs held.
        Hold = "hold",
        /// Accept and run, marked.
        Flag = "flag",
        /// Nothing is looked at.
        Off = "off",
    }
}

words! {
    /// What the receiver tells of itself: the types of the internal source's events.
    NoticeType {
        /// A job became a dead letter.
        JobDead = "job.dead",
        /// A job waits for a person.
        JobHeld = "job.held",
        /// Events could not be stored for a while.
        StoreDegraded = "store.degraded",
        /// A source's deliveries fail verification, one after the other.
        SourceFailing = "source.failing",
        /// A handler cannot run at all.
        HandlerBroken = "handler.broken",
    }
}

/// The source of the receiver's own events; no configured one can have its name.
pub const INTERNAL_SOURCE: &str = "hooklatch";

/// The name of a source or a handler: `[a-z0-9][a-z0-9_-]{0,63}`, fit for file names, labels and URLs.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// A text that cannot be a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a valid name: 1 to 64 of a-z, 0-9, '_' and '-', not starting with '_' or '-'"
)]
pub struct BadName(String);

impl Name {
    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let good = bytes.len() <= 64
            && bytes.first().copied().is_some_and(alnum)
            && bytes.iter().all(|&b| alnum(b) || b == b'_' || b == b'-');
        if good { Ok(Name(text.into())) } else { Err(BadName(text.to_owned())) }
    }
}

/// The name of a runner: a [`Name`] of at most 32 characters (useradd(8)), since the unit of another than
/// the default one is an instance of the user whose name it has.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunnerName(Arc<str>);

/// A text that cannot be a [`RunnerName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a valid runner name: 1 to 32 of a-z, 0-9, '_' and '-', not starting with '_' or '-'"
)]
pub struct BadRunnerName(String);

impl RunnerName {
    /// Of the runner that runs the commands of every handler that names none.
    pub const DEFAULT: &str = "default";

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the one that runs where nothing is said.
    pub fn is_default(&self) -> bool {
        &*self.0 == Self::DEFAULT
    }

    /// The systemd unit in which it runs as a service.
    pub fn unit(&self) -> String {
        match self.is_default() {
            true => "hooklatch-runner.service".to_owned(),
            false => format!("hooklatch-runner@{self}.service"),
        }
    }
}

impl Default for RunnerName {
    fn default() -> Self {
        RunnerName(Self::DEFAULT.into())
    }
}

impl FromStr for RunnerName {
    type Err = BadRunnerName;
    fn from_str(text: &str) -> Result<Self, BadRunnerName> {
        match text.parse::<Name>() {
            Ok(Name(name)) if name.len() <= 32 => Ok(RunnerName(name)),
            _ => Err(BadRunnerName(text.to_owned())),
        }
    }
}

/// An event id as the provider gave it: 1 to 200 visible ASCII characters, not starting with `-`
/// (it is typed on command lines).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Arc<str>);

/// Longest event id in bytes. GitHub's are UUIDs, Stripe's under 40; 200 is the IETF draft's and
/// our stored-key limit.
pub const EVENT_ID_MAX_BYTES: usize = 200;

/// A text that cannot be an [`EventId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEventId {
    /// Nothing there.
    #[error("the event id is empty")]
    Empty,
    /// Over [`EVENT_ID_MAX_BYTES`].
    #[error("the event id has {0} bytes; {EVENT_ID_MAX_BYTES} is the limit")]
    TooLong(usize),
    /// A space, control or non-ASCII character.
    #[error("the event id has a character that is not visible ASCII at byte {0}")]
    BadByte(usize),
    /// Starts with `-`.
    #[error("the event id starts with '-'")]
    LeadingDash,
}

impl EventId {
    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as one word of a shell, for commands that are there to be copied: a provider chose it.
    pub fn shell_word(&self) -> Cow<'_, str> {
        shell_word(&self.0)
    }
}

/// Where the configuration lies unless another file is named.
pub const DEFAULT_CONFIG: &str = "/etc/hooklatch/hooklatch.toml";

/// What a printed command needs so that it finds the configuration at `path`: nothing in its usual place.
pub fn config_option(path: &Path) -> String {
    match path == Path::new(DEFAULT_CONFIG) {
        true => String::new(),
        false => format!(" --config {}", shell_word(&path.display().to_string())),
    }
}

/// Text as one word of a shell line, quoted where that is needed: a printed command is pasted, and what
/// came from outside must not become another command.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/@%+=,".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

impl FromStr for EventId {
    type Err = BadEventId;
    fn from_str(text: &str) -> Result<Self, BadEventId> {
        match text.as_bytes() {
            [] => Err(BadEventId::Empty),
            b if b.len() > EVENT_ID_MAX_BYTES => Err(BadEventId::TooLong(b.len())),
            [b'-', ..] => Err(BadEventId::LeadingDash),
            b => match b.iter().position(|c| !c.is_ascii_graphic()) {
                Some(at) => Err(BadEventId::BadByte(at)),
                None => Ok(EventId(text.into())),
            },
        }
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
text_type!(Name);
text_type!(RunnerName);
text_type!(EventId);

/// An event's type. An odd one is never a reason to refuse an event: it becomes `?`, and its raw
/// text is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventType {
    text: Arc<str>,
    raw: Option<Arc<str>>,
}

/// Longest event type in bytes that is kept as it is.
pub const EVENT_TYPE_MAX_BYTES: usize = 200;

impl EventType {
    /// What an event without a usable type has.
    pub const ODD: &'static str = "?";

    /// The type of a provider's text: itself where it is 1 to 200 visible ASCII characters,
    /// [`EventType::ODD`] with the raw text (cut at 200 characters) otherwise.
    pub fn from_raw(raw: &str) -> Self {
        let plain = (1..=EVENT_TYPE_MAX_BYTES).contains(&raw.len())
            && raw.bytes().all(|b| b.is_ascii_graphic());
        if plain {
            EventType { text: raw.into(), raw: None }
        } else {
            let cut: String = raw.chars().take(EVENT_TYPE_MAX_BYTES).collect();
            EventType { text: Self::ODD.into(), raw: Some(cut.into()) }
        }
    }

    /// The type of an event whose scheme found none.
    pub fn missing() -> Self {
        EventType { text: Self::ODD.into(), raw: None }
    }

    /// Puts a stored type together again.
    pub fn from_parts(text: &str, raw: Option<&str>) -> Self {
        EventType { text: text.into(), raw: raw.map(Into::into) }
    }

    /// The type's text, or `?`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The provider's own text where it could not be a type.
    pub fn raw(&self) -> Option<&str> {
        self.raw.as_deref()
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// A job's id and idempotency key: random (version 7), so that two histories never meet; written
/// as `[0-9a-f-]{36}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id; `now` orders it among others, the rest is random.
    pub fn new(now: Timestamp) -> Self {
        let ms = u64::try_from(now.0).unwrap_or(0);
        JobId(uuid::Builder::from_unix_timestamp_millis(ms, &random()).into_uuid())
    }

    /// The 16 bytes it is stored as.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Puts a stored id together again.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        JobId(Uuid::from_bytes(bytes))
    }
}

thread_local! {
    /// What is random in the next ids of this thread, each taken once: to ask the kernel costs more than the
    /// rest of an id.
    static RANDOM: RefCell<Vec<[u8; 10]>> = const { RefCell::new(Vec::new()) };
}

/// Ten bytes of the kernel's that nobody else gets.
fn random() -> [u8; 10] {
    RANDOM.with_borrow_mut(|left| {
        left.pop().unwrap_or_else(|| {
            let mut bytes = [[0; 10]; 25];
            // Up to 256 bytes come whole (getrandom(2)).
            if let Err(error) = getrandom(bytes.as_flattened_mut(), GetRandomFlags::empty()) {
                panic!("no random numbers: {error}");
            }
            let [first, rest @ ..] = bytes;
            left.extend(rest);
            first
        })
    })
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A text that is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a job id (they look like 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b)")]
pub struct BadJobId(String);

impl FromStr for JobId {
    type Err = BadJobId;
    fn from_str(text: &str) -> Result<Self, BadJobId> {
        Uuid::from_str(text).map(JobId).map_err(|_| BadJobId(text.to_owned()))
    }
}

/// Wall time: milliseconds since 1970-01-01 00:00 UTC. Only `clock` makes one of "now".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time and `duration` later.
    pub fn after(self, duration: std::time::Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This time and `duration` earlier.
    pub fn before(self, duration: std::time::Duration) -> Self {
        Timestamp(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero where it is not after.
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        std::time::Duration::from_millis(
            u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0),
        )
    }

    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => f.pad(&format!("{time:.3}")),
            Err(_) => f.pad("out of range"),
        }
    }
}

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an RFC 3339 time")]
pub struct BadTimestamp(String);

impl FromStr for Timestamp {
    type Err = BadTimestamp;
    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        text.parse::<jiff::Timestamp>()
            .map(|time| Timestamp(time.as_millisecond()))
            .map_err(|_| BadTimestamp(text.to_owned()))
    }
}

/// In JSON a time is its RFC 3339 text in UTC.
impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Bytes from outside as JSON shows them: `{"text": …}` where they are UTF-8, `{"base64": …}`
/// otherwise. No byte is lost either way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlobForm<'a> {
    Text(std::borrow::Cow<'a, str>),
    Base64(String),
}

impl std::ops::Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => BlobForm::Text(text.into()).serialize(s),
            Err(_) => BlobForm::Base64(data_encoding::BASE64.encode(&self.0)).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match BlobForm::deserialize(d)? {
            BlobForm::Text(text) => Ok(Blob(text.into_owned().into_bytes())),
            BlobForm::Base64(text) => data_encoding::BASE64
                .decode(text.as_bytes())
                .map(Blob)
                .map_err(serde::de::Error::custom),
        }
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// HTTP header lines in the order of their arrival. Names keep their case and compare without it;
/// values are bytes, because HTTP's are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// No header.
    pub fn new() -> Self {
        Headers(Vec::new())
    }

    /// Adds one line.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.0.push((name.into(), value.into()));
    }

    /// Every value of `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.0.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// Every line.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_slice()))
    }

    /// The lines as HTTP/1.1 writes them, `Name: value CRLF` each. The stored form: it loses no byte.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        for (name, value) in &self.0 {
            wire.extend_from_slice(name.as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value);
            wire.extend_from_slice(b"\r\n");
        }
        wire
    }

    /// Reads what [`Headers::to_wire`] wrote. A header value holds no CR or LF, so this is exact.
    pub fn from_wire(wire: &[u8]) -> Self {
        let mut headers = Headers::new();
        for line in wire.split(|&b| b == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(colon) = line.iter().position(|&b| b == b':') {
                let value = &line[colon + 1..];
                headers.push(
                    String::from_utf8_lossy(&line[..colon]),
                    value.strip_prefix(b" ").unwrap_or(value),
                );
            }
        }
        headers
    }
}

/// What a handler is told about the event it runs for.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Which handler is meant.
    pub handler: Name,
    /// The job, which is also the idempotency key.
    pub job: JobId,
    /// The attempt's number, from 1; never given back.
    pub attempt: u32,
    /// How often the operator has put the job back.
    pub replays: u32,
    /// The source the event came through.
    pub source: Name,
    /// Whose request it is, the parts of the name with a tab between, which is in none of them: visible ASCII
    /// and spaces beside it. None where its source has one caller, or its key is in use no more.
    pub caller: Option<String>,
    /// The event's id.
    pub event_id: EventId,
    /// The event's type.
    pub event_type: EventType,
    /// When the delivery arrived.
    pub received_at: Timestamp,
    /// The headers the scheme keeps.
    pub headers: Headers,
    /// The raw body, byte for byte.
    pub body: Bytes,
}

/// One life of a runner: the boot it lives in and bits that no other has, written `BOOT/BITS`.
///
/// Every claim of a command records the one it was made for, so that nobody takes one runner's
/// silence for another's word. The boot stands in it because its end is a proof of death by itself,
/// the user because nobody else sees what the runner may have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation {
    boot: Uuid,
    bits: u128,
}

impl Incarnation {
    /// Of this boot and these random bits.
    pub const fn from_parts(boot: Uuid, bits: u128) -> Self {
        Incarnation { boot, bits }
    }

    /// The same, with the runner's user in place of the last 32 bits.
    pub const fn of_user(self, user: u32) -> Self {
        let mask = u32::MAX as u128;
        Incarnation { bits: self.bits & !mask | user as u128, ..self }
    }

    /// The boot it lived in.
    pub fn boot(&self) -> Uuid {
        self.boot
    }

    /// Whom it ran as, and its commands.
    pub fn user(&self) -> u32 {
        self.bits as u32
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:032x}", self.boot, self.bits)
    }
}

/// A text that is no incarnation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an incarnation of a runner")]
pub struct BadIncarnation(String);

impl FromStr for Incarnation {
    type Err = BadIncarnation;
    fn from_str(text: &str) -> Result<Self, BadIncarnation> {
        let read = || {
            let (boot, bits) = text.split_once('/')?;
            let bits = u128::from_str_radix(bits, 16).ok().filter(|_| bits.len() == 32)?;
            Some(Incarnation { boot: boot.parse().ok()?, bits })
        };
        read().ok_or_else(|| BadIncarnation(text.to_owned()))
    }
}

/// The runner that an attempt is claimed for: which one, and in which of its lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    pub name: RunnerName,
    /// Its process.
    pub incarnation: Incarnation,
}

impl Serialize for Incarnation {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Incarnation {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_ids_hold_their_grammar() {
        for good in ["a", "0", "stripe-live_2", &"a".repeat(64)] {
            assert_eq!(good.parse::<Name>().map(|n| n.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "_a", "A", "a b", "ä", &"a".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        for bad in ["", "-a", "Deploy", "a@b", "a.b", &"a".repeat(33)] {
            assert!(bad.parse::<RunnerName>().is_err(), "{bad}");
        }
        let unit = |name: &str| name.parse::<RunnerName>().map(|name| name.unit());
        assert_eq!(unit("default"), Ok("hooklatch-runner.service".to_owned()));
        let longest = "a".repeat(32);
        assert_eq!(unit(&longest), Ok(format!("hooklatch-runner@{longest}.service")));
        assert_eq!("".parse::<EventId>(), Err(BadEventId::Empty));
        assert_eq!("-x".parse::<EventId>(), Err(BadEventId::LeadingDash));
        assert_eq!("a b".parse::<EventId>(), Err(BadEventId::BadByte(1)));
        assert_eq!("a".repeat(201).parse::<EventId>(), Err(BadEventId::TooLong(201)));
        assert!("a".repeat(200).parse::<EventId>().is_ok());
    }

    #[test]
    fn ids_of_one_moment_share_its_time_and_no_random_bits() {
        let ids = || (0..1000).map(|_| JobId::new(Timestamp(0x0199_d0a3_5f6c))).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(ids)).collect();
        let ids: Vec<_> = threads.into_iter().flat_map(|ids| ids.join().unwrap()).collect();
        assert!(ids.iter().all(|id| id.to_string().starts_with("0199d0a3-5f6c-7")));
        // Behind the variant's two bits.
        let random = |id: &JobId| u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap()) << 2;
        let all: std::collections::HashSet<u64> = ids.iter().map(random).collect();
        assert_eq!(all.len(), 4000);
        let ones = all.iter().fold(0, |ones, bits| ones | bits);
        assert_eq!(ones, u64::MAX << 2, "every bit is one somewhere");
    }

    #[test]
    fn an_id_in_a_command_is_one_word_for_a_shell() {
        let word = |id: &str| id.parse::<EventId>().map(|id| id.shell_word().into_owned());
        assert_eq!(word("72d3162e-cc78-11e3"), Ok("72d3162e-cc78-11e3".to_owned()));
        assert_eq!(word("$(reboot)"), Ok("'$(reboot)'".to_owned()));
        assert_eq!(word("a'b;c"), Ok(r"'a'\''b;c'".to_owned()));
    }

    #[test]
    fn an_odd_type_is_kept_beside_a_question_mark() {
        let odd = EventType::from_raw("a b\n");
        assert_eq!((odd.as_str(), odd.raw()), ("?", Some("a b\n")));
        assert_eq!(EventType::from_raw("push").raw(), None);
    }

    #[test]
    fn headers_survive_their_stored_form() {
        let mut headers = Headers::new();
        headers.push("X-A", b"\xff: b".as_slice());
        headers.push("X-A", b"".as_slice());
        headers.push("y", b" lead".as_slice());
        assert_eq!(Headers::from_wire(&headers.to_wire()), headers);
        assert_eq!(headers.all("x-a").count(), 2);
    }

    #[test]
    fn times_print_as_rfc_3339() {
        let time = Timestamp(1_767_225_600_123);
        assert_eq!(time.to_string(), "2026-01-01T00:00:00.123Z");
        assert_eq!("2026-01-01T00:00:00.123Z".parse(), Ok(time));
    }

    #[test]
    fn bytes_survive_json() {
        for bytes in [b"plain \"text\"\n".as_slice(), b"\xff\0", b""] {
            let blob = Blob(bytes.to_vec());
            let json = serde_json::to_string(&blob).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Blob>(&json).ok(), Some(blob), "{json}");
        }
    }
}
