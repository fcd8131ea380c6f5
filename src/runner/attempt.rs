//! One attempt in the runner's process: from leave to start it to its end in the table.

use std::sync::Arc;

use super::message::{Key, Refusal};
use super::spawn::{Child, NoChild, Plan};
use super::table::{Leave, Table};
use super::{Cancellation, Ended, attend};
use crate::crash;
use crate::model::Facts;

/// Runs it. Polled to its end by the runtime, whatever becomes of the connection it came by: only
/// the command and this runner's clock end it (R11).
pub(super) async fn run(table: Arc<Table>, key: Key, leave: Leave, facts: Facts) {
    let settings = &leave.command.settings;
    let (plan, body) = (Plan::new(settings, &facts), facts.body);
    crash::point("runner.start.noted");
    let ended = match tokio::task::spawn_blocking(move || plan.spawn(&body)).await {
        Ok(Ok((child, process))) => {
            crash::point("runner.spawned");
            table.began(key, process, child.view());
            attend::attend(child, &leave.cancellation).await
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

/// Goes on with one that runs, after the runner has executed itself again.
pub(super) async fn resume(table: Arc<Table>, key: Key, child: Child, cancellation: Cancellation) {
    table.settle(key, attend::attend(child, &cancellation).await);
}
