//! The changes: each is one request of the admin API, and leads to the page that shows what came of it.
//!
//! Must stay true: nothing here runs without an [`Operator`]; a job that is not as its page showed it is left alone.

use std::sync::Arc;

use crate::admin::{
    AcceptQuarantine, CancelJob, DropJob, DropQuarantine, PauseHandler, Reload, ReplayEvent,
    ReplayJob, ResolveJob, ResumeHandler, ShowJob,
};
use crate::cli;
use crate::cmd::send;
use crate::exit::{Exit, Failure};
use crate::model::{EventId, JobId, Name};
use crate::store::{QuarantineFilter, Resolution, Verb};

use super::app::{App, Operator};
use super::parts::event_link;
use super::request::{Request, link};

/// Does what the form says. Returns the address of the page that shows the result.
pub(super) async fn act(app: &Arc<App>, asked: &Request) -> Result<String, Failure> {
    let operator = app.operator(asked.get("note"))?;
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    let ["change", what] = path[..] else { return Err(no_such_change()) };
    match what {
        "replay-event" => {
            let (event, source): (EventId, Name) = (asked.need("id")?, asked.need("source")?);
            let to = event_link(&source, event.as_str());
            let (source, handler) = (Some(source), asked.read("handler")?);
            operator.ask(ReplayEvent { event, source, handler, regardless: false }).await?;
            return Ok(to);
        }
        "replay" | "drop" | "rest" => {
            let number = asked.need("work")?;
            let work = app.works.get(number)?;
            let count = work.jobs.len();
            if work.verb == Verb::Drop && count > 1 && asked.read("number")? != Some(count) {
                let message = format!("nothing was dropped: the number to type is {count}");
                return Err(Exit::WrongState.failure(message).help("go back, and type it"));
            }
            operator.start(number, asked.get("only").is_some())?;
            return Ok(format!("/work/{number}"));
        }
        "pause" => {
            operator.ask(PauseHandler { handler: asked.need("handler")? }).await.map(drop)?
        }
        "resume" => {
            operator.ask(ResumeHandler { handler: asked.need("handler")? }).await.map(drop)?
        }
        "reload" => operator.ask(Reload {}).await.map(drop)?,
        "test" => {
            let (source, event_type): (Name, String) = (asked.need("source")?, asked.need("type")?);
            let send = cli::Send::once(source.clone(), event_type, &app.config);
            let id = send::stored(&send, &*app.config()?).await?;
            return Ok(event_link(&source, &id));
        }
        "accept" => {
            let mut next = Some(0);
            while let Some(after) = next {
                let part = operator.ask(AcceptQuarantine { filter: kept(asked)?, after }).await?;
                if let Some(why) = part.refused {
                    let message = format!("the rest stays in the quarantine: {why}");
                    return Err(Exit::Unavailable.failure(message));
                }
                next = part.next;
            }
            return Ok(link("/quarantine", asked.get("source").map(|source| ("source", source))));
        }
        "forget" => {
            operator.ask(DropQuarantine { filter: kept(asked)? }).await?;
            return Ok("/quarantine".to_owned());
        }
        _ => return of_job(&operator, what, asked).await,
    }
    Ok("/handlers".to_owned())
}

async fn of_job(operator: &Operator, what: &str, asked: &Request) -> Result<String, Failure> {
    let (job, number): (JobId, u32) = (asked.need("job")?, asked.need("attempt")?);
    let row = operator.ask(ShowJob { job }).await?;
    let attempt = Some(number);
    let resolve = |how| operator.ask(ResolveJob { job, attempt: number, how });
    match what {
        "replay-job" => {
            let new_key = asked.get("new_key").is_some();
            operator.ask(ReplayJob { job, new_key, attempt, regardless: false }).await.map(drop)?;
        }
        "drop-job" => operator.ask(DropJob { job, attempt }).await.map(drop)?,
        "cancel" => operator.ask(CancelJob { job, attempt }).await.map(drop)?,
        "succeeded" => resolve(Resolution::Succeeded).await.map(drop)?,
        "failed" => resolve(Resolution::Failed).await.map(drop)?,
        _ => return Err(no_such_change()),
    }
    Ok(format!("{}#{job}", event_link(&row.source, row.event_id.as_str())))
}

pub(super) fn no_such_change() -> Failure {
    Exit::NotFound.failure("there is no such change")
}

/// The deliveries that the page showed: none that came later.
pub(super) fn kept(asked: &Request) -> Result<QuarantineFilter, Failure> {
    let (source, upto) = (asked.read("source")?, asked.read("upto")?);
    Ok(QuarantineFilter { source, upto, ..QuarantineFilter::default() })
}
