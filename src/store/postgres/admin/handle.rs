//! The handle of `control` and `metrics` on PostgreSQL.

use std::sync::Arc;

use uuid::Uuid;

use crate::limits::{LISTINGS, Limits};
use crate::store::border::Error;
use crate::store::codec;

use super::super::columns::Columns;
use super::super::connection::Target;
use super::super::reader::{Reader, Reading};

/// `list_millis` is the time for so many rows; a longer listing gets a multiple of it.
const ROWS_PER_TURN: u64 = 1_000;

/// For operators, from a receiver or without one: nothing here belongs to a node's session.
#[derive(Clone)]
pub struct Admin {
    pub target: Target,
    readers: Arc<Readers>,
}

struct Readers {
    /// Of look-ups, which do not wait for listings.
    look: Reader,
    lists: [Reader; LISTINGS],
    limits: Limits,
}

impl Admin {
    /// Connects when it is first asked for something. The schema must exist by then.
    pub fn new(target: Target, limits: &Limits) -> Admin {
        let reader = || Reader::new(target.clone());
        let lists = std::array::from_fn(|_| reader());
        let readers = Readers { look: reader(), lists, limits: limits.clone() };
        Admin { readers: Arc::new(readers), target }
    }

    /// The store's random identity; another one after a change of the history that held its jobs (N27).
    pub async fn id(&self) -> Result<Uuid, Error> {
        let row = self.look().read().await?.row("SELECT store_id FROM meta", &[]).await?;
        row.ok_or_else(|| Error::Unavailable("its identity is missing".to_owned()))?
            .value("store_id")
    }

    pub(super) fn look(&self) -> &Reader {
        &self.readers.look
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.readers.limits
    }

    /// A listing of at most `rows` rows.
    pub(super) async fn listing(&self, rows: i64) -> Result<Reading<'_>, Error> {
        let turns = u64::try_from(rows).unwrap_or(0).div_ceil(ROWS_PER_TURN).max(1);
        let millis = self.limits().list_millis.saturating_mul(turns);
        // A connection that is free; where none is, the first one's page is soon over.
        let lists = &self.readers.lists;
        let reader = lists.iter().find(|list| list.is_free()).unwrap_or(&lists[0]);
        reader.listing(Limits::duration(millis)).await
    }

    /// The most rows that a listing may return.
    pub(super) fn list_limit(&self, asked: Option<usize>) -> i64 {
        let most = codec::size(self.limits().list_count);
        asked.map_or(most, |asked| codec::size(asked).min(most))
    }

    /// Most rows of a page. A page of 0 rows would look at 20,000 and return none.
    pub(super) fn page_limit(&self, asked: Option<usize>) -> Result<i64, Error> {
        match self.list_limit(asked) {
            0 => Err(Error::NoRows { most: self.list_limit(None) }),
            limit => Ok(limit),
        }
    }
}
