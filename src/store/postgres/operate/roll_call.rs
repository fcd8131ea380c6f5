//! The roll call (N40) as operators meet it.

use uuid::Uuid;

use crate::store::border::Error;

use super::super::flight::Flight;
use super::super::stop::{Stop, ask};

/// A few of those that are awaited.
const AWAITED: &str = "
    SELECT name, roll_call.job, attempt, handler FROM roll_call JOIN node ON node.id = roll_call.node
    ORDER BY name, roll_call.job NULLS FIRST LIMIT 3";

/// Refuses to start anything a second time while a node may run an attempt that the history of now does not know. The
/// caller's first statement keeps a change of the history waiting.
pub(super) async fn check(flight: &mut Flight) -> Result<(), Stop> {
    let mut awaited = Vec::new();
    for row in ask(flight, AWAITED, Vec::new()).await? {
        let name: String = row.try_get(0)?;
        awaited.push(match row.try_get::<_, Option<Uuid>>(1)? {
            None => format!(
                "node '{name}' has not said since the failover what it runs: start it with its runners, or `hooklatch node lost {name}`"
            ),
            Some(job) => format!(
                "node '{name}' runs attempt {} of job {job} (handler {}): wait for its end, or end it there",
                row.try_get::<_, i64>(2)?,
                row.try_get::<_, String>(3)?,
            ),
        });
    }
    match awaited.is_empty() {
        true => Ok(()),
        false => Err(Error::Awaited(awaited.join("; ")).into()),
    }
}
