//! COPY: begins a backup.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::store::sqlite::engine::copy_task::{CopyError, CopyInProgress, CopyProgress, CopyTask};

use super::handle::Admin;

impl Admin {
    pub fn copy(&self) -> Result<CopyInProgress, CopyError> {
        let progress = Arc::new(CopyProgress::default());
        let (done, answer) = oneshot::channel();
        let task = CopyTask { progress: Arc::clone(&progress), answer: done };
        self.engine.queue.push_copy(task)?;
        Ok(CopyInProgress { progress, answer })
    }
}
