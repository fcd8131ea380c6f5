//! Events: list, show, follow, replay, and find by the beginning of an id.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::super::failure::{Failure, FailureKind};
use super::super::operation::{Context, Effect, operation};
use super::super::receiver::mark_broken;
use super::super::stream::{ReaderGone, Sender, StreamOperation};
use crate::limits::SHORTENED_IDS;
use crate::model::{EventId, Name, State, Timestamp};
use crate::store::{
    self, Backfill, EventDetail, EventFilter, EventRow, FollowCursor, IdKind, IdMatch, IdQuery,
    Page,
};

operation! {
    /// Events, newest first.
    Get "/v1/events" Reads;
    for EventFilter => Page<EventRow>,
    |filter, context| Ok(context.store.events(filter).await?)
}

operation! {
    /// Everything about the events with this id: its variants, or those of several sources.
    Get "/v1/events/{event}" Reads;
    ShowEvent {
        event: EventId,
        /// Only those of this source.
        source: Option<Name>,
        /// With the payload of this variant only: each may have many megabytes.
        #[serde(default)]
        variant: Option<u32>,
    } -> EventDetails,
    |ShowEvent { event, source, variant }, context| {
        let mut events = context.store.show(source, event.clone(), variant).await?;
        if events.is_empty() {
            return Err(store::Error::NoEvent(event).into());
        }
        let jobs = events.iter_mut().flat_map(|event| &mut event.jobs).map(|job| &mut job.job);
        mark_broken(context.receiver.as_ref(), jobs);
        Ok(EventDetails { events })
    }
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
        /// Also if a condition does not hold or cannot be decided, or a newer event of its group has run or will run.
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

/// In the order of the ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdLengths {
    pub chars: Vec<usize>,
}

/// Events as they are accepted, oldest first: lines of JSON until the caller or the receiver ends it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowEvents {
    pub source: Option<Name>,
    /// Exactly, or with `*` for any run of characters.
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

/// Between two looks for new events: soon enough for a person, and few where events come all the time.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A line comes so often even without events, so that each end notices that the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(10);

impl StreamOperation for FollowEvents {
    const PATH: &'static str = "/v1/event-stream";
    const EFFECT: Effect = Effect::Reads;
    const CONTENT_TYPE: &'static str = "application/x-ndjson";

    fn send(
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
                if is_due || !line.events.is_empty() || line.waiting.is_some() {
                    to.line(&line).await?;
                    silent_since = Some(Instant::now());
                }
                if line.waiting.is_none() && after == before {
                    // It has looked to the end: the next commit brings more, or the heartbeat is due.
                    let _ = timeout(HEARTBEAT, changes.changed()).await;
                }
                sleep(LOOK_AGAIN).await;
            }
        })
    }
}
