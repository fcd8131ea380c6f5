//! The changes: each asks the receiver over the admin API, and leads to the page that shows what came of it.
//!
//! Must stay true: nothing here runs without an [`Operator`]; a named job that is not as its page showed it is left
//! alone, and so is a delivery of the quarantine that came later.

use std::sync::Arc;

use crate::admin::{
    AcceptQuarantine, CancelJob, DropJob, DropQuarantine, PauseHandler, Reload, ReplayEvent,
    ReplayJob, ResolveJob, ResumeHandler, ShowJob,
};
use crate::cli;
use crate::cmd::send;
use crate::exit::{Exit, Failure};
use crate::limits::BATCH_JOBS;
use crate::model::{EventId, JobId, Name};
use crate::store::{QuarantineFilter, Resolution, Verb};

use super::app::{App, Operator};
use super::login::lock;
use super::parts::event_link;
use super::request::{Request, link};

/// The address of the page that shows what came of a change.
type Address = Result<String, Failure>;

/// Does what the form says.
pub(super) async fn act(app: &Arc<App>, asked: &Request) -> Address {
    let operator = app.operator(asked.get("note"))?;
    let what = match asked.path.as_slice() {
        [change, what] if change == "change" => what.as_str(),
        _ => return Err(no_such_change()),
    };
    match what {
        "replay-event" => of_event(&operator, asked).await,
        "replay" | "drop" | "rest" => of_many(&operator, asked).await,
        "pause" | "resume" | "reload" => of_handler(&operator, what, asked).await,
        "test" => of_source(app, asked).await,
        "accept" | "forget" => of_quarantine(&operator, what, asked).await,
        _ => of_job(&operator, what, asked).await,
    }
}

async fn of_event(operator: &Operator, asked: &Request) -> Address {
    let (event, source): (EventId, Name) = (asked.need("id")?, asked.need("source")?);
    let to = event_link(&source, event.as_str());
    let replay = ReplayEvent {
        event,
        source: Some(source),
        handler: asked.read("handler")?,
        regardless: false,
    };
    operator.ask(replay).await?;
    Ok(to)
}

async fn of_many(operator: &Operator, asked: &Request) -> Address {
    let (number, only_one) = (asked.need("work")?, asked.get("only").is_some());
    let work = operator.app.works.get(number)?;
    let count = lock(&work).all;
    let is_drop = lock(&work).verb == Verb::Drop;
    if is_drop && count > 1 && asked.read("number")? != Some(count) {
        let message = format!("nothing was dropped: the number to type is {count}");
        let failure = Exit::WrongState.failure(message);
        return Err(failure.help("go back, and type it"));
    }
    let most = if only_one { 1 } else { BATCH_JOBS };
    let next = || lock(&work).take(most);
    while let Some(batch) = next() {
        let more = operator.ask(batch).await?;
        lock(&work).result.add(more);
        if only_one {
            break;
        }
    }
    Ok(format!("/work/{number}"))
}

async fn of_handler(operator: &Operator, what: &str, asked: &Request) -> Address {
    let handler = asked.need("handler");
    match what {
        "reload" => _ = operator.ask(Reload {}).await?,
        "pause" => _ = operator.ask(PauseHandler { handler: handler? }).await?,
        _ => _ = operator.ask(ResumeHandler { handler: handler? }).await?,
    }
    Ok("/handlers".to_owned())
}

async fn of_source(app: &App, asked: &Request) -> Address {
    // The unit of a permanent dashboard has no network.
    if !app.login.is_linked() {
        let failure = Exit::WrongState.failure("this dashboard sends no test deliveries");
        return Err(failure.help("send one in a shell: hooklatch send SOURCE TYPE"));
    }
    let (source, event_type): (Name, String) = (asked.need("source")?, asked.need("type")?);
    let send = cli::Send::once(source.clone(), event_type, &app.config);
    let id = send::stored(&send, &*app.config()?).await?;
    Ok(event_link(&source, &id))
}

async fn of_quarantine(operator: &Operator, what: &str, asked: &Request) -> Address {
    let filter = QuarantineFilter {
        source: asked.read("source")?,
        upto: Some(asked.need("upto")?),
        ..<_>::default()
    };
    let source = asked.get("source").map(|source| ("source", source));
    let mut next = Some(0).filter(|_| what == "accept");
    while let Some(after) = next {
        let filter = filter.clone();
        let part = operator.ask(AcceptQuarantine { filter, after }).await?;
        if let Some(why) = part.refused {
            let message = format!("the rest stays in the quarantine: {why}");
            return Err(Exit::Unavailable.failure(message));
        }
        next = part.next;
    }
    if what == "forget" {
        operator.ask(DropQuarantine { filter }).await?;
    }
    Ok(link("/quarantine", source))
}

async fn of_job(operator: &Operator, what: &str, asked: &Request) -> Address {
    let (job, attempt): (JobId, u32) = (asked.need("job")?, asked.need("attempt")?);
    let row = operator.ask(ShowJob { job }).await?;
    let resolve = |how| ResolveJob { job, attempt, how };
    let attempt = Some(attempt);
    let replay =
        ReplayJob { job, new_key: asked.get("new_key").is_some(), attempt, regardless: false };
    match what {
        "replay-job" => _ = operator.ask(replay).await?,
        "drop-job" => _ = operator.ask(DropJob { job, attempt }).await?,
        "cancel" => _ = operator.ask(CancelJob { job, attempt }).await?,
        "succeeded" => _ = operator.ask(resolve(Resolution::Succeeded)).await?,
        "failed" => _ = operator.ask(resolve(Resolution::Failed)).await?,
        _ => return Err(no_such_change()),
    }
    let to = event_link(&row.source, row.event_id.as_str());
    Ok(format!("{to}#{job}"))
}

pub(super) fn no_such_change() -> Failure {
    Exit::NotFound.failure("there is no such change")
}
