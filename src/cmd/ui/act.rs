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

/// Does what the form says. Returns the address of the page that shows the result.
pub(super) async fn act(app: &Arc<App>, asked: &Request) -> Result<String, Failure> {
    let operator = app.operator(asked.get("note"))?;
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    let what = *path.get(1).ok_or_else(no_such_change)?;
    match what {
        "replay-event" => of_event(&operator, asked).await,
        "replay" | "drop" | "rest" => of_many(&operator, asked).await,
        "pause" | "resume" | "reload" => of_handler(&operator, what, asked).await,
        "test" => of_source(app, asked).await,
        "accept" | "forget" => of_quarantine(&operator, what, asked).await,
        _ => of_job(&operator, what, asked).await,
    }
}

async fn of_event(operator: &Operator, asked: &Request) -> Result<String, Failure> {
    let (event, source): (EventId, Name) = (asked.need("id")?, asked.need("source")?);
    let to = event_link(&source, event.as_str());
    let (source, handler, regardless) = (Some(source), asked.read("handler")?, false);
    let replay = ReplayEvent { event, source, handler, regardless };
    operator.ask(replay).await?;
    Ok(to)
}

async fn of_many(operator: &Operator, asked: &Request) -> Result<String, Failure> {
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
    loop {
        let Some(batch) = lock(&work).take(most) else { break };
        let more = operator.ask(batch).await?;
        lock(&work).result.add(more);
        if only_one {
            break;
        }
    }
    Ok(format!("/work/{number}"))
}

async fn of_handler(operator: &Operator, what: &str, asked: &Request) -> Result<String, Failure> {
    if what == "reload" {
        operator.ask(Reload {}).await?;
    } else if what == "pause" {
        let handler = asked.need("handler")?;
        operator.ask(PauseHandler { handler }).await?;
    } else {
        let handler = asked.need("handler")?;
        operator.ask(ResumeHandler { handler }).await?;
    }
    Ok("/handlers".to_owned())
}

async fn of_source(app: &App, asked: &Request) -> Result<String, Failure> {
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

async fn of_quarantine(
    operator: &Operator,
    what: &str,
    asked: &Request,
) -> Result<String, Failure> {
    let (source, upto) = (asked.read("source")?, Some(asked.need("upto")?));
    let filter = QuarantineFilter { source, upto, ..<_>::default() };
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

async fn of_job(operator: &Operator, what: &str, asked: &Request) -> Result<String, Failure> {
    let (job, number): (JobId, u32) = (asked.need("job")?, asked.need("attempt")?);
    let row = operator.ask(ShowJob { job }).await?;
    let attempt = Some(number);
    match what {
        "replay-job" => {
            let (new_key, regardless) = (asked.get("new_key").is_some(), false);
            let replay = ReplayJob { job, new_key, attempt, regardless };
            operator.ask(replay).await?;
        }
        "drop-job" => _ = operator.ask(DropJob { job, attempt }).await?,
        "cancel" => _ = operator.ask(CancelJob { job, attempt }).await?,
        "succeeded" | "failed" => {
            let is_done = what == "succeeded";
            let how = if is_done { Resolution::Succeeded } else { Resolution::Failed };
            let attempt = number;
            operator.ask(ResolveJob { job, attempt, how }).await?;
        }
        _ => return Err(no_such_change()),
    }
    let to = event_link(&row.source, row.event_id.as_str());
    Ok(format!("{to}#{job}"))
}

pub(super) fn no_such_change() -> Failure {
    Exit::NotFound.failure("there is no such change")
}
