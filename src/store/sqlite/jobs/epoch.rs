//! EPOCH: numbers the receivers of a store, so that a runner knows the younger of two (R3).

use crate::crash;
use crate::store::border::Error;
use crate::store::sqlite::engine::queue::Priority;
use crate::store::sqlite::tables::codec::change_one;

use super::handle::Jobs;

impl Jobs {
    pub async fn raise_epoch(&self) -> Result<u64, Error> {
        let epoch = self
            .engine
            .submit(Priority::Kept, |tx| {
                // Raised in the statement itself, so that no two readings are the same.
                change_one(tx, "UPDATE meta SET epoch = epoch + 1 WHERE one = 1", [])?;
                crash::point("epoch.commit.before");
                // What this transaction has just written.
                tx.query_row("SELECT epoch FROM meta WHERE one = 1", [], |row| row.get::<_, i64>(0))
            })
            .await?;
        crash::point("epoch.commit.after");
        Ok(epoch.unsigned_abs())
    }
}
