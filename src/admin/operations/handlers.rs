//! Handlers: what the store knows of them, pause and resume.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::operation::operation;
use crate::model::{Name, Timestamp};

operation! {
    /// The handlers that are paused or have unfinished jobs, by name.
    Get "/v1/handlers" Reads;
    ListHandlers {} -> HandlerList,
    |ListHandlers {}, context| {
        let mut handlers = BTreeMap::new();
        for (handler, unfinished_jobs) in context.store.unfinished().await? {
            let row = HandlerRow { handler: handler.clone(), paused_since: None, unfinished_jobs };
            handlers.insert(handler, row);
        }
        for paused in context.store.paused().await? {
            let handler = paused.handler.clone();
            let row = HandlerRow { handler, paused_since: None, unfinished_jobs: 0 };
            handlers.entry(paused.handler).or_insert(row).paused_since = Some(paused.since);
        }
        Ok(HandlerList { handlers: handlers.into_values().collect() })
    }
}

/// The handlers listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandlerList {
    pub handlers: Vec<HandlerRow>,
}

/// A handler that is paused or has unfinished jobs; the configuration may no longer have it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandlerRow {
    pub handler: Name,
    /// Since when it is paused; none where it is not.
    pub paused_since: Option<Timestamp>,
    /// Jobs to run or running.
    pub unfinished_jobs: u64,
}

operation! {
    /// Claim nothing of this handler until it is resumed.
    Post "/v1/handlers/{handler}/pause" Changes;
    PauseHandler { handler: Name } -> ChangedHandler,
    |request, context| Ok(ChangedHandler { changed: context.store.pause(&request.handler).await? })
}

operation! {
    /// Claim this handler's jobs again.
    Post "/v1/handlers/{handler}/resume" Changes;
    ResumeHandler { handler: Name } -> ChangedHandler,
    |request, context| Ok(ChangedHandler { changed: context.store.resume(&request.handler).await? })
}

/// Whether the handler was in the other state before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangedHandler {
    pub changed: bool,
}
