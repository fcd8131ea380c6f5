//! Makes internal events of the notices that are due.

use rusqlite::Connection;

use crate::model::NoticeType;
use crate::store::border::{Error, Refused};
use crate::store::decide::notice::{Notice, degraded};
use crate::store::sqlite::engine::queue::Priority;

use super::handle::Jobs;

impl Jobs {
    pub async fn tell_notices(&self) -> Result<u64, Error> {
        // At each tick of the dispatcher, as the notices.
        self.engine.mark().await;
        let (notices, now) = (self.engine.notices.clone(), self.engine.clock.now());
        for stall in self.engine.stalls.untold(now) {
            self.notify(Notice::of_store(stall.what.sentence(), stall.since, now));
        }
        let no_space = self.engine.ready().err().filter(|why| matches!(why, Refused::NoSpace(_)));
        let reason = no_space.as_ref().and_then(degraded);
        if let Some(reason) = reason.filter(|_| notices.want(NoticeType::StoreDegraded)) {
            let (notices, notice) = (notices.clone(), Notice::of_store(reason, now, now));
            let note = move |tx: &Connection| notices.note(tx, &notice, now);
            // A disk that is full has no room for it either: the writer reports it afterwards.
            if let Err(error) = self.engine.submit(Priority::Verb, note).await {
                tracing::debug!(%error, "too little space to store its own notice");
            }
        }
        // Nearly always none is due, and a read costs no flush.
        let reader = notices.clone();
        if !self.engine.read(move |conn| reader.is_due(conn, now)).await? {
            return Ok(0);
        }
        self.engine.change(move |tx, now| Ok(notices.tell_due(tx, now)?)).await
    }
}
