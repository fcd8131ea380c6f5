//! `hooklatch send`: makes a test delivery as the provider does, with the source's secret and over real
//! HTTP.
//!
//! It signs with the secret if it can read it; otherwise it asks the running receiver to sign. Then it
//! asks the receiver what the handlers did, and says whether that was expected.

mod delivery;
mod handled;
mod verdict;

use serde_json::{Value, json};

use crate::cli;
use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::model::shell_word;
use crate::store::EventDetail;

use super::kit::provider::Answer;
use super::kit::target::Target;
use super::output::{self, escape};
use super::runtime::block_on;
use delivery::Delivery;
use verdict::Verdict;

/// Makes the delivery, and prints the answers and what the handlers did. The exit code says whether that
/// was expected.
pub(super) fn run(args: &cli::Send) -> Result<Exit, Failure> {
    let config = config::load(args.options.config())?;
    let delivery = Delivery::new(args, &config)?;
    let sent = block_on(send(&delivery))??;
    let verdict = sent.verdict();
    let json = sent.json(&verdict);
    output::either(&args.options.format, &json, || sent.print(&verdict))?;
    Ok(Exit::answer(verdict.good))
}

/// Makes the delivery. Returns the id of its event once that is stored.
pub(super) async fn stored(args: &cli::Send, config: &Config) -> Result<String, Failure> {
    let delivery = Delivery::new(args, config)?;
    let sent = send(&delivery).await?;
    let verdict = sent.verdict();
    match verdict.good {
        true => Ok(sent.stored().to_owned()),
        false => Err(Exit::No.failure(verdict.text).help(verdict.next)),
    }
}

/// Posts the delivery, and waits for its handlers if it is one that they run for.
async fn send<'a>(delivery: &'a Delivery<'a>) -> Result<Sent<'a>, Failure> {
    let args = delivery.args;
    let target = delivery.target().await?;
    let (headers, signed_by) = delivery.sign().await?;
    let mut answers = Vec::new();
    for _ in 0..if args.duplicate { 2 } else { 1 } {
        let posted = target.post(&headers, delivery.event.body.clone()).await;
        answers.push(posted.map_err(|why| match target.is_public {
            true => Exit::Unavailable.failure(format!("{target}: {why}")),
            false => {
                let help = format!("start the receiver: hooklatch serve{}", delivery.suffix);
                Exit::Unavailable.failure(why).help(help)
            }
        })?);
    }
    let mut sent = Sent { delivery, target, signed_by, answers, handled: None };
    let waits = !(args.no_wait || delivery.endpoint.replies || args.forge || args.stale);
    if waits && sent.is_good() {
        let unnamed = |_| Exit::Unavailable.failure("the answer does not name the event");
        sent.handled = Some(match sent.stored().parse().map_err(unnamed) {
            Ok(event) => handled::wait(delivery, &event).await,
            Err(failure) => Err(failure),
        });
    }
    Ok(sent)
}

/// A delivery with its answers.
struct Sent<'a> {
    delivery: &'a Delivery<'a>,
    target: Target,
    signed_by: String,
    answers: Vec<Answer>,
    /// What the handlers did, or why that cannot be seen; `None` if it was not asked for.
    handled: Option<Result<EventDetail, Failure>>,
}

impl Sent<'_> {
    /// Whether the source's handler answers: with any status, and with the same answer the second time.
    fn replies(&self) -> bool {
        self.delivery.endpoint.replies
    }

    /// Whether the answers are those of a working receiver.
    fn is_good(&self) -> bool {
        let args = self.delivery.args;
        if args.forge || args.stale {
            return self.answers.iter().all(|answer| answer.status_word() == Some("rejected"));
        }
        let good = |answer: &Answer| match answer.status_word() {
            _ if self.replies() => answer.result.is_some(),
            word => matches!(word, Some("accepted" | "duplicate")),
        };
        let known = |answer: &Answer| match self.replies() {
            true => answer.result.as_deref() == Some("reused"),
            false => answer.status_word() == Some("duplicate"),
        };
        let last = self.answers.last().is_some_and(known);
        self.answers.iter().all(good) && (!args.duplicate || last)
    }

    /// Whether the event was stored before, so that no handler ran for this delivery.
    fn came_before(&self) -> bool {
        let first = self.answers.first().filter(|_| !self.replies());
        first.is_some_and(|first| {
            first.status_word() == Some("duplicate") && first.fact("replayed").is_none()
        })
    }

    /// An answer's status in a word, or why a request with a key did not get its handler's answer.
    fn word<'a>(&self, answer: &'a Answer) -> &'a str {
        match (self.replies(), &answer.result) {
            (true, Some(result)) => result,
            _ => answer.body["detail"].as_str().or(answer.status_word()).unwrap_or_default(),
        }
    }

    fn json(&self, verdict: &Verdict) -> Value {
        let Delivery { args, event, .. } = self.delivery;
        let answer = |answer: &Answer| {
            let Answer { status, result, facts, body, .. } = answer;
            json!({ "status": status, "result": result, "facts": facts, "body": body })
        };
        json!({
            "source": args.source,
            "url": self.target.to_string(),
            "event_id": event.id,
            "event_type": args.event_type,
            "signed_with": self.signed_by,
            "answers": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "jobs": self.handled.as_ref().and_then(|seen| seen.as_ref().ok()).map(|seen| &seen.jobs),
            "as_expected": verdict.good,
            "verdict": verdict.text,
            "next": verdict.next,
        })
    }

    fn print(&self, verdict: &Verdict) -> Result<(), Failure> {
        let Delivery { args, event, .. } = self.delivery;
        let (id, kind) = (escape(&event.id), escape(&args.event_type));
        output::fact("sent", format!("{id} ({kind}) to {}", self.target))?;
        output::fact("signed", format!("with {}", escape(&self.signed_by)))?;
        for answer in &self.answers {
            let word = escape(self.word(answer));
            output::fact("answered", format!("{} {word}", answer.status))?;
        }
        if let Some(Ok(seen)) = &self.handled {
            handled::print(seen, self.delivery.config)?;
        }
        output::line(&verdict.text)?;
        output::fact("next", &verdict.next)
    }

    fn verdict(&self) -> Verdict {
        let args = self.delivery.args;
        let good = self.is_good();
        let text = match (good, args.forge || args.stale) {
            (true, true) => "refused, as expected",
            (true, false) if self.came_before() => {
                "NOT as expected: this event came before, so nothing ran for this delivery"
            }
            (true, false) => match &self.handled {
                None => "as expected",
                Some(Ok(seen)) => return handled::verdict(seen, self.delivery),
                Some(Err(failure)) => {
                    let text = format!("NOT known what its handlers do: {}", failure.message);
                    let help = failure.help.clone();
                    let help = help.unwrap_or_else(|| "--no-wait looks at the answer only".into());
                    return Verdict::new(false, text, help);
                }
            },
            (false, true) => "NOT as expected: it must be refused as not proven",
            (false, false) if self.replies() => "NOT as expected: its handler must answer it",
            (false, false) => "NOT as expected: it must be accepted",
        };
        Verdict::new(good && !self.came_before(), text, self.next(good))
    }

    /// The event's id as the receiver answers it, because it may be the body's digest.
    fn stored(&self) -> &str {
        let last = self.answers.last().filter(|_| !self.replies());
        last.and_then(|answer| answer.fact("event")).unwrap_or(&self.delivery.event.id)
    }

    /// The operator's next step, chosen by the last answer.
    fn next(&self, good: bool) -> String {
        let Delivery { args, endpoint, suffix: config, .. } = self.delivery;
        let last = self.answers.last();
        let status = last.map_or(0, |answer| answer.status);
        let answered = last.is_some_and(|answer| answer.result.is_some());
        let is_stored = answered || self.replies() && matches!(status, 409 | 502 | 504);
        let word = last.and_then(Answer::status_word);
        let is_foreign = last.is_some_and(|last| {
            last.result.is_none() && word.is_none() && last.body["status"].is_null()
        });
        let source = &args.source;
        match (status, good) {
            _ if is_stored => {
                let stored = escape(&shell_word(self.stored()));
                format!("hooklatch show {stored} --source {source}{config}")
            }
            _ if self.target.is_public && is_foreign => format!(
                "the receiver did not answer this: check that the proxy passes {} on to it",
                endpoint.path
            ),
            _ if word == Some("rejected") && good => {
                format!("hooklatch events --rejected --source {source}{config}")
            }
            _ if word == Some("rejected") => format!(
                "hooklatch events --rejected --source {source}{config} (hooklatch reload, if its secret has changed)"
            ),
            (404, _) => {
                format!("hooklatch reload{config}: the receiver does not know this path yet")
            }
            (413, _) => {
                let most = last.and_then(|answer| answer.fact("limit-bytes")?.parse().ok());
                let most = most.map(|most| format!(", which is {} now", output::size(most)));
                let most = most.unwrap_or_default();
                format!("raise max_body of source {source}{most}, then hooklatch reload{config}")
            }
            (503, _) => "the receiver's log says why it cannot store".to_owned(),
            _ => format!("hooklatch events --source {source}{config}"),
        }
    }
}
