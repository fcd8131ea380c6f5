//! The roll call (N40) as operators meet it.

use uuid::Uuid;

use crate::store::border::Error;

use super::super::flight::Flight;
use super::super::stop::{Stop, ask};

/// A few of those that are awaited. Of an attempt that the history lacks, the handler is not known.
const AWAITED: &str = "
    SELECT name, node.state = 'lost', roll_call.job, roll_call.attempt, handler
    FROM roll_call JOIN node ON node.id = roll_call.node LEFT JOIN job ON job.id = roll_call.job
    ORDER BY name, roll_call.job NULLS FIRST LIMIT 3";

/// Refuses to start anything a second time while a node may run an attempt that the history of now does not know. The
/// caller's first statement keeps a change of the history waiting.
pub(super) async fn check(flight: &mut Flight) -> Result<(), Stop> {
    let mut awaited = Vec::new();
    for row in ask(flight, AWAITED, Vec::new()).await? {
        let name: String = row.try_get(0)?;
        let is_lost: bool = row.try_get(1)?;
        awaited.push(match row.try_get::<_, Option<Uuid>>(2)? {
            None if is_lost => format!(
                "node '{name}' was lost before the failover and may have come back since: `hooklatch node lost {name}` says that nothing of it runs"
            ),
            None => format!(
                "node '{name}' has not said since the failover what it runs: start it with all its runners, or, if its machine is gone, `hooklatch node lost {name}`"
            ),
            Some(job) => {
                let handler: Option<String> = row.try_get(4)?;
                let handler = handler.map(|handler| format!(" (handler {handler})"));
                format!(
                    "node '{name}' runs attempt {} of job {job}{}: wait for its end, or end it there",
                    row.try_get::<_, i64>(3)?,
                    handler.unwrap_or_default(),
                )
            }
        });
    }
    match awaited.is_empty() {
        true => Ok(()),
        false => Err(Error::Awaited(awaited.join("; ")).into()),
    }
}
