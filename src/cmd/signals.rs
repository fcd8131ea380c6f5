//! The signals that a command catches while it serves or works through something long.

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;
use crate::runner::release_signals;

/// The signals that a process catches.
pub(super) struct Signals {
    pub(super) stop: StopSignals,
    pub(super) hangup: Signal,
}

/// The signals that end a receiver.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn register() -> Result<Self, Failure> {
        let one = |kind| signal(kind).map_err(Failure::io("catch signals"));
        let terminate = one(SignalKind::terminate())?;
        let stop = StopSignals { terminate, interrupt: one(SignalKind::interrupt())? };
        Ok(Signals { stop, hangup: one(SignalKind::hangup())? })
    }

    /// Registers the signals before there is a runtime, for a process that must still have one thread, and delivers the
    /// signals that were held. One that arrived during the start then counts as a later one does, and SIGHUP does not
    /// end the process. The registration belongs to the process and outlives the runtime that makes it.
    pub(super) fn register_early() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(Failure::io("start the runtime"))?;
        let _inside = runtime.enter();
        let signals = Self::register()?;
        release_signals();
        Ok(signals)
    }

    /// The next signal of any kind.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            name = self.stop.next() => name,
            _ = self.hangup.recv() => "SIGHUP",
        }
    }

    /// A signal that has already arrived, if any.
    pub(super) async fn pending(&mut self) -> Option<&'static str> {
        tokio::select! {
            biased;
            name = self.next() => Some(name),
            () = std::future::ready(()) => None,
        }
    }
}

impl StopSignals {
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
