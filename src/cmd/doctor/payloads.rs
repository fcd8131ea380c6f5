//! Compares every stored payload with what was accepted: only where it is asked for, because it reads the whole store.

use crate::admin::StoreClient;
use crate::config::Config;
use crate::exit::Failure;
use crate::limits::DAMAGED_NAMED;
use crate::store::{CheckedPayloads, PayloadCheck};

use super::super::output::count;
use super::super::{progress, store};
use super::finding::{Finding, Verdict};

/// What was found until now.
#[derive(Default)]
struct Compared {
    checked: u64,
    damaged: u64,
    /// The first of them.
    named: Vec<String>,
}

impl Compared {
    fn add(&mut self, CheckedPayloads { checked, damaged, .. }: CheckedPayloads) {
        self.checked += checked;
        self.damaged += damaged.len() as u64;
        let room = DAMAGED_NAMED - self.named.len();
        self.named.extend(damaged.into_iter().take(room));
    }
}

pub(super) fn check(config: &Config, json: bool) -> Finding {
    let mut compared = Compared::default();
    let walked = store::with_client(config, async |client| all(client, json, &mut compared).await);
    judge(&compared, walked)
}

async fn all(client: &StoreClient, json: bool, compared: &mut Compared) -> Result<(), Failure> {
    let first = client.call(PayloadCheck { after: None }).await?;
    let (mut left, mut after) = (first.left, first.next);
    compared.add(first);
    progress::walk(left, "events", json, async || {
        if after.is_none() {
            return Ok(None);
        }
        let next = client.call(PayloadCheck { after }).await?;
        // Events that arrive meanwhile are compared too.
        let done = left.saturating_sub(next.left);
        (left, after) = (next.left, next.next);
        compared.add(next);
        Ok(Some(done))
    })
    .await
}

/// What was not compared may be damaged: it is no answer that all is well.
fn judge(compared: &Compared, walked: Result<(), Failure>) -> Finding {
    let Compared { checked, damaged, named } = compared;
    let of = count(*checked, "payload");
    match walked {
        _ if *damaged > 0 => {
            let more = damaged.saturating_sub(named.len() as u64);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let ended =
                walked.err().map(|failure| format!("; not all compared: {}", failure.message));
            let (named, ended) = (named.join(", "), ended.unwrap_or_default());
            let seen = format!("{damaged} of {of} damaged: {named}{more}{ended}");
            Finding::bad(
                seen,
                "a later delivery mends an event whose jobs are held for it: hooklatch held --reason payload-damaged",
            )
        }
        Ok(()) => Finding::ok(format!("{of} compared, none damaged")),
        Err(Failure { message, help, .. }) => {
            Finding::new(Verdict::Bad, format!("not all compared: {message}"), help)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn part(checked: u64, damaged: &[&str]) -> CheckedPayloads {
        let damaged = damaged.iter().map(|&one| one.to_owned()).collect();
        CheckedPayloads { checked, damaged, left: 0, next: None }
    }

    #[test]
    fn only_a_whole_walk_without_damage_is_ok() {
        let ended = || Err(Exit::Unavailable.failure("ended by SIGINT").help("ask again"));
        let mut compared = Compared::default();
        compared.add(part(3, &[]));
        assert_eq!(judge(&compared, Ok(())), Finding::ok("3 payloads compared, none damaged"));
        let found = judge(&compared, ended());
        assert_eq!(found.verdict, Verdict::Bad);
        assert_eq!(found.seen, "not all compared: ended by SIGINT");
        compared.add(part(1200, &["stripe e1", "row 7"]));
        let found = judge(&compared, Ok(()));
        assert_eq!(found.verdict, Verdict::Bad);
        let seen = "2 of 1203 payloads damaged: stripe e1, row 7";
        assert_eq!(found.seen, seen);
        let cut = judge(&compared, ended());
        assert_eq!(cut.seen, format!("{seen}; not all compared: ended by SIGINT"));
        compared.add(part(200, &["stripe e2"; 200]));
        let found = judge(&compared, Ok(()));
        assert_eq!((compared.damaged, compared.named.len()), (202, DAMAGED_NAMED));
        assert!(found.seen.ends_with("stripe e2 and 102 more"), "{}", found.seen);
    }
}
