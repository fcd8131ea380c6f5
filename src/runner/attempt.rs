//! One attempt in the runner's process: from the permission to start it to its end in the table.

use std::sync::Arc;

use super::commands::Configured;
use super::message::{Key, Refusal};
use super::spawn::{self, Child, NoChild};
use super::table::{Permission, Table};
use super::{Cancellation, CommandSettings, Ended, attend};
use crate::crash;
use crate::model::Facts;

/// Runs the attempt. The runtime polls it to its end even if the receiver's connection is lost: only the
/// command and this runner's clock end an attempt (R11).
pub(super) async fn run(table: Arc<Table>, key: Key, permission: Permission, facts: Facts) {
    let Permission { command, cancellation } = permission;
    crash::point("runner.start.noted");
    let facts = Arc::new(facts);
    let settings = match prepare(Arc::clone(&command), Arc::clone(&facts)).await {
        Ok(settings) => settings,
        Err(refused) => {
            table.void(key, (Refusal::Values, refused));
            return;
        }
    };
    let spawned = move || spawn::spawn(settings.as_ref().unwrap_or(&command.settings), &facts);
    let ended = match tokio::task::spawn_blocking(spawned).await {
        Ok(Ok((child, process))) => {
            crash::point("runner.spawned");
            table.began(key, process, Arc::clone(&child));
            attend::attend(&child, &cancellation).await
        }
        Ok(Err(NoChild::NotStarted(reason))) => {
            return table.void(key, (Refusal::CannotStart, reason));
        }
        Ok(Err(NoChild::NoRoom(reason))) => return table.void(key, (Refusal::NoResources, reason)),
        Ok(Err(NoChild::Lost(reason))) => Ended::Lost(reason),
        Err(panicked) => Ended::Lost(format!("failed to start it: {panicked}")),
    };
    crash::point("runner.reaped");
    table.settle(key, ended);
}

/// The settings with the event's values; `None` for a command without values. Before the thread that spawns is
/// taken: a large body takes a while. An `Err` is for the operator.
async fn prepare(
    command: Arc<Configured>,
    facts: Arc<Facts>,
) -> Result<Option<CommandSettings>, String> {
    if command.settings.values.is_none() {
        return Ok(None);
    }
    let evaluated = move || {
        let values = command.settings.values.as_ref()?;
        Some(command.settings.for_event(values, &facts))
    };
    let evaluated = tokio::task::spawn_blocking(evaluated).await;
    evaluated.map_err(|panicked| panicked.to_string())?.transpose().map_err(|why| why.to_string())
}

/// Continues an attempt that runs, after the runner has executed itself again.
pub(super) async fn resume(
    table: Arc<Table>,
    key: Key,
    child: Arc<Child>,
    cancellation: Cancellation,
) {
    table.settle(key, attend::attend(&child, &cancellation).await);
}
