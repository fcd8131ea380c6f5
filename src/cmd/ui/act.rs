//! The changes: each is one request of the admin API, and leads to the page that shows what came of it.
//!
//! Must stay true: nothing here runs without an [`Operator`]; a job that is not as its page showed it is left alone.

use std::sync::Arc;

use crate::admin::{
    AcceptQuarantine, CancelJob, DropJob, DropQuarantine, PauseHandler, Reload, ReplayEvent,
    ReplayJob, ResolveJob, ResumeHandler, ShowJob,
};
use crate::exit::{Exit, Failure};
use crate::model::{EventId, JobId, Name};
use crate::store::{QuarantineFilter, Resolution};

use super::app::{App, Operator};
use super::parts::event_link;
use super::request::{Request, link};
use super::work;

/// Does what the form says. Returns the page that shows the result.
pub(super) async fn act(app: &Arc<App>, asked: &Request) -> Result<String, Failure> {
    let operator = app.operator()?;
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    let ["change", what] = path[..] else {
        return Err(Exit::NotFound.failure("there is no such change"));
    };
    match what {
        "replay-job" | "drop-job" | "cancel" | "succeeded" | "failed" => {
            of_job(&operator, what, asked).await
        }
        "replay-event" => {
            let (event, source): (EventId, Name) = (asked.need("id")?, asked.need("source")?);
            let to = event_link(&source, event.as_str());
            let source = Some(source);
            let handler = asked.read("handler")?;
            operator.ask(ReplayEvent { event, source, handler, regardless: false }).await?;
            Ok(to)
        }
        "replay" | "drop" | "rest" => {
            let number = asked.need("work")?;
            work::go(&operator, number, asked.get("only").is_some())?;
            Ok(format!("/work/{number}"))
        }
        "pause" => {
            operator.ask(PauseHandler { handler: asked.need("handler")? }).await?;
            Ok("/handlers".to_owned())
        }
        "resume" => {
            operator.ask(ResumeHandler { handler: asked.need("handler")? }).await?;
            Ok("/handlers".to_owned())
        }
        "reload" => {
            operator.ask(Reload {}).await?;
            Ok("/handlers".to_owned())
        }
        "accept" => {
            let filter = kept(asked)?;
            let mut after = Some(0);
            while let Some(from) = after {
                let part = operator.ask(AcceptQuarantine { filter: filter.clone(), after: from }).await?;
                if let Some(why) = part.refused {
                    return Err(Exit::Unavailable.failure(format!("the rest stays in the quarantine: {why}")));
                }
                after = part.next;
            }
            Ok(link("/quarantine", asked.get("source").map(|source| ("source", source))))
        }
        "forget" => {
            operator.ask(DropQuarantine { filter: kept(asked)? }).await?;
            Ok("/quarantine".to_owned())
        }
        _ => Err(Exit::NotFound.failure("there is no such change")),
    }
}

async fn of_job(operator: &Operator, what: &str, asked: &Request) -> Result<String, Failure> {
    let (job, attempt): (JobId, u32) = (asked.need("job")?, asked.need("attempt")?);
    let row = operator.ask(ShowJob { job }).await?;
    if row.attempt != attempt {
        let message = format!("the job has changed: it is {} after attempt {}", row.state, row.attempt);
        return Err(Exit::WrongState.failure(message).help("open its event again"));
    }
    match what {
        "replay-job" => {
            let new_key = asked.get("new_key").is_some();
            operator.ask(ReplayJob { job, new_key, regardless: false }).await?;
        }
        "drop-job" => drop(operator.ask(DropJob { job }).await?),
        "cancel" => drop(operator.ask(CancelJob { job }).await?),
        _ => {
            let how = if what == "failed" { Resolution::Failed } else { Resolution::Succeeded };
            operator.ask(ResolveJob { job, attempt, how }).await?;
        }
    }
    Ok(format!("{}#{job}", event_link(&row.source, row.event_id.as_str())))
}

/// The deliveries that the page showed: none that came later.
pub(super) fn kept(asked: &Request) -> Result<QuarantineFilter, Failure> {
    Ok(QuarantineFilter {
        source: asked.read("source")?,
        upto: asked.read("upto")?,
        ..QuarantineFilter::default()
    })
}
