//! The roll call (N40) as operators meet it.

use crate::store::border::{AwaitedNode, Error};
use crate::store::columns::FromRow;

use super::super::admin::history::AWAITED;
use super::super::flight::Flight;
use super::super::params::params;
use super::super::stop::{Stop, ask};

/// Most that one refusal names.
const MOST_NAMED: i64 = 3;

/// Refuses to start anything a second time while a node may run an attempt that the history of now does not know. The
/// caller's first statement keeps a change of the history waiting.
pub(super) async fn check(flight: &mut Flight) -> Result<(), Stop> {
    let mut awaited = Vec::new();
    for row in ask(flight, AWAITED, params![MOST_NAMED]).await? {
        let node = AwaitedNode::from_row(row)?;
        awaited.push(format!("{node}: {}", node.help()));
    }
    match awaited.is_empty() {
        true => Ok(()),
        false => Err(Error::Awaited(awaited.join("; ")).into()),
    }
}
