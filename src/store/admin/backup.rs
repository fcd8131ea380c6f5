//! COPY: begins a backup.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::store::engine::copy_task::{CopyError, CopyInProgress, CopyProgress, CopyTask};

use super::handle::Admin;

impl Admin {
    /// COPY: begins a copy of the store as it is once the copy ends.
    ///
    /// # Errors
    /// Where another one is being made, or the store takes nothing now.
    pub fn copy(&self) -> Result<CopyInProgress, CopyError> {
        let progress = Arc::new(CopyProgress::default());
        let (done, answer) = oneshot::channel();
        let task = CopyTask { progress: Arc::clone(&progress), answer: done };
        self.engine.queue.push_copy(task)?;
        Ok(CopyInProgress { progress, answer })
    }
}
