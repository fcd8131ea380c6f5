//! BODY: the next bytes of a body's stored form, by itself: a slow reader keeps no snapshot of the database.

use std::io::ErrorKind;

use crate::limits::BODY_PIECE_BYTES;
use crate::store::border::{BodyOf, Error};

use super::handle::Admin;

const MOST: i32 = BODY_PIECE_BYTES as i32;

/// At most $5 bytes from the place $4 on, which begins with 1. By the unique (source, id, variant), and by the primary key.
const PAYLOAD: &str = "SELECT substring(p.body FROM $4::int FOR $5::int)
    FROM event e JOIN payload p ON p.event = e.row WHERE e.source = $1 AND e.event_id = $2 AND e.variant = $3";
const ANSWER: &str = "SELECT substring(a.body FROM $4::int FOR $5::int)
    FROM event e JOIN answer a ON a.event = e.row WHERE e.source = $1 AND e.event_id = $2 AND e.variant = $3";

impl Admin {
    /// The next bytes of a body's stored form behind the first `from`, none at its end; nothing where it is not kept.
    pub async fn body_piece(&self, of: BodyOf, from: u64) -> Result<Option<Vec<u8>>, Error> {
        let select = if of.answer { ANSWER } else { PAYLOAD };
        let begin = i32::try_from(from.saturating_add(1)).unwrap_or(i32::MAX);
        let variant = i64::from(of.variant);
        let mut reading = self.look().read().await?;
        let found: Result<Option<(Option<Vec<u8>>,)>, Error> =
            reading.one(select, &[&of.source, &of.event, &variant, &begin, &MOST]).await;
        match found {
            Err(error) if reading.unread == Some(ErrorKind::InvalidData) => {
                Err(Error::Damaged(error.to_string()))
            }
            found => Ok(found?.and_then(|(piece,)| piece)),
        }
    }
}
