//! Which receiver a runner admits, and what it starts for it. Pure questions to the locked table.

use std::sync::Arc;

use super::{Inner, Refused};
use crate::runner::commands::Configured;
use crate::runner::ledger::Bound;
use crate::runner::message::{Hello, Key, OLDEST, Refusal, Start, VERSION};
use crate::runner::peer::Peer;

impl Inner {
    /// Binds the table to the receiver's store and epoch. An `Err` says, for the operator, why not.
    pub(super) fn may_bind(&self, hello: &Hello) -> Result<Bound, String> {
        let bound = Bound { store: hello.store, epoch: hello.epoch };
        if hello.version < OLDEST {
            return Err(format!(
                "the receiver speaks version {} of the protocol and this runner {OLDEST} to \
                 {VERSION} (upgrade the receiver)",
                hello.version
            ));
        }
        if let Some(wanted) = hello.runner.as_ref().filter(|wanted| **wanted != self.name) {
            return Err(format!(
                "the receiver means runner '{wanted}', and this is '{}' (give each its own socket)",
                self.name
            ));
        }
        let Some(before) = self.bound else { return Ok(bound) };
        // Without an attempt no history can be confused: the store was restored or replaced.
        if before.store != bound.store && !self.attempts.is_empty() {
            return Err(format!(
                "this runner has {} attempts of store {} that are not acknowledged, and the receiver \
                 serves store {} ({})",
                self.attempts.len(),
                before.store,
                bound.store,
                self.remedy()
            ));
        }
        if before.store == bound.store && bound.epoch < before.epoch {
            return Err(format!(
                "epoch {} of store {}, and this runner has seen {}: the store is an older copy ({})",
                bound.epoch,
                bound.store,
                before.epoch,
                self.remedy()
            ));
        }
        Ok(bound)
    }

    /// What the operator can do. The next runner reads the same ledger. Without the ledger it answers for no
    /// dead runner, and ends all that still runs of an attempt before that attempt is lost.
    fn remedy(&self) -> String {
        format!(
            "if that is meant, stop the receiver and the runner, and `rm {}`",
            self.ledger.path().display()
        )
    }

    pub(super) fn may_start(&self, peer: &Peer, start: &Start) -> Result<Arc<Configured>, Refused> {
        let refuse = |reason, detail: String| Err((reason, detail));
        if !self.is_admitted(peer) {
            return refuse(Refusal::StaleEpoch, "another receiver was admitted since".to_owned());
        }
        if start.incarnation != self.incarnation {
            let detail =
                format!("claimed for runner {}, this is {}", start.incarnation, self.incarnation);
            return refuse(Refusal::OtherIncarnation, detail);
        }
        let same_job = |key: &&Key| key.job == start.facts.job;
        if let Some(there) = self.attempts.keys().find(same_job) {
            tracing::error!(start = %start.key(), %there, "asked to start a job that has an attempt here");
            return refuse(Refusal::Busy, format!("{there} is here"));
        }
        if self.draining {
            return refuse(Refusal::Draining, "the runner is stopping".to_owned());
        }
        if self.free() == 0 {
            let detail = format!("{} attempts are the limit", self.capacity);
            return refuse(Refusal::NoResources, detail);
        }
        self.commands.find(&start.facts.handler, &start.configuration).map_err(|reason| {
            let (handler, runner) = (&start.facts.handler, &self.name);
            let what = match reason {
                Refusal::UnknownHandler => {
                    format!("runner '{runner}' has no command '{handler}' in its configuration")
                }
                _ => format!("handler '{handler}' is configured otherwise in the runner"),
            };
            (reason, format!("{what} (after a change: hooklatch reload)"))
        })
    }
}
