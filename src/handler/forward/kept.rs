//! Connections over which an endpoint takes another request, kept for a moment between two attempts.
//!
//! What must stay true: no connection is here that an endpoint has not said its whole answer on, and none is handed
//! out that it has closed since, as far as the kernel knows. A close that comes later meets the request as it would on
//! a new connection that the endpoint has not looked at yet: without an answer its effects are unknown. What an
//! endpoint says unasked between that look and the request is taken for the answer: HTTP/1.1 ties an answer to its
//! request by their order alone (RFC 9112, section 9.3.2), so no client can tell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::time::{Instant, sleep};

use super::{Stream, Target};

/// How long one is kept: far shorter than any usual server waits for the next request (gunicorn 2 s, Node 5 s), so
/// that the two never decide at the same time.
pub(super) const IDLE: Duration = Duration::from_millis(500);

/// How many are kept: as many as attempts run at once by default, which is what they are kept for.
const COUNT: usize = 64;

/// The kept connections of one receiver. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Kept(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The one that was used last comes last.
    idle: Vec<Idle>,
    /// Somebody will close them when it is time.
    watched: bool,
}

struct Idle {
    target: Target,
    stream: Box<dyn Stream>,
    since: Instant,
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Idle({})", self.target)
    }
}

impl Kept {
    /// A connection to `target` that is open and quiet.
    pub(super) fn take(&self, target: &Target) -> Option<Box<dyn Stream>> {
        let mut state = self.lock();
        state.close_old();
        loop {
            let at = state.idle.iter().rposition(|idle| idle.target == *target)?;
            let idle = state.idle.remove(at);
            if is_quiet(&*idle.stream) {
                return Some(idle.stream);
            }
        }
    }

    /// Keeps this one. The endpoint has said its whole answer, and waits for the next request.
    pub(super) fn put(&self, target: &Target, stream: Box<dyn Stream>) {
        let mut state = self.lock();
        state.close_old();
        if state.idle.len() == COUNT {
            state.idle.remove(0);
        }
        state.idle.push(Idle { target: target.clone(), stream, since: Instant::now() });
        if !std::mem::replace(&mut state.watched, true) {
            tokio::spawn(self.clone().watch());
        }
    }

    /// Closes what is kept for too long, until nothing is.
    async fn watch(self) {
        loop {
            sleep(IDLE).await;
            let mut state = self.lock();
            state.close_old();
            if state.idle.is_empty() {
                state.watched = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close_old(&mut self) {
        self.idle.retain(|idle| idle.since.elapsed() < IDLE);
    }
}

/// Whether the endpoint has neither closed it nor said anything unasked. The kernel is asked, which knows before the
/// runtime does.
fn is_quiet(stream: &dyn Stream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(stream.as_fd(), &mut [0; 1], flags).err() == Some(Errno::AGAIN)
}
