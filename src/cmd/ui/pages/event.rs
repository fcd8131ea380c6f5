//! An event: what happened as a timeline, a card for each job with its attempts, the payload, the same in a shell.

use actix_web::HttpResponse;
use actix_web::http::header;
use maud::{Markup, html};

use crate::admin::{ReadOutput, ShowEvent};
use crate::cmd::events::type_of;
use crate::cmd::explain::{Explainer, Explanation, HandlerPart};
use crate::cmd::output::{size, span};
use crate::cmd::show::payload_gone;
use crate::exit::{Exit, Failure};
use crate::model::{EventId, Outcome, State};
use crate::runner::message::Stream;
use crate::store::{AttemptRow, EventDetail, JobDetail, JobRow, OutputExcerpt};

use super::super::app::App;
use super::super::parts::{
    change, event_link, icon, look, many, said, sentence_case, shell, short, shown, source, state,
    time,
};
use super::super::payload;
use super::super::request::{Request, link};
use super::super::view::View;

/// Lines of an output that are shown at once; the rest is in a part that opens.
const LINES: usize = 12;

/// Headers whose values prove something: masked until they are asked for.
const SECRET: &[&str] = &["authorization", "signature", "token", "secret", "cookie", "hmac", "key"];

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    let asked = view.asked;
    let all = find(view.app, asked).await?;
    let variant = asked.read::<u32>("variant")?;
    let chosen =
        all.iter().position(|one| variant.is_none_or(|variant| one.event.variant == variant));
    let detail = &all[chosen.unwrap_or(0)];
    let config = view.config.clone();
    let explainer =
        Explainer { config: &config, now: view.screen.now, time: said, suffix: &view.app.suffix };
    let explanation = explainer.explain(detail);
    let (event, id) = (&detail.event, detail.event.event_id.as_str());
    view.at("/events", shown(type_of(event)));
    let jobs = jobs(view, detail, &explanation).await;
    let ended = event
        .jobs
        .keys()
        .all(|state| !matches!(state, State::Ready | State::Running | State::Waiting));
    Ok(html! {
        nav.crumbs aria-label="Breadcrumb" {
            a href="/events" { "Events" } (icon("chev"))
            a href=(link("/events", [("source", event.source.as_str())])) { (event.source) } (icon("chev"))
            span.id { (short(id)) }
        }
        (view.frame.head(&html! {
            @for (of, number) in &event.jobs { (state(*of, &format!("{number} {of}"))) }
            @if event.payload_kept && ended && !event.jobs.is_empty() {
                (change(&link("/change/replay-event", [("source", event.source.as_str()), ("id", id)]), "", "replay", "Replay…"))
            }
        }))
        div.meta {
            span { (source(&event.source)) }
            span { (time(event.received_at, view.screen.now)) }
            span { (size(event.body_bytes)) }
            span.id { (shown(id)) }
        }
        (others(&all, detail))
        div.event {
            section.card aria-labelledby="story" data-part="story" {
                header { h2 #story { "What happened" } span.end.small.faint { "by the configuration on disk" } }
                ol.tl { (arrival(view, &explanation)) (jobs) }
            }
            div.stack {
                (body(view, detail))
                @if let Some(key) = &detail.key { (answer(key)) }
                (shell(&[
                    view.app.command(&format!("explain {}", event.event_id.shell_word())),
                    view.app.command(&format!("show {} --source {}", event.event_id.shell_word(), event.source)),
                ]))
            }
        }
    })
}

async fn find(app: &App, asked: &Request) -> Result<Vec<EventDetail>, Failure> {
    let request = ShowEvent { event: asked.need::<EventId>("id")?, source: asked.read("source")? };
    let help = "a source's ids are kept for storage.keep_ids; what failed verification is in the quarantine";
    let events = app.ask(request).await.map_err(Failure::help_for(Exit::NotFound, help))?.events;
    if events.is_empty() {
        return Err(Exit::NotFound.failure("no such event").help(help));
    }
    Ok(events)
}

/// The body as it came, to be saved and not shown.
pub(crate) async fn raw(app: &App, asked: &Request) -> Result<HttpResponse, Failure> {
    let all = find(app, asked).await?;
    let variant = asked.read::<u32>("variant")?.unwrap_or(0);
    let detail = all.into_iter().find(|one| one.event.variant == variant);
    let body = detail.and_then(|detail| detail.body).ok_or_else(payload_gone)?;
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"body\""))
        .body(body.0))
}

/// Other events under the same id, and others with the same body.
fn others(all: &[EventDetail], chosen: &EventDetail) -> Markup {
    html! {
        @if all.len() > 1 || !chosen.twins.is_empty() {
            div.banner.warn data-part="others" {
                (icon("twin"))
                span {
                    @if all.len() > 1 {
                        "This id names " (many(all.len() as u64, "event")) ": "
                        @for one in all {
                            @let event = &one.event;
                            @let variant = event.variant.to_string();
                            a.link href=(link("/event", [("source", event.source.as_str()), ("id", event.event_id.as_str()), ("variant", &variant)])) {
                                (event.source) ", variant " (variant)
                            } " "
                        }
                    }
                    @if !chosen.twins.is_empty() {
                        "The same signed body came as "
                        @for twin in &chosen.twins {
                            a.link href=(event_link(&chosen.event.source, twin.event_id.as_str())) { (shown(&twin.event_type)) " " (short(twin.event_id.as_str())) } " "
                        }
                    }
                }
            }
        }
    }
}

fn entry(class: &str, glyph: &str, what: &str, when: &Markup, why: &Markup) -> Markup {
    html! {
        li class=(class) {
            (icon(glyph))
            div.line { span.what { (what) } (when) }
            div.why { (why) }
        }
    }
}

fn arrival(view: &View<'_>, explained: &Explanation) -> Markup {
    let mut lines = explained.arrival.iter();
    let first = lines.next().map(String::as_str).unwrap_or_default();
    let guard = explained.replay_guard.as_str();
    let class = if guard.starts_with("held") { "held" } else { "ok" };
    let idle: Vec<&HandlerPart> =
        explained.handlers.iter().filter(|part| part.job.is_none()).collect();
    html! {
        (entry("ok", "in", "Delivered, verified and stored", &html! {}, &html! { (sentence_case(&shown(first))) "." }))
        @for line in lines { (entry("ok", "note", "Since then", &html! {}, &html! { (sentence_case(&shown(line))) "." })) }
        (entry(class, "shield", "Replay guard", &html! {}, &html! { (sentence_case(&shown(guard))) "." }))
        @for part in idle {
            @let class = if part.wants { "held" } else { "" };
            li class=(class) {
                (icon(if part.wants { "held" } else { "dropped" }))
                div.line { span.what { (part.handler) } span.small.muted { (if part.wants { "wants it" } else { "does not want it" }) } }
                div.why { (sentence_case(&shown(&part.why))) "." (conditions(part)) }
                @if let Some(next) = &part.next {
                    div.why { (sentence_case(&shown(&next.what))) "." }
                    div.btns {
                        (change(&link("/change/replay-event", [
                            ("source", explained.source.as_str()), ("id", &explained.event), ("handler", part.handler.as_str()),
                        ]), "", "plus", "Make the job…"))
                    }
                }
            }
        }
        @if let Some(next) = &explained.next {
            (entry("", "note", "Nothing runs", &html! {}, &html! { (sentence_case(&shown(&next.what))) ". " @if let Some(command) = &next.command { code { (command) } } }))
        }
        @if view.config.mistakes().is_empty() { "" } @else {
            (entry("bad", "dead", "The configuration has mistakes", &html! {}, &html! { code { (view.app.command("config check")) } " lists them." }))
        }
    }
}

fn conditions(part: &HandlerPart) -> Markup {
    html! {
        @let lines = part.conditions.lines();
        @if !lines.is_empty() { ul.small { @for line in &lines { li { code { (shown(line)) } } } } }
        @if let Some(why) = &part.conditions.undecided { div { "It cannot be decided: " (shown(why)) "." } }
    }
}

async fn jobs(view: &View<'_>, detail: &EventDetail, explained: &Explanation) -> Markup {
    let mut cards = Vec::new();
    for job in &detail.jobs {
        let part = explained.handlers.iter().find(|part| part.handler == job.job.handler);
        let live = match job.job.state {
            State::Running => live(view, &job.job).await,
            _ => None,
        };
        cards.push(card(view, detail, job, part, live));
    }
    html! { @for card in cards { (card) } }
}

/// What the running attempt has printed on both streams; none where it cannot be asked.
async fn live(view: &View<'_>, row: &JobRow) -> Option<[OutputExcerpt; 2]> {
    let mut both = Vec::new();
    for stream in [Stream::Stdout, Stream::Stderr] {
        let peek = ReadOutput { job: row.job, attempt: row.attempt, stream };
        both.push(view.app.ask(peek).await.ok()?.output.unwrap_or_default());
    }
    both.try_into().ok()
}

fn card(
    view: &View<'_>,
    detail: &EventDetail,
    job: &JobDetail,
    part: Option<&HandlerPart>,
    live: Option<[OutputExcerpt; 2]>,
) -> Markup {
    let (row, now) = (&job.job, view.screen.now);
    let (class, glyph) = look(row.state);
    let class = if class == "dead" { "bad" } else { class };
    html! {
        li class=(class) id=(row.job) {
            (icon(glyph))
            div.line {
                span.what { (row.handler) }
                span.when { (time(row.settled_at.or(row.stopped_at).unwrap_or(row.created_at), now)) }
            }
            @if let Some(part) = part { div.why { (sentence_case(&shown(&part.why))) "." (conditions(part)) } }
            div.jobcard {
                header {
                    (state(row.state, row.state.as_str()))
                    @if let Some(reason) = &row.reason { span.small.muted { (shown(reason)) } }
                    span.small.muted { "attempt " (row.attempt) }
                    span.end.btns { (actions(detail, row)) }
                }
                @for (nth, attempt) in job.attempts.iter().enumerate() {
                    @if nth > 0 && let Some(ended) = job.attempts[nth - 1].finished_at {
                        div.pause { (icon("wait")) "waited " (span(attempt.started_at.since(ended))) " before the next attempt" }
                    }
                    (self::attempt(view, attempt, live.as_ref()))
                }
                div.key {
                    span { "key " code { (row.job) } }
                    @for former in &job.former_keys { span { "before: " code { (former.key) } } }
                }
                @if let Some(next) = part.and_then(|part| part.job.as_ref()).map(|job| &job.next) {
                    div.next { b { "Next: " } (shown(&next.what)) "." }
                }
            }
        }
    }
}

/// The changes that this job's state allows.
fn actions(detail: &EventDetail, row: &JobRow) -> Markup {
    let (job, attempt) = (row.job.to_string(), row.attempt.to_string());
    let to = |what: &str| {
        link(&format!("/change/{what}"), [("job", job.as_str()), ("attempt", &attempt)])
    };
    let caller_waits = detail.key.as_ref().is_some_and(|key| key.answered_at.is_none());
    let kept = detail.event.payload_kept;
    html! {
        @match row.state {
            State::Running => { (change(&to("cancel"), "danger", "x", "Cancel…")) }
            State::Held => {
                // A caller's answer is a file of the command line's.
                @if !caller_waits { (change(&to("succeeded"), "", "ok", "It did its work…")) }
                (change(&to("failed"), "", "dead", "It did not…"))
                @if kept { (change(&to("replay-job"), "", "replay", "Run it again…")) }
                (change(&to("drop-job"), "quiet danger", "dropped", "Drop…"))
            }
            State::Dead => {
                @if kept { (change(&to("replay-job"), "", "replay", "Replay…")) }
                (change(&to("drop-job"), "quiet danger", "dropped", "Drop…"))
            }
            State::Succeeded => { @if kept { (change(&to("replay-job"), "", "replay", "Replay…")) } }
            State::Ready | State::Waiting => { (change(&to("drop-job"), "quiet danger", "dropped", "Drop…")) }
            State::Dropped => {}
        }
    }
}

fn attempt(view: &View<'_>, row: &AttemptRow, live: Option<&[OutputExcerpt; 2]>) -> Markup {
    let now = view.screen.now;
    let class = match row.outcome {
        None => "tag run",
        Some(Outcome::Succeeded) => "tag ok",
        Some(Outcome::Failed | Outcome::Rejected) => "tag bad",
        Some(_) => "tag warn",
    };
    let record = &row.record;
    let took = row.finished_at.unwrap_or(now).since(row.started_at);
    let [out, err] = match live.filter(|_| row.outcome.is_none()) {
        Some([out, err]) => [out, err],
        None => [&record.stdout, &record.stderr],
    };
    html! {
        div.attempt {
            div.line {
                span.what { "Attempt " (row.number) }
                span class=(class) { (row.outcome.map_or("running", |outcome| outcome.as_str())) }
                span.muted { (shown(&record.detail)) }
                span.when { (time(row.started_at, now)) " · " (format!("{:.1} s", took.as_secs_f64())) }
            }
            (output(out, &format!("Output of attempt {}", row.number), row.number, row.outcome.is_none(), false))
            (output(err, &format!("Errors of attempt {}", row.number), row.number, row.outcome.is_none(), true))
            @if let Some(usage) = &record.usage {
                div.bar { span.end.num { "CPU " (usage.cpu_millis) " ms · " (size(usage.memory_bytes)) } }
            }
        }
    }
}

fn output(of: &OutputExcerpt, label: &str, number: u32, is_live: bool, is_error: bool) -> Markup {
    if of.total == 0 {
        return html! {};
    }
    let missed = of.total - (of.head.len() + of.tail.len()) as u64;
    let (head, tail) = (lines(&of.head), lines(&of.tail));
    let all = head.len() + tail.len();
    let id = format!("{}-{number}", if is_error { "err" } else { "out" });
    let text = |from: usize, to: usize| {
        html! {
            @for (nth, line) in head.iter().chain(&tail).enumerate().skip(from).take(to - from) {
                @if nth == head.len() && missed > 0 { span.cut { "… " (size(missed)) " were not kept …" } }
                span.err[is_error].now[is_live && !is_error && nth + 1 == all] { (line) }
            }
        }
    };
    html! {
        @if all > LINES {
            details #(id) {
                summary { "All " (all) " lines" }
                pre.term.wrap tabindex="0" aria-label=(label) { (text(0, all - LINES)) }
            }
        }
        pre.term.wrap.flow[is_live] tabindex="0" aria-label=(label) { (text(all.saturating_sub(LINES), all)) }
        @if is_live { div.bar { span { "live, " (size(of.total)) " so far" } } }
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(shown).collect()
}

fn body(view: &View<'_>, detail: &EventDetail) -> Markup {
    let asked = view.asked;
    let event = &detail.event;
    let of_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let content_type = detail.headers.iter().find(of_type).map_or("", |(_, value)| value.as_str());
    let is_headers = asked.get("show") == Some("headers");
    let find = asked.get("find").unwrap_or_default();
    let variant = event.variant.to_string();
    let raw = link(
        "/raw",
        [("source", event.source.as_str()), ("id", event.event_id.as_str()), ("variant", &variant)],
    );
    let current = |yes: bool| yes.then_some("true");
    html! {
        section.card aria-labelledby="payload" data-part="payload" {
            header.mid {
                h2 #payload { "Payload" }
                span.tabs {
                    a href=(asked.with("show", None)) aria-current=[current(!is_headers)] { "Body" }
                    a href=(asked.with("show", Some("headers"))) aria-current=[current(is_headers)] { "Headers " span.count { (detail.headers.len()) } }
                }
                span.end.btns { @if detail.body.is_some() { a.btn.small.quiet href=(raw) download="body" { (icon("save")) "Raw" } } }
            }
            @if is_headers {
                dl.kv.pad { @for (name, value) in &detail.headers {
                    dt { (shown(name)) } dd { code { (header_value(view, name, value)) } }
                } }
                @if asked.get("secrets").is_none() {
                    p.pad.small { a.link href=(asked.with("secrets", Some("1"))) { "Show the values that are masked" } }
                }
            } @else if let Some(body) = &detail.body {
                form.filters action="/event" {
                    input type="hidden" name="source" value=(event.source);
                    input type="hidden" name="id" value=(event.event_id.as_str());
                    input type="hidden" name="variant" value=(variant);
                    span.search {
                        (icon("search"))
                        label.hide for="find" { "Find in the payload" }
                        input #find type="search" name="find" value=(find) placeholder="Find, or a pointer: /head_commit/id";
                    }
                }
                @let payload = payload::view(body, content_type, find);
                @if !find.is_empty() {
                    p.pad.small {
                        (many(payload.found.len() as u64, "line")) " found. "
                        @for pointer in &payload.found { code { (shown(pointer)) } " " }
                    }
                }
                (payload.html)
                @if payload.is_cut { p.pad.small { "This is its beginning; " a.link href=(raw) download="body" { "the whole body" } " has " (size(event.body_bytes)) "." } }
            } @else {
                p.pad.muted { "The payload has been deleted: " code { "storage.keep_payloads" } " says how long payloads are kept. It cannot run again." }
            }
        }
    }
}

fn header_value(view: &View<'_>, name: &str, value: &str) -> String {
    let name = name.to_lowercase();
    let is_secret = SECRET.iter().any(|word| name.contains(word));
    match is_secret && view.asked.get("secrets").is_none() {
        true => "masked".to_owned(),
        false => shown(value),
    }
}

fn answer(key: &crate::store::KeyRow) -> Markup {
    html! {
        section.card aria-labelledby="answer" data-part="answer" {
            header { h2 #answer { "The caller's answer" } }
            @match key.status {
                Some(status) => {
                    dl.kv.pad {
                        dt { "Status" } dd { (status) }
                        @for (name, value) in &key.headers { dt { (shown(name)) } dd { code { (shown(value)) } } }
                    }
                    @if let Some(body) = &key.body { (payload::view(body, "", "").html) }
                }
                None => { p.pad.muted { "Not answered yet: the caller is told to come back." } }
            }
        }
    }
}
