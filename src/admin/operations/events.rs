//! Events: list, show, follow, replay, and find by the beginning of an id.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::super::budget;
use super::super::failure::{Failure, FailureKind};
use super::super::operation::{Context, Effect, operation};
use super::super::receiver::mark_broken;
use super::super::stream::{ReaderGone, Sender, StreamOperation};
use crate::limits::{ADMIN_BODY_BYTES, SHORTENED_IDS};
use crate::model::{Blob, EventId, Name, State, Timestamp};
use crate::store::{
    self, Backfill, BodyOf, BodyParts, EventDetail, EventFilter, EventRow, FollowCursor, IdKind,
    IdMatch, IdQuery, Page,
};

operation! {
    /// Events, newest first.
    Get "/v1/events" Reads;
    for EventFilter => Page<EventRow>,
    |filter, context| Ok(context.store.events(filter).await?)
}

/// A variant that no event has.
const NO_VARIANT: u32 = u32::MAX;

operation! {
    /// Everything about the events with this id: its variants, or those of several sources, without their bodies.
    Get "/v1/events/{event}" Reads;
    ShowEvent {
        event: EventId,
        /// Only those of this source.
        source: Option<Name>,
        /// The variant whose bodies are included, of the event and of its answer, where they have at most 1 MiB.
        #[serde(default)]
        variant: Option<u32>,
    } -> EventDetails,
    |ShowEvent { event, source, variant }, context| {
        let store = &context.store;
        let mut events = store.show(source.clone(), event.clone(), Some(NO_VARIANT)).await?;
        let is_small = |one: &EventDetail| one.event.body_bytes <= ADMIN_BODY_BYTES;
        let is_wanted = |one: &EventDetail| Some(one.event.variant) == variant;
        if events.iter().filter(|one| is_wanted(one)).all(is_small) && variant.is_some() {
            // Each has the body of its answer.
            drop(events);
            events = store.show(source, event.clone(), variant).await?;
        }
        for one in &mut events {
            let is_wanted = Some(one.event.variant) == variant;
            if let Some(key) = &mut one.key {
                let is_small = |body: &Blob| body.len() as u64 <= ADMIN_BODY_BYTES;
                key.body = key.body.take().filter(|body| is_wanted && is_small(body));
            }
        }
        if events.is_empty() {
            return Err(store::Error::NoEvent(event).into());
        }
        let jobs = events.iter_mut().flat_map(|event| &mut event.jobs).map(|job| &mut job.job);
        mark_broken(context.receiver.as_ref(), jobs);
        Ok(EventDetails { events })
    }
}

/// The body of an event as it came, or of its answer: its bytes. It is read to its end before: a damaged one is a
/// `wrong_state`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetBody {
    pub event: EventId,
    pub source: Name,
    pub variant: u32,
    /// The body of the answer to the caller.
    #[serde(default)]
    pub answer: bool,
}

impl StreamOperation for GetBody {
    const PATH: &'static str = "/v1/events/{event}/body";
    const EFFECT: Effect = Effect::Reads;
    const CONTENT_TYPE: &'static str = "application/octet-stream";

    async fn send(
        self,
        context: &Context,
        to: Sender,
    ) -> Result<impl Future<Output = Result<(), ReaderGone>> + Send + 'static, Failure> {
        let GetBody { event, source, variant, answer } = self;
        let of = BodyOf { source, event, variant, answer };
        let place = budget::body().await?;
        let gone = || Failure::new(FailureKind::NotFound, "there is no such body, or not any more");
        context.store.check_body(of.clone()).await?;
        let body = context.store.body(of).await?.ok_or_else(gone)?;
        Ok(async move {
            let _place = place;
            pass_on(body, &to).await
        })
    }
}

async fn pass_on(mut body: BodyParts, to: &Sender) -> Result<(), ReaderGone> {
    let mut bytes = 0;
    loop {
        match body.part().await {
            Ok(Some(part)) => {
                bytes += part.len() as u64;
                to.bytes(part).await?;
            }
            Ok(None) => break,
            Err(error) => {
                to.fail(io::Error::other(error)).await;
                break;
            }
        }
    }
    drop(body);
    budget::trim(bytes / 1024);
    Ok(())
}

/// At least one event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventDetails {
    pub events: Vec<EventDetail>,
}

operation! {
    /// Put an event's held and dead jobs back, or the job of one handler, which is made if it is missing.
    Post "/v1/events/{event}/replay" Changes;
    ReplayEvent {
        event: EventId,
        /// Needed where several sources have an event of this id.
        source: Option<Name>,
        /// Only this handler's job, which may have succeeded.
        handler: Option<Name>,
        /// Whether jobs are put back also if a condition does not hold or cannot be decided, or a newer event of its
        /// group has run or will run.
        #[serde(default)]
        regardless: bool,
    } -> store::Replayed,
    |ReplayEvent { event, source, handler, regardless }, context| {
        let what = store::Replay::Event { source, event, handler };
        Ok(context.store.replay(what, regardless).await?)
    }
}

operation! {
    /// Make the jobs that the next stored events lack for one handler.
    Post "/v1/missing-jobs" Changes;
    for Backfill => store::BackfillResult,
    |missing, context| Ok(context.store.make_missing(missing).await?)
}

operation! {
    /// The event or job that is meant by an id or by its beginning.
    Get "/v1/find" Reads;
    for IdQuery => IdMatch,
    |query, context| Ok(context.store.find(query).await?)
}

operation! {
    /// How many characters of each of these ids are enough to find it.
    Post "/v1/shorten" Reads;
    ShortenIds {
        kind: IdKind,
        /// Whole ids, at most 1,000.
        ids: Vec<String>,
    } -> IdLengths,
    |ShortenIds { kind, ids }, context| {
        if ids.len() > SHORTENED_IDS {
            let message = format!("{} ids; {SHORTENED_IDS} is the limit", ids.len());
            return Err(Failure::new(FailureKind::Malformed, message));
        }
        Ok(IdLengths { chars: context.store.shorten(kind, ids).await? })
    }
}

/// How many characters of each id are enough, in the order of the ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdLengths {
    pub chars: Vec<usize>,
}

/// Events as they are accepted, oldest first: lines of JSON until the caller or the receiver ends it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowEvents {
    pub source: Option<Name>,
    /// Only events of this type, exactly or with `*` for any run of characters.
    pub event_type: Option<String>,
    /// Only those that arrived then or later.
    pub since: Option<Timestamp>,
    /// Only with a job in this state.
    pub state: Option<State>,
    /// Only with a job of this handler; with `state` too, only with such a job in that state.
    pub handler: Option<Name>,
    /// At most so many in the first line.
    pub limit: Option<usize>,
    /// The `next` of the last line read; without it the newest events come first.
    pub after: Option<FollowCursor>,
}

/// One line of the stream: events that came, or nothing new for a while.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FollowedEvents {
    /// Oldest first.
    pub events: Vec<EventRow>,
    /// Where to go on after a lost connection; none where nothing could be read yet.
    pub next: Option<FollowCursor>,
    /// Why the store cannot be read now. It is read again until it can.
    pub waiting: Option<String>,
}

/// The pause between two looks for new events: soon enough for a person, and few where events come all the time.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A line comes so often even without events, so that each end notices that the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(10);

impl StreamOperation for FollowEvents {
    const PATH: &'static str = "/v1/event-stream";
    const EFFECT: Effect = Effect::Reads;
    const CONTENT_TYPE: &'static str = "application/x-ndjson";
    const IS_ENDLESS: bool = true;

    async fn send(
        self,
        context: &Context,
        to: Sender,
    ) -> Result<impl Future<Output = Result<(), ReaderGone>> + Send + 'static, Failure> {
        let FollowEvents { source, event_type, since, state, handler, limit, mut after } = self;
        let mut filter =
            EventFilter { source, event_type, since, state, handler, limit, before: None };
        let store = context.store.clone();
        Ok(async move {
            let mut changes = store.changes();
            let mut silent_since: Option<Instant> = None;
            loop {
                let before = after;
                let mut line = FollowedEvents { events: Vec::new(), next: after, waiting: None };
                match store.new_events(filter.clone(), after).await {
                    Ok((events, cursor)) => {
                        after = Some(cursor);
                        line.events = events;
                        line.next = after;
                        // The limit is for the first line.
                        filter.limit = None;
                    }
                    Err(error) => line.waiting = Some(error.to_string()),
                }
                let is_due = silent_since.is_none_or(|since| since.elapsed() >= HEARTBEAT);
                let is_waiting = line.waiting.is_some();
                if is_due || !line.events.is_empty() || is_waiting {
                    to.line(line).await?;
                    silent_since = Some(Instant::now());
                }
                if !is_waiting && after == before {
                    // It has looked to the end: the next commit brings more, or the heartbeat is due.
                    let _ = timeout(HEARTBEAT, changes.changed()).await;
                }
                sleep(LOOK_AGAIN).await;
            }
        })
    }
}
