//! The engine below the three handles: runs work in the writer's transactions, and queries on the readers.

use std::ops::Deref;
use std::sync::Arc;

use rusqlite::Connection;

use crate::store::border::{Error, Refused};
use crate::store::decide::listing::list_time;

use super::queue::{Priority, WriteReply, WriteRequest};
use super::shared::EngineState;

/// Every handle has a clone. When the last clone is dropped the writer ends.
#[derive(Clone)]
pub(crate) struct Engine {
    shared: Arc<EngineState>,
    _closing: Arc<Closing>,
}

struct Closing(Arc<EngineState>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl Deref for Engine {
    type Target = EngineState;

    fn deref(&self) -> &EngineState {
        &self.shared
    }
}

impl Engine {
    pub(crate) fn new(shared: Arc<EngineState>) -> Engine {
        Engine { _closing: Arc::new(Closing(Arc::clone(&shared))), shared }
    }

    /// Fails with the reason while accepts are refused.
    pub(crate) fn ready(&self) -> Result<(), Refused> {
        self.queue.door()?;
        self.space.refuses(self.clock.monotonic()).map_or(Ok(()), Err)
    }

    /// Queues `work` for one of the writer's transactions; returns its result after the flush.
    pub(crate) async fn submit<T, F>(&self, priority: Priority, work: F) -> Result<T, Refused>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (item, answer) = WriteRequest::new(priority, work, |_: &T| ());
        self.push(item, answer).await
    }

    /// Queues an item for the writer; returns its result after the flush.
    pub(crate) async fn push<T>(
        &self,
        item: WriteRequest,
        answer: WriteReply<T>,
    ) -> Result<T, Refused> {
        self.queue.push(item)?;
        heard(answer).await
    }

    /// Runs `query` on the reader, on a blocking thread.
    pub(crate) async fn read<T, F>(&self, query: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        tokio::task::spawn_blocking(move || readers.read(query))
            .await
            .unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }

    /// Runs a listing of at most `rows` rows on the listings' own connection, on a blocking thread.
    pub(crate) async fn list<T, F>(&self, rows: i64, query: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let most = list_time(&self.settings.limits, rows);
        // A connection that is free; where none is, the first one's page is soon over.
        let free = self.lists.iter().find(|list| list.is_free()).unwrap_or(&self.lists[0]);
        let lists = Arc::clone(free);
        tokio::task::spawn_blocking(move || lists.list(most, query))
            .await
            .unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }
}

/// Waits for the writer's answer; an item that is queued after the writer's end gets none.
pub(crate) async fn heard<T>(answer: WriteReply<T>) -> Result<T, Refused> {
    answer.await.unwrap_or(Err(Refused::Stopping))
}
