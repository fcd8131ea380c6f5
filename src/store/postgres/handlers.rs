//! The handlers of a node's configuration, which it publishes with each registration and reload: their policies decide when the
//! node cannot be asked any more.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::model::{Digest, Name, RunnerName};
use crate::retry::{GiveUp, Policy};
use crate::store::codec;

use super::flight::{Flight, Param};

/// Forgets what the node published before.
const FORGET: &str = "DELETE FROM handler WHERE node = $1";

/// Publishes a handler, and gives it a lane: without one, nothing of it is claimed.
const PUBLISH: &str = "
    WITH made AS (INSERT INTO lane (handler) VALUES ($2) ON CONFLICT DO NOTHING)
    INSERT INTO handler (node, handler, digest, on_unknown, give_up_attempts, give_up_after, backoff_base,
        backoff_max, pauses, runs, sources, settings)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// The policy of the handler $1 as a node other than $2 has published it.
pub(super) const ELSEWHERE: &str = "
    SELECT h.on_unknown, h.give_up_attempts, h.give_up_after, h.backoff_base, h.backoff_max, h.pauses
    FROM handler h JOIN node n ON n.id = h.node
    WHERE h.handler = $1 AND h.node <> $2 AND n.state = 'active'
    ORDER BY h.runs DESC, n.name LIMIT 1";

/// A handler of a node's configuration.
#[derive(Debug, Clone)]
pub struct PublishedHandler {
    pub handler: Name,
    /// The digest of its configuration.
    pub digest: Digest,
    /// What follows an attempt of unknown outcome.
    pub policy: Policy,
    /// Whether this node runs its jobs. It accepts them anyway.
    pub runs: bool,
    /// The runner of its command here.
    pub runner: Option<RunnerName>,
    /// The sources whose events it takes.
    pub sources: Vec<String>,
    /// Its keys with their values. Nothing of it is a secret, or a value of a command's environment.
    pub settings: BTreeMap<String, String>,
}

/// Replaces what the node has published. Handlers are locked in the order of their names.
pub(super) async fn publish(flight: &mut Flight, node: Uuid, handlers: &[PublishedHandler]) {
    flight.send(FORGET, vec![Box::new(node)]).await;
    let mut handlers: Vec<&PublishedHandler> = handlers.iter().collect();
    handlers.sort_by_key(|published| &published.handler);
    let millis = |time: Duration| codec::size(time.as_millis());
    for PublishedHandler { handler, digest, policy, runs, sources, settings, .. } in handlers {
        let (attempts, after) = match policy.give_up {
            GiveUp::Attempts(most) => (Some(i64::from(most)), None),
            GiveUp::After(age) => (None, Some(millis(age))),
        };
        let pauses: Vec<i64> = policy.pauses.iter().copied().map(millis).collect();
        let params: Vec<Param> = vec![
            Box::new(node),
            Box::new(handler.as_str().to_owned()),
            Box::new(digest.0.to_vec()),
            Box::new(policy.on_unknown.as_str()),
            Box::new(attempts),
            Box::new(after),
            Box::new(millis(policy.backoff_base)),
            Box::new(millis(policy.backoff_max)),
            Box::new(pauses),
            Box::new(*runs),
            Box::new(sources.clone()),
            Box::new(serde_json::json!(settings).to_string()),
        ];
        flight.send(PUBLISH, params).await;
    }
}

/// Reads the columns from `on_unknown` to `pauses`, of which `first` is the first. None where the node has not
/// published the handler.
pub(super) fn policy(row: &Row, first: usize) -> Result<Option<Policy>, Error> {
    let Some(on_unknown) = row.try_get::<_, Option<&str>>(first)? else { return Ok(None) };
    let Ok(on_unknown) = on_unknown.parse() else { return Ok(None) };
    let duration = |millis: i64| Duration::from_millis(millis.try_into().unwrap_or(0));
    let attempts: Option<i64> = row.try_get(first + 1)?;
    let after: Option<i64> = row.try_get(first + 2)?;
    let give_up = match attempts {
        Some(most) => GiveUp::Attempts(most.try_into().unwrap_or(u32::MAX)),
        None => GiveUp::After(duration(after.unwrap_or(0))),
    };
    let pauses: Vec<i64> = row.try_get(first + 5)?;
    Ok(Some(Policy {
        on_unknown,
        give_up,
        backoff_base: duration(row.try_get(first + 3)?),
        backoff_max: duration(row.try_get(first + 4)?),
        answers: false,
        pauses: pauses.into_iter().map(duration).collect(),
    }))
}
