//! Secrets that a provider sends itself, on their way to the operator who waits for one.
//!
//! `http` hands them over, `admin` waits for them. What must stay true: a secret is taken only while an operator
//! waits, one for each wait, and only with the operator's random word; it is in memory only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::model::{Digest, Name};

/// How long a registration stays open after a wait: the operator's command waits again at once.
const LEASE: Duration = Duration::from_secs(2);

/// The parameter of a URL that has the operator's word.
pub const WORD: &str = "register";

/// Clones share their registrations.
#[derive(Debug, Clone, Default)]
pub struct Registrations(Arc<All>);

#[derive(Default)]
struct All {
    /// The open registrations by source and the digest of the operator's word: comparing digests tells nothing of a
    /// word.
    open: Mutex<HashMap<(Name, Digest), Open>>,
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
    /// Opens the registration of a source under a word, and waits for its secret. Once it has returned a secret, the
    /// registration is closed.
    pub async fn wait(
        &self,
        source: &Name,
        word: &str,
        wait: Duration,
        clock: &Clock,
    ) -> Option<Zeroizing<String>> {
        let key = (source.clone(), Digest::of(word));
        let given = async {
            loop {
                let given = self.0.given.notified();
                tokio::pin!(given);
                given.as_mut().enable();
                if let Some(secret) = self.renew(&key, clock.monotonic(), wait) {
                    return secret;
                }
                given.await;
            }
        };
        timeout(wait, given).await.ok()
    }

    /// Keeps the registration open for a wait, or closes it and returns its secret.
    fn renew(
        &self,
        key: &(Name, Digest),
        now: Duration,
        wait: Duration,
    ) -> Option<Zeroizing<String>> {
        let mut open = self.open(now);
        let until = now + wait + LEASE;
        let one = open.entry(key.clone()).or_insert(Open { until, secret: None });
        one.until = until;
        one.secret.is_some().then(|| open.remove(key))??.secret
    }

    /// Hands over the secret of a source. False if nobody waits for it under this word, or if there is one already.
    pub fn give(
        &self,
        source: &Name,
        word: &str,
        secret: Zeroizing<String>,
        now: Duration,
    ) -> bool {
        let mut open = self.open(now);
        let key = (source.clone(), Digest::of(word));
        let Some(one) = open.get_mut(&key).filter(|one| one.secret.is_none()) else {
            return false;
        };
        one.secret = Some(secret);
        self.0.given.notify_waiters();
        true
    }

    /// The registrations that are open now, by the monotonic clock.
    fn open(&self, now: Duration) -> MutexGuard<'_, HashMap<(Name, Digest), Open>> {
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
        let give_with = |source: &Name, word: &str, text: &str| {
            all.give(source, word, Zeroizing::new(text.to_owned()), clock.monotonic())
        };
        let give = |source: &Name, text: &str| give_with(source, "word", text);
        assert!(!give(&one, "early"));
        let waiting = tokio::spawn({
            let (all, one, clock) = (all.clone(), one.clone(), clock.clone());
            async move { all.wait(&one, "word", minute, &clock).await }
        });
        tokio::task::yield_now().await;
        assert!(!give(&other, "another source's"));
        for wrong in ["", "wor", "words", "Word"] {
            assert!(!give_with(&one, wrong, "a stranger's"), "{wrong}");
        }
        assert!(give(&one, "first"));
        assert!(!give(&one, "second"));
        assert_eq!(waiting.await.unwrap().unwrap().as_str(), "first");
        assert!(!give(&one, "late"), "it is closed");

        let wait = async |word: &str| all.wait(&one, word, short, &clock).await.is_some();
        assert!(!wait("word").await && !wait("another operator's").await);
        assert!(give(&one, "between two waits of one command"));
        assert!(!wait("another operator's").await);
        assert!(wait("word").await);
        assert!(!wait("word").await);
        clock.advance(LEASE + short);
        assert!(!give(&one, "after the command"));
    }
}
