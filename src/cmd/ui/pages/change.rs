//! What a change will do, before it is done: the facts, a reason, and the buttons.

use crate::admin::{ShowJob, VerifyQuarantine};
use crate::cmd::bulk::{self, Counted};
use crate::model::{HeldReason, JobId};
use crate::store::{QuarantineFilter, ReverifyCounts, Verb};

use super::super::{act::no_such_change, login::lock, parts::*, view::View, work::WORK_JOBS};
use super::{causes::filter, quarantine};

/// Parameters of the address that say what changes; the form has them too.
const SUBJECT: [&str; 5] = ["job", "attempt", "source", "id", "handler"];

/// A change as a page shows it: title, word on the button, facts and fields, where "Back" leads to.
struct Change(String, String, Markup, String);

fn ask(title: impl ToString, word: impl ToString, body: Markup, back: impl ToString) -> Change {
    Change(title.to_string(), word.to_string(), body, back.to_string())
}

pub(super) async fn show(view: &mut View<'_>, cookie: &str, what: &str) -> Result<Markup, Failure> {
    view.app.operator(None)?;
    let Change(title, word, body, back) = match what {
        "replay-job" | "drop-job" | "cancel" | "succeeded" | "failed" => of_job(view, what).await?,
        "replay-event" => of_event(view)?,
        "replay" => of_many(view, Verb::Replay).await?,
        "drop" => of_many(view, Verb::Drop).await?,
        "rest" => of_rest(view)?,
        "pause" | "resume" | "reload" => of_handler(view, what)?,
        "test" => of_source(view)?,
        "accept" | "forget" => of_quarantine(view, what).await?,
        _ => return Err(no_such_change()),
    };
    view.at("", title.clone());
    let form = view.app.login.new_form(cookie)?;
    let is_danger = ["drop-job", "cancel", "failed", "drop", "forget"].contains(&what);
    Ok(html! {
        form.change.card.panel method="post" action={"/change/" (what)} aria-labelledby="change" {
            header { h1 #change { (title) } }
            div.pad {
                @for name in SUBJECT {
                    @if let Some(value) = view.asked.get(name) { (hidden(name, value)) }
                }
                (hidden("form", form)) (body)
                // 120 characters are at most the 480 bytes that a reason may have. A test changes nothing.
                @if what != "test" { label.field { "Reason, for the audit list"
                    input type="text" name="note" maxlength="120" autocomplete="off";
                } }
            }
            footer {
                button.btn.danger[is_danger].primary[!is_danger] autofocus[!is_danger] { (word) }
                a.btn.quiet.cancel href=(back) autofocus[is_danger] { "Back" }
            }
        }
    })
}

fn hidden(name: &str, value: impl ToString) -> Markup {
    html! { input type="hidden" name=(name) value=(value.to_string()); }
}

/// A sentence that begins in bold.
fn fact(glyph: &str, strong: impl Render, rest: impl Render) -> Markup {
    html! { p.fact { (icon(glyph)) span { b { (strong) } " " (rest) } } }
}

/// What a replay means for the handler.
fn again() -> Markup {
    html! {
        (fact("key", "The same key", "as before: the handler can tell what it has done already."))
        (fact("waiting", "All attempts", "are left to it again; their numbers go on."))
    }
}

async fn of_job(view: &View<'_>, what: &str) -> Result<Change, Failure> {
    let (job, attempt): (JobId, u32) = (view.asked.need("job")?, view.asked.need("attempt")?);
    let row = view.ask(ShowJob { job }).await?;
    if row.attempt != attempt {
        let (state, attempt) = (row.state, row.attempt);
        let now = format!("the job has changed: it is {state} after attempt {attempt}");
        return Err(Exit::WrongState.failure(now).help("open its event again"));
    }
    let (title, word) = match what {
        "replay-job" => ("Run this job again", "Run it again"),
        "drop-job" => ("Drop this job", "Drop it"),
        "cancel" => ("Cancel this attempt", "Cancel it"),
        "succeeded" => ("It did its work", "It did its work"),
        _ => ("It did not do its work", "It did not"),
    };
    let of = html! { "for " (shown(&row.event_type)) ", after attempt " (attempt) "." };
    let body = html! { (fact("handlers", row.handler.as_str(), of)) @match what {
        "replay-job" => {
            (again())
            @if row.reason.as_deref() == Some(HeldReason::SuspectedReplay.as_str()) {
                (fact("twin", "The same signed body came before:", "run it only if this one is genuine."))
            }
            @if row.state == State::Succeeded {
                (fact("held", "It has succeeded before:", "its work may be done twice."))
            }
            label.field { input type="checkbox" name="new_key" value="1";
                " Under a new key: a handler that checks keys does the work again"
            }
        }
        "drop-job" => { (fact("dropped", "No way back:", "a dropped job never runs again, and cannot be replayed.")) }
        "cancel" => {
            (fact("x", "Its command gets SIGTERM,", "and after the handler's grace SIGKILL."))
            (fact("held", "Unless it ends with status 0,", "the job is then held for you."))
        }
        "succeeded" => { (fact("succeeded", "The job counts as succeeded,", "and nothing runs.")) }
        _ => { (fact("dead", "The job becomes a dead letter,", "resolved as failed, and nothing runs.")) }
    } };
    let back = event_link(&row.source, row.event_id.as_str());
    Ok(ask(title, word, body, back))
}

fn of_event(view: &View<'_>) -> Result<Change, Failure> {
    let (source, id): (Name, String) = (view.asked.need("source")?, view.asked.need("id")?);
    let handler: Option<Name> = view.asked.read("handler")?;
    let title = match &handler {
        Some(_) => "Make the missing job",
        None => "Replay this event",
    };
    let body = html! { @match &handler {
        Some(name) => { (fact("plus", name.as_str(), "gets a job for this event, and runs.")) }
        None => {
            (fact("replay", "Its held and dead jobs", "run again, under their old keys. What has succeeded stays."))
        }
    } };
    Ok(ask(title, title, body, event_link(&source, &id)))
}

async fn of_many(view: &View<'_>, verb: Verb) -> Result<Change, Failure> {
    let (state, filter) = (view.asked.need("state")?, filter(view)?);
    let mut counted = Counted::default();
    for chosen in view.asked.all("job") {
        let parts = chosen.split_once('.');
        let read = parts.and_then(|(job, n)| Some((job.parse().ok()?, n.parse().ok()?)));
        let wrong = || Exit::Usage.failure("a job is written as its id, a dot and its attempt");
        counted.jobs.push(read.ok_or_else(wrong)?);
    }
    // Chosen newest first.
    counted.jobs.reverse();
    if counted.jobs.is_empty() && filter.reason.is_some() {
        let ask = async |selection| view.ask(selection).await;
        counted = bulk::count(&filter, verb, WORK_JOBS, ask).await?;
        counted.jobs.truncate(WORK_JOBS);
    }
    let count = counted.jobs.len() as u64;
    let none = || Exit::WrongState.failure("no job is chosen, or is left to be moved");
    let number = view.app.works.propose(verb, state, counted.jobs);
    let number = number.ok_or_else(none)?;
    let (is_drop, jobs) = (verb == Verb::Drop, many(count, "job"));
    let only_one = !is_drop && view.asked.get("one").is_some();
    let body = html! {
        (hidden("work", number))
        @if only_one { (hidden("only", 1)) }
        @if is_drop {
            (fact("dropped", &jobs, "never run again. A dropped job cannot be replayed."))
        } @else {
            @let own = filter.handler.as_ref().and_then(|name| view.config.handler(name));
            (fact("replay", &jobs, html! {
                "run again, oldest first" @if let Some(own) = own { ", " (own.concurrency) " at a time" } "."
            })) (again())
        }
        @if counted.suspected > 0 { (fact("twin", thousands(counted.suspected), "left out: they may be forged.")) }
        @if counted.answered > 0 { (fact("twin", thousands(counted.answered), "left out: they have answered their callers.")) }
        (fact("note", "Left alone", "is a job that has changed by then."))
        @if is_drop && count > 1 { label.field {
            "Type " b { (count) } " to drop them"
            input type="text" required pattern={"\\s*" (count) "\\s*"} inputmode="numeric" autocomplete="off" name="number";
        } }
    };
    let title = format!("{} {jobs}", if is_drop { "Drop" } else { "Replay" });
    let first = only_one.then_some("Replay one first, then decide");
    Ok(ask(&title, first.unwrap_or(&title), body, "/inbox"))
}

/// The jobs of a replay of which one has run.
fn of_rest(view: &View<'_>) -> Result<Change, Failure> {
    let number: u64 = view.asked.need("work")?;
    let work = view.app.works.get(number)?;
    let left = many(lock(&work).left.len() as u64, "job");
    let title = format!("Replay the other {left}");
    let body =
        html! { (hidden("work", number)) (fact("replay", left, "run again, oldest first.")) };
    Ok(ask(&title, &title, body, format!("/work/{number}")))
}

fn of_handler(view: &View<'_>, what: &str) -> Result<Change, Failure> {
    let handler: Option<Name> = view.asked.read("handler")?;
    let body = html! { @match what {
        "pause" => {
            (fact("pause", "Its jobs wait,", "also over restarts. Events are accepted as before."))
            (fact("running", "An attempt under way", "goes on."))
        }
        "resume" => { (fact("play", "Its jobs run,", "those that wait first.")) }
        _ => {
            (fact("replay", "The receiver and its runners", "read their files again. No request is dropped, and what runs goes on."))
            (fact("note", "Nothing changes", "if the configuration has a mistake."))
        }
    } };
    let word = match what {
        "pause" => "Pause",
        "resume" => "Resume",
        _ => "Reload the configuration",
    };
    let whose = handler.map_or_else(String::new, |name| format!(" {name}"));
    Ok(ask(format!("{word}{whose}"), word, body, "/handlers"))
}

fn of_source(view: &View<'_>) -> Result<Change, Failure> {
    let source: Name = view.asked.need("source")?;
    let setup = view.config.source(&source).map(|own| own.scheme.setup());
    let sample = setup.and_then(|setup| setup.sample_type.as_deref());
    let body = html! {
        (fact("in", "A genuine delivery,", "signed with the source's secret: its event is stored, and its handlers run."))
        label.field { "Type of the event" input type="text" name="type" value=[sample] required; }
    };
    Ok(ask("Send a test delivery", "Send it", body, "/sources"))
}

async fn of_quarantine(view: &View<'_>, what: &str) -> Result<Change, Failure> {
    let mut filter = quarantine::filter(view, 1)?;
    let listed = view.ask(filter.clone()).await?;
    let none = || Exit::WrongState.failure("nothing is kept");
    let newest = listed.deliveries.first().ok_or_else(none)?.id;
    // None that comes later.
    (filter.upto, filter.limit) = (Some(newest), None);
    let upto = hidden("upto", newest);
    if what == "forget" {
        let all = thousands(listed.matching);
        let gone = "failed deliveries are deleted, and cannot be accepted any more.";
        let body = html! { (upto) (fact("dropped", &all, gone)) };
        let word = format!("Forget {all}");
        return Ok(ask("Forget what failed", word, body, "/quarantine"));
    }
    let counts = verified(view, &filter).await?;
    let word = format!("Accept {}", thousands(counts.good));
    let body = html! {
        (upto)
        (fact("shield", thousands(counts.good), "verify now, each judged at the time it arrived. Each new event is accepted once, and its handlers run."))
        @let bad = counts.bad.values().sum::<u64>() + counts.bodiless;
        (fact("dead", thousands(bad), "are still bad or have no body, and stay."))
        (fact("twin", "Look at them first:", "what a leaked secret has forged verifies too."))
    };
    Ok(ask("Accept what verifies now", word, body, "/quarantine"))
}

/// How many of these deliveries verify now.
async fn verified(view: &View<'_>, filter: &QuarantineFilter) -> Result<ReverifyCounts, Failure> {
    let mut counts = ReverifyCounts::default();
    let mut next = Some(0);
    while let Some(after) = next {
        let filter = filter.clone();
        let part = view.ask(VerifyQuarantine { filter, after, keys: None }).await?;
        part.sources.into_values().for_each(|more| counts.add(more));
        next = part.next;
    }
    Ok(counts)
}
