//! FOLLOW: events in the order of their numbers, for clients that follow them.
//!
//! What must stay true: nothing is missed and nothing seen twice. A transaction takes its events' numbers before it
//! commits, so a lower number may become visible after a higher one. Every transaction that has a number holds a lock
//! on the table until its end: once all that held one have ended, the events up to the highest number that was visible
//! before are complete.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::limits::PAGE_LOOK_ROWS;
use crate::store::border::{Error, EventFilter, EventRow, FollowCursor};
use crate::store::decide::listing::{ListedEvent, list_limit};

use super::filter::{Value, event_filters, event_values, for_events};
use super::handle::Admin;
use super::list::newest_events;
use super::rows::{event_columns, with_jobs};

/// The highest visible number, and the transactions that write events now. The server looks at the locks after it has
/// chosen what is visible.
const WRITERS: &str = "
    SELECT coalesce((SELECT max(row) FROM event), 0) AS newest, ARRAY(
        SELECT virtualtransaction FROM pg_locks WHERE relation = 'event'::regclass
            AND mode = 'RowExclusiveLock' AND database = (
                SELECT oid FROM pg_database WHERE datname = current_database())) AS writers";

/// How long such a transaction is waited for: far longer than one takes, unless its commit waits for a standby.
const SETTLING: Duration = Duration::from_secs(1);

/// The pause between two looks at the locks.
const LOOK: Duration = Duration::from_millis(5);

/// The events behind number $1 and up to $2, $3 at most.
macro_rules! following {
    () => {
        "(SELECT * FROM event WHERE row > $1 AND row <= $2 ORDER BY row LIMIT $3) e"
    };
}

const FOLLOWING: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM ",
    following!(),
    event_filters!(),
    "ORDER BY e.row LIMIT $9"
);

/// The last of them, if there may be more.
const WINDOW: &str = concat!("SELECT max(row) FROM ", following!(), " HAVING count(*) = $3");

impl Admin {
    /// The events after a place; where none is given, the newest ones. Both oldest first, and no more
    /// than the filter's limit: the rest comes with the next call. Returns the place to go on from too. While a
    /// transaction of any node waits for its commit, what may follow it is not shown. A failover that loses commits
    /// gives their numbers again (N9): a client that goes on from a place does not see the events that have numbers up to
    /// that place a second time. One that asks for the newest events anew does.
    pub async fn new_events(
        &self,
        filter: EventFilter,
        after: Option<FollowCursor>,
    ) -> Result<(Vec<EventRow>, FollowCursor), Error> {
        let limit = list_limit(self.limits(), filter.limit);
        let filter = for_events(filter);
        let upto = match (self.complete_upto().await?, after) {
            (Some(upto), _) => upto,
            (None, Some(place)) => return Ok((Vec::new(), place)),
            (None, None) => {
                let why = "events are being stored whose commits wait; ask again";
                return Err(Error::Unavailable(why.to_owned()));
            }
        };
        let mut reading = self.listing(limit).await?;
        let Some(FollowCursor(after)) = after else {
            let page = newest_events(&mut reading, &filter, upto.saturating_add(1), limit).await?;
            let events = with_jobs(&mut reading, page.rows.into_iter().rev().collect()).await?;
            return Ok((events, FollowCursor(upto)));
        };
        let window: [Value<'_>; 3] = [&after, &upto, &PAGE_LOOK_ROWS];
        let values = [&window[..], &event_values(&filter), &[&limit]].concat();
        let found: Vec<ListedEvent> = reading.all(FOLLOWING, &values).await?;
        let place = match found.last().filter(|_| found.len() as i64 == limit) {
            Some(last) => last.row,
            None => {
                let cut = reading.one(WINDOW, &window).await?;
                cut.map_or(upto.max(after), |(last,)| last)
            }
        };
        Ok((with_jobs(&mut reading, found).await?, FollowCursor(place)))
    }

    /// The number up to which no event is still to come. `None` where transactions do not end.
    async fn complete_upto(&self) -> Result<Option<i64>, Error> {
        let deadline = Instant::now() + SETTLING;
        let (newest, mut open) = self.writers().await?;
        while !open.is_empty() {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            sleep(LOOK).await;
            let (_, writers) = self.writers().await?;
            open.retain(|writer| writers.contains(writer));
        }
        Ok(Some(newest))
    }

    async fn writers(&self) -> Result<(i64, Vec<String>), Error> {
        let mut reading = self.look().read().await?;
        Ok(reading.one(WRITERS, &[]).await?.unwrap_or_default())
    }
}
