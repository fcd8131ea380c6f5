//! What a change will do, before it is done: the facts, a reason, and the buttons.

use maud::{Markup, html};

use crate::admin::{ShowJob, VerifyQuarantine};
use crate::cmd::output::thousands;
use crate::exit::{Exit, Failure};
use crate::model::{HeldReason, JobId, Name, State};
use crate::store::{JobFilter, JobRow, JobSelection, QuarantineFilter, ReverifyCounts, Verb};

use super::super::act::kept;
use super::super::app::Role;
use super::super::parts::{event_link, icon, many, shown};
use super::super::view::View;
use super::super::work::WORK_JOBS;

/// A change as a page shows it.
struct Change {
    title: String,
    /// Glyph and sentence of each fact.
    facts: Vec<(&'static str, Markup)>,
    /// What stands in hidden fields.
    fields: Vec<(&'static str, String)>,
    /// The word of the button.
    word: String,
    is_danger: bool,
    /// A field or button of this change alone.
    extra: Markup,
    /// Where "Back" leads to.
    back: String,
}

pub(super) async fn show(view: &mut View<'_>, cookie: &str, what: &str) -> Result<Markup, Failure> {
    if view.app.role == Role::View {
        let message = "this dashboard is for looking only";
        return Err(Exit::WrongState.failure(message).help("start hooklatch ui without --view"));
    }
    let change = match what {
        "replay-job" | "drop-job" | "cancel" | "succeeded" | "failed" => of_job(view, what).await?,
        "replay-event" => of_event(view)?,
        "replay" => of_many(view, Verb::Replay).await?,
        "drop" => of_many(view, Verb::Drop).await?,
        "rest" => of_rest(view)?,
        "pause" | "resume" => of_handler(view, what)?,
        "reload" => reload(),
        "accept" | "forget" => of_quarantine(view, what).await?,
        _ => return Err(Exit::NotFound.failure("there is no such change")),
    };
    view.at("", change.title.clone());
    let form = view.app.login.new_form(cookie)?;
    let class = if change.is_danger { "btn danger" } else { "btn primary" };
    Ok(html! {
        form.change.card.panel method="post" action=(format!("/change/{what}")) aria-labelledby="change" {
            header { h1 #change { (change.title) } }
            div.pad {
                ul { @for (glyph, fact) in &change.facts { li { (icon(glyph)) span { (fact) } } } }
                input type="hidden" name="form" value=(form);
                @for (name, value) in &change.fields { input type="hidden" name=(name) value=(value); }
                (change.extra)
                label.field { "Reason, for the audit list" input type="text" name="note" maxlength="200" autocomplete="off"; }
            }
            footer {
                button class=(class) autofocus[!change.is_danger] { (change.word) }
                a.btn.quiet.cancel href=(change.back) autofocus[change.is_danger] { "Back" }
            }
        }
    })
}

async fn of_job(view: &View<'_>, what: &str) -> Result<Change, Failure> {
    let (job, attempt): (JobId, u32) = (view.asked.need("job")?, view.asked.need("attempt")?);
    let row = view.app.ask(ShowJob { job }).await?;
    if row.attempt != attempt {
        let message =
            format!("the job has changed: it is {} after attempt {}", row.state, row.attempt);
        return Err(Exit::WrongState.failure(message).help("open its event again"));
    }
    let JobRow { handler, event_type, .. } = &row;
    let of = html! { b { (handler) } " for " (shown(event_type)) ", after attempt " (attempt) "." };
    let again = vec![
        ("replay", html! { b { "Runs again" } ": " (of) }),
        (
            "key",
            html! { b { "The same key" } " as before, so the handler can tell what it has done already." },
        ),
        ("wait", html! { "It gets " b { "all its attempts" } " again; their numbers go on." }),
    ];
    let (title, word, is_danger, mut facts) = match what {
        "replay-job" => ("Run this job again", "Run it again", false, again),
        "drop-job" => (
            "Drop this job",
            "Drop it",
            true,
            vec![
                ("dropped", html! { b { "Never runs again" } ": " (of) }),
                ("note", html! { "A dropped job cannot be replayed." }),
            ],
        ),
        "cancel" => (
            "Cancel this attempt",
            "Cancel it",
            true,
            vec![
                (
                    "x",
                    html! { "Its command gets " b { "SIGTERM" } ", and after the handler's grace SIGKILL: " (of) },
                ),
                ("held", html! { "Unless it ends with status 0, the job is then held for you." }),
            ],
        ),
        "succeeded" => (
            "It did its work",
            "It did its work",
            false,
            vec![(
                "ok",
                html! { "The job counts as " b { "succeeded" } ", and nothing runs: " (of) },
            )],
        ),
        _ => (
            "It did not do its work",
            "It did not",
            true,
            vec![(
                "dead",
                html! { "The job becomes a " b { "dead letter" } ", resolved as failed, and nothing runs: " (of) },
            )],
        ),
    };
    if what == "replay-job" && row.reason.as_deref() == Some(HeldReason::SuspectedReplay.as_str()) {
        facts.push((
            "twin",
            html! { "The same signed body came before: run it only if this one is genuine." },
        ));
    }
    if what == "replay-job" && row.state == State::Succeeded {
        facts.push((
            "held",
            html! { b { "It has succeeded before" } ": its work may be done twice." },
        ));
    }
    let extra = match what {
        "replay-job" => html! {
            label.field { input type="checkbox" name="new_key" value="1"; " Under a new key: a handler that checks keys does the work again" }
        },
        _ => html! {},
    };
    Ok(Change {
        title: title.to_owned(),
        facts,
        fields: vec![("job", job.to_string()), ("attempt", attempt.to_string())],
        word: word.to_owned(),
        is_danger,
        extra,
        back: event_link(&row.source, row.event_id.as_str()),
    })
}

fn of_event(view: &View<'_>) -> Result<Change, Failure> {
    let (source, id): (Name, String) = (view.asked.need("source")?, view.asked.need("id")?);
    let back = event_link(&source, &id);
    let mut fields = vec![("source", source.to_string()), ("id", id)];
    let handler: Option<Name> = view.asked.read("handler")?;
    let (title, fact) = match &handler {
        Some(handler) => (
            "Make the missing job".to_owned(),
            html! { b { (handler) } " gets a job for this event, and runs." },
        ),
        None => (
            "Replay this event".to_owned(),
            html! { "Its " b { "held and dead jobs" } " run again, under their old keys. What has succeeded stays." },
        ),
    };
    fields.extend(handler.map(|handler| ("handler", handler.to_string())));
    let facts = vec![("replay", fact)];
    let word = if title.starts_with("Make") { "Make it" } else { "Replay" }.to_owned();
    Ok(Change { title, facts, fields, word, is_danger: false, extra: html! {}, back })
}

async fn of_many(view: &View<'_>, verb: Verb) -> Result<Change, Failure> {
    let state: State = view.asked.need("state")?;
    let handler: Option<Name> = view.asked.read("handler")?;
    let mut suspected = 0;
    let mut answered = 0;
    let mut jobs: Vec<(JobId, u32)> = Vec::new();
    let wrong = || Exit::Usage.failure("a job is written as its id, a dot and its attempt");
    for chosen in view.asked.all("job") {
        let (job, attempt) = chosen.split_once('.').ok_or_else(wrong)?;
        jobs.push((job.parse().map_err(|_| wrong())?, attempt.parse().map_err(|_| wrong())?));
    }
    if jobs.is_empty() {
        let filter = JobFilter {
            state: Some(state),
            handler: handler.clone(),
            reason: Some(view.asked.need("reason")?),
            ..JobFilter::default()
        };
        let mut after = None;
        loop {
            let page = view.app.ask(JobSelection { filter: filter.clone(), after, verb }).await?;
            jobs.extend(page.jobs.iter().map(|chosen| (chosen.job, chosen.attempt)));
            suspected += page.suspected;
            answered += page.answered;
            after = page.next;
            if after.is_none() || jobs.len() >= WORK_JOBS {
                break;
            }
        }
        jobs.truncate(WORK_JOBS);
    } else {
        // Chosen newest first.
        jobs.reverse();
    }
    let count = jobs.len() as u64;
    if count == 0 {
        return Err(Exit::WrongState.failure("no job is left that this could be done with"));
    }
    let slots =
        handler.as_ref().and_then(|name| view.config.handler(name)).map(|own| own.concurrency);
    let number = view.app.works.propose(verb, state, jobs);
    let only_one = view.asked.get("one").is_some();
    let mut facts = vec![match verb {
        Verb::Replay => (
            "replay",
            html! {
                b { (many(count, "job")) @if count == 1 { " runs" } @else { " run" } " again" } ", oldest first"
                @if let Some(slots) = slots { ", " (slots) " at a time" } "."
            },
        ),
        Verb::Drop => (
            "dropped",
            html! { b { (many(count, "job")) " never run again" } ". A dropped job cannot be replayed." },
        ),
    }];
    if verb == Verb::Replay {
        facts.push(("key", html! { b { "The same keys" } " as before, so the handler can tell what it has done already." }));
        facts.push((
            "wait",
            html! { "Each gets " b { "all its attempts" } " again; their numbers go on." },
        ));
    }
    for (left, why) in [(suspected, "may be forged"), (answered, "have answered their callers")] {
        if left > 0 {
            facts.push(("twin", html! { b { (thousands(left)) " left out" } ": they " (why) "." }));
        }
    }
    facts.push(("note", html! { "A job that has changed by then is passed over." }));
    let mut fields = vec![("work", number.to_string())];
    let all = match verb {
        Verb::Replay => format!("Replay {}", many(count, "job")),
        Verb::Drop => format!("Drop {}", many(count, "job")),
    };
    let word = match only_one {
        true => {
            fields.push(("only", "1".to_owned()));
            "Replay one first, then decide".to_owned()
        }
        false => all.clone(),
    };
    let extra = match verb {
        Verb::Drop if count > 1 => html! {
            label.field { "Type " b { (count) } " to drop them" input type="text" required pattern=(format!("\\s*{count}\\s*")) inputmode="numeric" autocomplete="off" name="number"; }
        },
        _ => html! {},
    };
    let is_danger = verb == Verb::Drop;
    Ok(Change { title: all, facts, fields, word, is_danger, extra, back: "/inbox".to_owned() })
}

/// The jobs of a work of which one has run.
fn of_rest(view: &View<'_>) -> Result<Change, Failure> {
    let number: u64 = view.asked.need("work")?;
    let work = view.app.works.get(number)?;
    let left = (work.jobs.len() - work.moved) as u64;
    Ok(Change {
        title: format!("Replay the other {}", many(left, "job")),
        facts: vec![("replay", html! { b { (many(left, "job")) " run again" } ", oldest first." })],
        fields: vec![("work", number.to_string())],
        word: format!("Replay {}", many(left, "job")),
        is_danger: false,
        extra: html! {},
        back: format!("/work/{number}"),
    })
}

fn of_handler(view: &View<'_>, what: &str) -> Result<Change, Failure> {
    let handler: Name = view.asked.need("handler")?;
    let (title, word, facts) = match what {
        "pause" => (
            format!("Pause {handler}"),
            "Pause",
            vec![
                (
                    "pause",
                    html! { "Its jobs " b { "wait" } ", also over restarts. Events are accepted as before." },
                ),
                ("run", html! { "What runs already goes on." }),
            ],
        ),
        _ => (
            format!("Resume {handler}"),
            "Resume",
            vec![("play", html! { "Its waiting jobs " b { "run" } "." })],
        ),
    };
    let fields = vec![("handler", handler.to_string())];
    let (word, extra, back) = (word.to_owned(), html! {}, "/handlers".to_owned());
    Ok(Change { title, facts, fields, word, is_danger: false, extra, back })
}

fn reload() -> Change {
    Change {
        title: "Reload the configuration".to_owned(),
        facts: vec![
            (
                "replay",
                html! { "The receiver and its runners read their files again. No request is dropped, and what runs goes on." },
            ),
            ("note", html! { "A configuration with a mistake changes nothing." }),
        ],
        fields: Vec::new(),
        word: "Reload".to_owned(),
        is_danger: false,
        extra: html! {},
        back: "/handlers".to_owned(),
    }
}

async fn of_quarantine(view: &View<'_>, what: &str) -> Result<Change, Failure> {
    let filter = QuarantineFilter { limit: Some(1), ..kept(view.asked)? };
    let listed = view.app.ask(filter.clone()).await?;
    let upto = listed.deliveries.first().map(|newest| newest.id);
    let filter = QuarantineFilter { upto, limit: None, ..filter };
    let source = filter.source.as_ref().map(|source| ("source", source.to_string()));
    let fields = source.into_iter().chain(upto.map(|upto| ("upto", upto.to_string()))).collect();
    let back = "/quarantine".to_owned();
    let extra = html! {};
    if what == "forget" {
        let matching = listed.matching;
        let facts = vec![(
            "dropped",
            html! { b { (thousands(matching)) } " failed deliveries are deleted, and cannot be accepted any more." },
        )];
        let (title, word) =
            ("Forget what failed".to_owned(), format!("Forget {}", thousands(matching)));
        return Ok(Change { title, facts, fields, word, is_danger: true, extra, back });
    }
    let mut counts = ReverifyCounts::default();
    let mut after = Some(0);
    while let Some(from) = after {
        let part = view.app.ask(VerifyQuarantine { filter: filter.clone(), after: from }).await?;
        for more in part.sources.values() {
            counts.good += more.good;
            counts.duplicates += more.duplicates;
            counts.bodiless += more.bodiless;
            for (reason, number) in &more.bad {
                *counts.bad.entry(reason.clone()).or_default() += number;
            }
        }
        after = part.next;
    }
    let bad: u64 = counts.bad.values().sum();
    let facts = vec![
        (
            "shield",
            html! { b { (thousands(counts.good)) " verify now" } ", each judged at the time it arrived. Each new event is accepted once, and its handlers run." },
        ),
        (
            "dead",
            html! { b { (thousands(bad)) } " are still bad and stay, " (thousands(counts.bodiless)) " have no body." },
        ),
        ("twin", html! { "What a leaked secret has forged verifies too: look at them first." }),
    ];
    let (title, word) =
        ("Accept what verifies now".to_owned(), format!("Accept {}", thousands(counts.good)));
    Ok(Change { title, facts, fields, word, is_danger: false, extra, back })
}
