//! A verb inside its transaction: it may refuse the request, or the transaction fails.

use rusqlite::Connection;

use crate::model::Timestamp;
use crate::store::border::Error;

use super::handle::Engine;
use super::queue::Priority;

/// Why a verb ends early inside its transaction.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum VerbError {
    /// The request is refused. The verb has changed nothing.
    Refused(#[from] Error),
    /// The transaction is rolled back.
    Sql(#[from] rusqlite::Error),
}

/// A refusal is a result to the connection that runs the verb.
fn refusable<T>(result: Result<T, VerbError>) -> rusqlite::Result<Result<T, Error>> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(VerbError::Refused(error)) => Ok(Err(error)),
        Err(VerbError::Sql(error)) => Err(error),
    }
}

impl Engine {
    /// Runs a verb of the operator or the dispatcher in one of the writer's transactions, with the time of then.
    pub(crate) async fn change<T, F>(&self, mut verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&Connection, Timestamp) -> Result<T, VerbError> + Send + 'static,
    {
        let clock = self.clock.clone();
        self.submit(Priority::Verb, move |tx| refusable(verb(tx, clock.now()))).await?
    }

    /// Runs a look-up that may find nothing to return.
    pub(crate) async fn look_up<T, F>(&self, query: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, VerbError> + Send + 'static,
    {
        self.read(move |conn| refusable(query(conn))).await?
    }
}
