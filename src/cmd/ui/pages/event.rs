//! An event: what happened as a timeline, a card for each job with its attempts, the payload, the same in a shell.

use std::borrow::Cow;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header;
use futures_util::stream;
use tokio::sync::Semaphore;

use crate::admin::{GetBody, ReadOutput, ShowEvent};
use crate::cmd::events::type_of;
use crate::cmd::explain::{Explainer, Explanation, HandlerPart};
use crate::cmd::show::{is_unread, payload_gone};
use crate::model::{Blob, JobId, Outcome};
use crate::panics::contained;
use crate::runner::message::Stream;
use crate::store::{AttemptRow, EventDetail, JobRow, KeyRow, OutputExcerpt};

use super::super::payload::{self, Payload, SHOWN_BYTES};
use super::super::view::{View, withheld};
use super::super::{app::App, parts::*, request::Request};
use super::events::IDS_ARE_KEPT;

/// Lines of an output that are shown at once; the others are in a part that opens.
const LINES: usize = 12;

/// Headers whose values prove something: masked until they are asked for.
const SECRET: &str = "authorization signature token secret cookie hmac key";

/// Events that the receiver reads at once.
static SHOWN: Semaphore = Semaphore::const_new(2);

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    let mut all = find(view.app, view.asked).await?;
    let variant: Option<u32> = view.asked.read("variant")?;
    let is_chosen = |one: &EventDetail| Some(one.event.variant) == variant;
    let nth = all.iter().position(is_chosen).unwrap_or(0);
    view.at("/events", shown(type_of(&all[nth].event)));
    let explainer = Explainer {
        config: &view.config,
        nodes: &view.screen.nodes,
        now: view.screen.now,
        time: said,
        suffix: &view.app.suffix,
    };
    let mut explained = explainer.explain(&all[nth]);
    begin_long(view, &mut all[nth]).await;
    let detail = &view.app.visible(&all[nth], &mut explained);
    let (event, id) = (&detail.event, detail.event.event_id.as_str());
    let story = story(view, detail, &explained).await;
    let is_open = |state: &State| matches!(state, State::Ready | State::Running | State::Waiting);
    Ok(html! {
        @let is_settled = !event.jobs.is_empty() && !event.jobs.keys().any(is_open);
        @let of_event = [("source", event.source.as_str()), ("id", id)];
        @let typed = event.event_id.shell_word();
        @let commands = [format!("explain {typed}"), format!("show {typed} --source {}", event.source)];
        nav.crumbs aria-label="Breadcrumb" {
            a href="/events" { "Events" } (icon("chev"))
            a href=(link("/events", [of_event[0]])) { (event.source) } (icon("chev"))
            span.id { (short(id)) }
        }
        (view.head(html! {
            @for jobs in &event.jobs { (in_state(jobs)) }
            @if event.payload_kept && is_settled {
                (change(&link("/change/replay-event", of_event), "", "replay", "Replay…"))
            }
        }))
        div.meta {
            (source(&event.source)) (time(event.received_at, view.screen.now))
            span { (size(event.body_bytes)) } span.id { (shown(id)) }
        }
        (others(&all, detail))
        div.event {
            (card("story", "What happened", "by the configuration on disk", story))
            div.stack {
                (body(view, detail))
                @if let Some(key) = &detail.key { (card("answer", "The caller's answer", "", answer(key))) }
                (shell(commands.map(|typed| view.app.command(&typed))))
            }
        }
    })
}

/// The events with the id, at least one.
async fn find(app: &Arc<App>, asked: &Request) -> Result<Vec<EventDetail>, Failure> {
    let request = ShowEvent {
        event: asked.need("id")?,
        source: asked.read("source")?,
        // Those who may not see its body see what conditions make of it.
        variant: Some(asked.read("variant")?.unwrap_or(0)),
    };
    let (asking, place) = (Arc::clone(app), SHOWN.acquire().await);
    // The receiver reads on for a visitor who has left.
    let shown = tokio::spawn(contained(async move {
        let _place = place;
        asking.ask(request).await
    }));
    let shown = shown.await.map_err(Failure::io("show the event"))?;
    let shown = shown.map_err(Failure::help_for(Exit::NotFound, IDS_ARE_KEPT))?;
    Ok(shown.events)
}

/// Adds the beginning of the body that is shown, where it is too long for an answer. A token in it could not be masked:
/// then it is not read.
async fn begin_long(view: &View<'_>, one: &mut EventDetail) {
    if !is_unread(one) || is_masked(view, one) || !view.app.may_see_payloads() {
        return;
    }
    match begin(view.app, &body_of(one)).await {
        Ok(begin) => one.body = Some(Blob(begin)),
        Err(failure) if failure.exit == Exit::WrongState => one.damaged = true,
        // It was deleted meanwhile.
        Err(failure) if failure.exit == Exit::NotFound => one.event.payload_kept = false,
        // The rest is shown without it.
        Err(_) => {}
    }
}

/// What is shown of a body, and a little more where there is more.
async fn begin(app: &App, of: &GetBody) -> Result<Vec<u8>, Failure> {
    let mut parts = app.stream(of).await?;
    let mut begin = Vec::new();
    while begin.len() <= SHOWN_BYTES
        && let Some(part) = parts.part().await.map_err(Failure::io("read the body"))?
    {
        begin.extend_from_slice(&part);
    }
    Ok(begin)
}

/// Whether a token in the body is to be masked.
fn is_masked(view: &View<'_>, one: &EventDetail) -> bool {
    let scheme = view.config.scheme_of(&one.event.source);
    let has_token = scheme.is_some_and(|scheme| scheme.proof().token_field().is_some());
    has_token && view.asked.get("secrets").is_none()
}

fn body_of(one: &EventDetail) -> GetBody {
    let (event, source) = (one.event.event_id.clone(), one.event.source.clone());
    GetBody { event, source, variant: one.event.variant, answer: false }
}

/// The body as it came, to be saved and not shown.
pub(crate) async fn raw(app: &Arc<App>, asked: &Request) -> Result<HttpResponse, Failure> {
    let variant = asked.read("variant")?.unwrap_or(0);
    let mut all = find(app, asked).await?.into_iter();
    let one = all.find(|one| one.event.variant == variant && one.event.payload_kept);
    let one = one.ok_or_else(payload_gone)?;
    let parts = app.stream(&body_of(&one)).await?;
    let parts = stream::unfold(parts, async |mut parts| match parts.part().await {
        Ok(part) => part.map(|part| (Ok(part), parts)),
        Err(error) => Some((Err(actix_web::Error::from(error)), parts)),
    });
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"body\""))
        .no_chunking(one.event.body_bytes)
        .streaming(Box::pin(parts)))
}

/// Other events under the same id, and others with the same body.
fn others(all: &[EventDetail], chosen: &EventDetail) -> Markup {
    html! { @if all.len() > 1 || !chosen.twins.is_empty() {
        div.banner.warn data-part="others" { (icon("twin")) span {
            @if all.len() > 1 { "This id names " (many(all.len() as u64, "event")) ": " }
            @for EventDetail { event, .. } in all.iter().filter(|_| all.len() > 1) {
                @let to = event_link(&event.source, event.event_id.as_str());
                a.link href={(to) "&variant=" (event.variant)} { (event.source) ", variant " (event.variant) } " "
            }
            @if !chosen.twins.is_empty() { "The same signed body came as " }
            @for twin in &chosen.twins {
                @let id = twin.event_id.as_str();
                @let to = event_link(&chosen.event.source, id);
                a.link href=(to) { (shown(&twin.event_type)) " " (short(id)) } " "
            }
        } }
    } }
}

/// Its delivery, and the handlers that have no job for it.
fn arrival(view: &View<'_>, explained: &Explanation) -> Markup {
    html! {
        @for (nth, line) in explained.arrival.iter().enumerate() {
            @let (glyph, what) = if nth == 0 { ("in", "Delivered, verified and stored") } else { ("note", "Since then") };
            (item("succeeded", glyph, what, "", sentence_case(line)))
        }
        @let guard = &explained.replay_guard;
        @let class = if guard.starts_with("held") { "held" } else { "succeeded" };
        (item(class, "shield", "Replay guard", "", sentence_case(guard)))
        @for part in explained.handlers.iter().filter(|part| part.job.is_none()) {
            @let (class, wants) = if part.wants { ("held", "wants it") } else { ("dropped", "does not want it") };
            @let (source, handler) = (explained.source.as_str(), part.handler.as_str());
            @let of = [("source", source), ("id", &explained.event), ("handler", handler)];
            (item(class, class, handler, html! { span.small { (wants) } }, html! {
                (why(part))
                @if let Some(next) = &part.next {
                    div { (sentence_case(&next.what)) }
                    (change(&link("/change/replay-event", of), "", "plus", "Make the job…"))
                }
            }))
        }
        @if let Some(next) = &explained.next {
            @let command = next.command.as_deref().unwrap_or_default();
            (item("", "note", "Nothing runs", "", html! { (sentence_case(&next.what)) " " code { (command) } }))
        }
        @if !view.config.mistakes().is_empty() {
            (item("dead", "dead", "The configuration has mistakes", "", html! { code { (view.app.command("config check")) } " lists them." }))
        }
    }
}

/// Why a handler wants the event or not, and what its condition reads of it.
fn why(part: &HandlerPart) -> Markup {
    html! {
        (sentence_case(&part.why))
        ul.small { @for line in &part.conditions.lines() { li { code { (shown(line)) } } } }
        @if let Some(why) = &part.conditions.undecided { div { "It cannot be decided: " (shown(why)) "." } }
    }
}

/// What a running attempt has printed so far: nothing where that cannot be asked, or may not be seen.
pub(super) async fn printed(view: &View<'_>, row: &JobRow, stream: Stream) -> OutputExcerpt {
    if row.state != State::Running || !view.app.may_see_payloads() {
        return OutputExcerpt::default();
    }
    let request = ReadOutput { job: row.job, attempt: row.attempt, stream };
    let reply = view.ask(request).await.ok();
    reply.and_then(|reply| reply.output).unwrap_or_default()
}

/// The event's delivery, and a card for each of its jobs.
async fn story(view: &View<'_>, detail: &EventDetail, explained: &Explanation) -> Markup {
    let mut cards = Vec::new();
    for job in &detail.jobs {
        let row = &job.job;
        let out = printed(view, row, Stream::Stdout).await;
        let err = printed(view, row, Stream::Stderr).await;
        cards.push(html! { li class=(row.state) id=(row.job) {
            @let part = explained.handlers.iter().find(|part| part.handler == row.handler);
            @let at = row.settled_at.or(row.stopped_at).unwrap_or(row.created_at);
            (icon(row.state.as_str()))
            div.line { span.what { (row.handler) } span.when { (time(at, view.screen.now)) } }
            div.why { @if let Some(part) = part { (why(part)) } }
            div.jobcard {
                header {
                    (state(row.state, row.state.as_str()))
                    @if let Some(reason) = &row.reason { span.small { (shown(reason)) } }
                    span.small { "attempt " (row.attempt) } span.end.btns { (actions(detail, row)) }
                }
                @let ends = job.attempts.iter().map(|attempt| attempt.finished_at);
                @for (attempt, before) in job.attempts.iter().zip([None].into_iter().chain(ends)) {
                    @if let Some(ended) = before { div.pause {
                        (icon("waiting")) "waited " (span(attempt.started_at.since(ended))) " before the next attempt"
                    } }
                    (attempt_part(view, row.job, attempt, [&out, &err]))
                }
                div.key { "key " code { (row.job) }
                    @for former in &job.former_keys { " before: " code { (former.key) } }
                }
                @if let Some(job) = part.and_then(|part| part.job.as_ref()) {
                    div.next { b { "Next: " } (shown(&job.next.what)) "." }
                }
            }
        } });
    }
    html! { ol.tl { (arrival(view, explained)) @for card in &cards { (card) } } }
}

/// The changes that this job's state allows.
fn actions(detail: &EventDetail, row: &JobRow) -> Markup {
    html! {
        // A caller's answer is a file of the command line's.
        @let caller_waits = detail.key.as_ref().is_some_and(|key| key.answered_at.is_none());
        @let is_held = row.state == State::Held;
        @let is_stopped = matches!(row.state, State::Held | State::Dead);
        @let may_run = detail.event.payload_kept && (is_stopped || row.state == State::Succeeded);
        @let may_drop = is_stopped || matches!(row.state, State::Ready | State::Waiting);
        @for (may, what, class, glyph, word) in [
            (row.state == State::Running, "cancel", "danger", "x", "Cancel…"),
            (is_held && !caller_waits, "succeeded", "", "succeeded", "It did its work…"),
            (is_held, "failed", "", "dead", "It did not…"),
            (may_run, "replay-job", "", "replay", "Run it again…"),
            (may_drop, "drop-job", "quiet danger", "dropped", "Drop…"),
        ] { @if may {
            @let to = format!("/change/{what}?job={}&attempt={}", row.job, row.attempt);
            (change(&to, class, glyph, word))
        } }
    }
}

type Streams<'a> = [&'a OutputExcerpt; 2];

fn attempt_part(view: &View<'_>, job: JobId, row: &AttemptRow, printed: Streams<'_>) -> Markup {
    let class = match row.outcome {
        None => "tag run",
        Some(Outcome::Succeeded) => "tag ok",
        Some(Outcome::Failed | Outcome::Rejected) => "tag bad",
        Some(_) => "tag warn",
    };
    html! { div.attempt {
        @let took = row.finished_at.unwrap_or(view.screen.now).since(row.started_at).as_secs_f64();
        @let (record, is_live) = (&row.record, row.outcome.is_none());
        @let [out, err] = if is_live { printed } else { [&record.stdout, &record.stderr] };
        div.line {
            span.what { "Attempt " (row.number) }
            span class=(class) { (row.outcome.map_or("running", Outcome::as_str)) }
            span.muted { (shown(&record.detail)) }
            span.when { (time(row.started_at, view.screen.now)) " · " (format!("{took:.1} s")) }
        }
        @for (word, of) in [("Output", out), ("Errors", err)] {
            @let (all, label) = (lines(of), format!("{word} of attempt {}", row.number));
            @let (first, last) = all.split_at(all.len().saturating_sub(LINES));
            @if !first.is_empty() { details id={(word) (row.number) "-" (job)} {
                summary { "All " (all.len()) " lines" }
                pre.term tabindex="0" aria-label={(label) ", first lines"} { (spans(word, first)) }
            } }
            @if !last.is_empty() {
                pre.term.flow[is_live] tabindex="0" aria-label=(label) { (spans(word, last)) }
                @if is_live { div.bar { "live, " (size(of.total)) " so far" } }
            }
        }
        @if let Some(usage) = &record.usage {
            div.bar { "CPU " (usage.cpu_millis) " ms · " (size(usage.memory_bytes)) }
        }
    } }
}

fn spans(word: &str, lines: &[String]) -> Markup {
    html! { @for line in lines { span.err[word == "Errors"] { (line) } } }
}

/// The lines that were kept, with one for what was not.
pub(super) fn lines(of: &OutputExcerpt) -> Vec<String> {
    let missed = of.total.saturating_sub((of.head.len() + of.tail.len()) as u64);
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(shown).collect();
    let mut all: Vec<String> = part(&of.head);
    if missed > 0 {
        all.push(format!("… {} were not kept …", size(missed)));
    }
    all.extend(part(&of.tail));
    all
}

fn body(view: &View<'_>, detail: &EventDetail) -> Markup {
    if !view.app.may_see_payloads() {
        return withheld();
    }
    let (asked, event) = (view.asked, &detail.event);
    let of_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let find = asked.get("find").unwrap_or_default();
    let is_headers = asked.get("show") == Some("headers");
    html! { section.card aria-labelledby="payload" data-part="payload" {
        @let variant = event.variant.to_string();
        @let of = [("source", event.source.as_str()), ("id", event.event_id.as_str()), ("variant", &variant)];
        @let raw = link("/raw", of);
        @let current = |is_it: bool| is_it.then_some("true");
        header.mid {
            h2 #payload { "Payload" }
            span.tabs {
                a href=(asked.with("show", None)) aria-current=[current(!is_headers)] { "Body" }
                a href=(asked.with("show", Some("headers"))) aria-current=[current(is_headers)] {
                    "Headers " span.count { (detail.headers.len()) }
                }
            }
            @if event.payload_kept { a.end.btn.small.quiet href=(raw) download="body" { (icon("in")) "Raw" } }
        }
        @if is_headers {
            @let is_masked = asked.get("secrets").is_none();
            (headers(&detail.headers, is_masked))
            @if is_masked { p.pad {
                a.link href=(asked.with("secrets", Some("1"))) { "Show the values that are masked" }
            } }
        } @else if let Some(body) = &detail.body {
            form.filters action="/event" {
                @for (name, value) in of { input type="hidden" name=(name) value=(value); }
                span.search { (icon("search"))
                    input type="search" name="find" aria-label="Find in the payload" value=(find) placeholder="Find, or a pointer: /head_commit/id";
                }
            }
            @let scheme = view.config.scheme_of(&event.source);
            @let is_masked = is_masked(view, detail);
            @let body = match scheme.filter(|_| is_masked) {
                Some(scheme) => scheme.masked(body),
                None => Cow::Borrowed(&body[..]),
            };
            @let content_type = detail.headers.iter().find(of_type).map_or("", |(_, value)| value);
            @let Payload(lines, found, is_cut) = payload::view(&body, content_type, find);
            @if !find.is_empty() { p.pad { (many(found.len() as u64, "line")) " found. "
                @for pointer in &found { code { (shown(pointer)) } " " }
            } }
            (lines)
            @if is_masked { p.pad {
                a.link href=(asked.with("secrets", Some("1"))) { "Show the values that are masked" }
            } }
            @if is_cut { p.pad { "This is its beginning; "
                a.link href=(raw) download="body" { "the whole body" } " has " (size(event.body_bytes)) "."
            } }
        } @else if detail.damaged { p.pad.muted {
            "The payload is damaged, and no job of the event starts. A later delivery of it may mend it."
        } } @else if event.payload_kept && !is_masked(view, detail) { p.pad.muted {
            "It cannot be read now: load the page again."
        } } @else if event.payload_kept { p.pad.muted {
            "It is too long to be shown with its token masked: "
            a.link href=(asked.with("secrets", Some("1"))) { "show it unmasked" }
        } } @else { p.pad.muted { "The payload has been deleted: " code { "storage.keep_payloads" }
            " says how long payloads are kept. It cannot run again."
        } }
    } }
}

fn headers(lines: &[(String, String)], masked: bool) -> Markup {
    html! { dl.kv.pad { @for (name, value) in lines {
        @let is_secret = SECRET.split(' ').any(|word| name.to_lowercase().contains(word));
        dt { (shown(name)) }
        dd { code { @if masked && is_secret { "masked" } @else { (shown(value)) } } }
    } } }
}

fn answer(key: &KeyRow) -> Markup {
    html! { @match key.status {
        Some(status) => {
            dl.kv.pad { dt { "Status" } dd { (status) } }
            (headers(&key.headers, false))
            @if let Some(body) = &key.body { (payload::view(body, "", "").0) }
            @if key.damaged { p.pad.muted { "Its body is damaged." } }
        }
        None => { p.pad.muted { "Not answered yet: the caller is told to come back." } }
    } }
}
