//! When each secret last matched, to the minute, in a transaction of its own: its row is one for all nodes, and no
//! accept may wait for it. A match may be lost.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Name;
use crate::verify::Verified;

use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Session};
use super::stop::limit_lock_wait;

/// How often a node writes a secret's last match.
const EVERY: Duration = Duration::from_secs(60);

/// Notes that secrets have matched, by the database's clock.
const NOTE: &str = r#"
    INSERT INTO secret_use (source, reference, last_matched_at)
    SELECT source, reference, now_ms() FROM unnest($1::text[], $2::text[]) AS used (source, reference)
    ORDER BY source COLLATE "C", reference COLLATE "C"
    ON CONFLICT (source, reference) DO UPDATE SET last_matched_at = excluded.last_matched_at"#;

/// The secrets that have matched at this node, by source and reference.
#[derive(Default)]
pub(super) struct SecretUses {
    /// When each was written, by the monotonic clock.
    written: BTreeMap<(Name, String), Duration>,
    due: Vec<(Name, String)>,
}

impl SecretUses {
    /// The delivery's secret has matched, if it needed one.
    pub(super) fn note(&mut self, source: &Name, delivery: &Verified, now: Duration) {
        let Some(reference) = delivery.secret() else { return };
        let secret = (source.clone(), reference.to_owned());
        if self.written.get(&secret).is_none_or(|last| now.saturating_sub(*last) >= EVERY) {
            self.written.insert(secret.clone(), now);
            self.due.push(secret);
        }
    }

    /// Writes those that are due. Returns the connection where the session can be used further.
    pub(super) async fn write(
        &mut self,
        connection: Connection,
        session: &Session,
    ) -> Option<Connection> {
        if self.due.is_empty() {
            return Some(connection);
        }
        let due = self.due.drain(..).map(|(source, reference)| (source.to_string(), reference));
        let (sources, references): (Vec<String>, Vec<String>) = due.unzip();
        let mut flight = Flight::begin(connection, session).await;
        limit_lock_wait(&mut flight).await;
        flight.send(NOTE, vec![Box::new(sources), Box::new(references)]).await;
        match flight.commit().await {
            FlightOutcome::Committed(connection, _) => Some(connection),
            FlightOutcome::NotCommitted(why, connection) => {
                connection.filter(|_| !why.ends_the_session())
            }
            FlightOutcome::Unknown(_) => None,
        }
    }
}
