//! One attempt in the runner's process, from the permission to start it to its end, which the table keeps.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::message::Key;
use super::spawn::{self, Child, NoChild};
use super::table::{Permission, Table};
use super::{Cancellation, Ended, attend};
use crate::crash;
use crate::model::Facts;

/// Starts the attempt's command and follows it to its end. It goes on if the receiver's connection is lost: only the
/// command and this runner's clock end an attempt (R11).
pub(super) async fn run(table: Arc<Table>, key: Key, permission: Permission, facts: Facts) {
    let Permission { command, cancellation } = permission;
    crash::point("runner.start.noted");
    let spawned = spawn_blocking(move || spawn::spawn(&command.settings, &facts)).await;
    let ended = match spawned {
        Ok(Ok((child, process))) => {
            crash::point("runner.spawned");
            table.note_process(key, process, Arc::clone(&child));
            attend::attend(&child, &cancellation).await
        }
        Ok(Err(NoChild::Refused(reason, detail))) => return table.refuse(key, (reason, detail)),
        Ok(Err(NoChild::Lost(reason))) => Ended::Lost(reason),
        Err(panicked) => Ended::Lost(format!("failed to start it: {panicked}")),
    };
    crash::point("runner.reaped");
    table.settle(key, ended);
}

/// Follows the command of an attempt that ran when the runner executed itself again.
pub(super) async fn resume(
    table: Arc<Table>,
    key: Key,
    child: Arc<Child>,
    cancellation: Cancellation,
) {
    table.settle(key, attend::attend(&child, &cancellation).await);
}
