//! AUDIT of a change that the store does not carry out: a row before it, and one after it. The same for all engines.

use std::fmt::Display;
use std::time::Duration;

use crate::limits::BY_REASON_BYTES;
use crate::model::AuditVerb;
use crate::store::border::{ASKED, AuditSubject, DONE, Error};

use super::Admin;

/// How long a change that the store does not carry out waits for one of its rows: a reload may be what a store needs
/// that cannot be written.
const PATIENCE: Duration = Duration::from_millis(500);

impl Admin {
    /// Makes a change that the store does not carry out, of `count` things, between two rows. If the first is refused,
    /// the change is not begun. A store that cannot be written now delays it by [`PATIENCE`] only, and has both rows once
    /// it can. The change returns its result and how many things it has changed; it goes on if the caller is gone.
    pub async fn surround<T, E>(
        &self,
        verb: AuditVerb,
        subject: AuditSubject,
        count: u64,
        change: impl Future<Output = Result<(T, u64), E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Display + Send + 'static,
    {
        let admin = self.clone();
        let changing = tokio::spawn(async move {
            let before = (verb, subject.clone(), count, ASKED.to_owned());
            let is_written = admin.note_change(before, PATIENCE).await?;
            let changed = change.await;
            let (count, result) = match &changed {
                Ok((_, count)) => (*count, DONE.to_owned()),
                Err(error) => (0, cut(&error.to_string())),
            };
            let patience = if is_written { PATIENCE } else { Duration::ZERO };
            if let Err(error) = admin.note_change((verb, subject, count, result), patience).await {
                // The change is made, or has failed: this is not another result of it.
                tracing::warn!(%verb, %error, "failed to write the end of a change to the audit list");
            }
            Ok(changed?.0)
        });
        changing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

/// Cuts an error's text to the bytes that a reason may have.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(BY_REASON_BYTES)].to_owned()
}
