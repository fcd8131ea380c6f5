//! The changes: each is one request of the admin API, and leads to the page that shows what came of it.
//!
//! Must stay true: nothing here runs without an [`Operator`]; a job that is not as its page showed it is left alone.

use std::sync::Arc;

use crate::admin::{
    AcceptQuarantine, CancelJob, DropJob, DropQuarantine, PauseHandler, Reload, ReplayEvent,
    ReplayJob, ResolveJob, ResumeHandler, ShowJob,
};
use crate::exit::{Exit, Failure};
use crate::limits::BATCH_JOBS;
use crate::model::{EventId, JobId, Name};
use crate::store::{JobBatch, QuarantineFilter, Resolution, Verb};

use super::app::{App, Operator};
use super::parts::{event_link, sentence};
use super::request::{Request, link};
use super::work::Work;

/// Does what the form says. Returns the page that shows the result.
pub(super) async fn act(app: &Arc<App>, asked: &Request) -> Result<String, Failure> {
    let operator = app.operator(asked.get("note"))?;
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
            let work = app.works.get(number)?;
            let count = work.jobs.len();
            if work.verb == Verb::Drop && count > 1 && asked.read("number")? != Some(count) {
                let message = format!("nothing was dropped: the number to type is {count}");
                return Err(Exit::WrongState.failure(message).help("go back, and type it"));
            }
            go(&operator, number, asked.get("only").is_some())?;
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
                let part =
                    operator.ask(AcceptQuarantine { filter: filter.clone(), after: from }).await?;
                if let Some(why) = part.refused {
                    return Err(Exit::Unavailable
                        .failure(format!("the rest stays in the quarantine: {why}")));
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
    let seen = Some(attempt);
    match what {
        "replay-job" => {
            let new_key = asked.get("new_key").is_some();
            operator.ask(ReplayJob { job, new_key, attempt: seen, regardless: false }).await?;
        }
        "drop-job" => {
            operator.ask(DropJob { job, attempt: seen }).await?;
        }
        "cancel" => {
            operator.ask(CancelJob { job, attempt: seen }).await?;
        }
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

/// Moves the next jobs of a work, all or the first one, and returns at once.
fn go(operator: &Operator, number: u64, only_one: bool) -> Result<(), Failure> {
    let work = operator.works().get(number)?;
    if operator.works().start(number) {
        let end = if only_one { work.moved + 1 } else { work.jobs.len() }.min(work.jobs.len());
        let operator = operator.clone();
        tokio::spawn(async move { run(&operator, work, end).await });
    }
    Ok(())
}

async fn run(operator: &Operator, work: Work, end: usize) {
    let Work { number, verb, state, jobs, moved, .. } = work;
    for batch in jobs[moved..end].chunks(BATCH_JOBS) {
        let request = JobBatch { verb, state, regardless: false, jobs: batch.to_vec() };
        match operator.ask(request).await {
            Ok(more) => operator.works().change(number, |work| {
                work.moved += batch.len();
                for (handler, jobs) in more.done {
                    *work.result.done.entry(handler).or_default() += jobs;
                }
                work.result.changed += more.changed;
                work.result.payload_gone += more.payload_gone;
                work.result.unwanted += more.unwanted;
                work.result.undecided += more.undecided;
                work.result.superseded += more.superseded;
            }),
            Err(failure) => {
                let why = sentence(&failure);
                operator.works().change(number, |work| work.failed = Some(why));
                break;
            }
        }
    }
    operator.works().change(number, |work| work.is_running = false);
}
