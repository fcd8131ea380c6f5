//! Secrets that a provider sends itself, on their way to the operator who waits for one.
//!
//! `http` hands them over, `admin` waits for them. What must stay true: a secret is taken only while an operator
//! waits, one for each wait, and is in memory only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::model::Name;

/// How long a registration stays open after a wait: the operator's command waits again at once.
const LEASE: Duration = Duration::from_secs(2);

/// Clones share their registrations.
#[derive(Debug, Clone, Default)]
pub struct Registrations(Arc<All>);

#[derive(Default)]
struct All {
    open: Mutex<HashMap<Name, Open>>,
    given: Notify,
}

impl std::fmt::Debug for All {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registrations")
    }
}

/// A source whose secret an operator waits for.
struct Open {
    until: Duration,
    secret: Option<Zeroizing<String>>,
}

impl Registrations {
    /// Opens the registration of a source, and waits for its secret. Once it has returned a secret, the registration
    /// is closed.
    pub async fn wait(
        &self,
        source: &Name,
        wait: Duration,
        clock: &Clock,
    ) -> Option<Zeroizing<String>> {
        let given = async {
            loop {
                let given = self.0.given.notified();
                tokio::pin!(given);
                given.as_mut().enable();
                if let Some(secret) = self.renew(source, clock.monotonic(), wait) {
                    return secret;
                }
                given.await;
            }
        };
        timeout(wait, given).await.ok()
    }

    /// Keeps the registration open for a wait, or closes it and returns its secret.
    fn renew(&self, source: &Name, now: Duration, wait: Duration) -> Option<Zeroizing<String>> {
        let mut open = self.open(now);
        let until = now + wait + LEASE;
        let one = open.entry(source.clone()).or_insert(Open { until, secret: None });
        one.until = until;
        one.secret.is_some().then(|| open.remove(source))??.secret
    }

    /// Hands over the secret of a source. False if nobody waits for it, or if there is one already.
    pub fn give(&self, source: &Name, secret: Zeroizing<String>, now: Duration) -> bool {
        let mut open = self.open(now);
        let Some(one) = open.get_mut(source).filter(|one| one.secret.is_none()) else {
            return false;
        };
        one.secret = Some(secret);
        self.0.given.notify_waiters();
        true
    }

    /// The registrations that are open now, by the monotonic clock.
    fn open(&self, now: Duration) -> MutexGuard<'_, HashMap<Name, Open>> {
        // A panic elsewhere cannot have left a broken map.
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, one| now < one.until);
        open
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Timestamp;

    #[tokio::test]
    async fn a_secret_is_taken_once_and_only_while_somebody_waits() {
        let (all, clock) = (Registrations::default(), Clock::manual(Timestamp(0)));
        let (one, other): (Name, Name) = ("one".parse().unwrap(), "other".parse().unwrap());
        let (minute, short) = (Duration::from_secs(60), Duration::from_millis(1));
        let give = |source: &Name, text: &str| {
            all.give(source, Zeroizing::new(text.to_owned()), clock.monotonic())
        };
        assert!(!give(&one, "early"));
        let waiting = tokio::spawn({
            let (all, one, clock) = (all.clone(), one.clone(), clock.clone());
            async move { all.wait(&one, minute, &clock).await }
        });
        tokio::task::yield_now().await;
        assert!(!give(&other, "another source's"));
        assert!(give(&one, "first"));
        assert!(!give(&one, "second"));
        assert_eq!(waiting.await.unwrap().unwrap().as_str(), "first");
        assert!(!give(&one, "late"), "it is closed");

        assert_eq!(all.wait(&one, short, &clock).await, None);
        assert!(give(&one, "between two waits of one command"));
        assert!(all.wait(&one, short, &clock).await.is_some());
        assert_eq!(all.wait(&one, short, &clock).await, None);
        clock.advance(LEASE + short);
        assert!(!give(&one, "after the command"));
    }
}
