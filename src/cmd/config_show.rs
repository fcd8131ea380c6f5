//! `hooklatch config show`: what is in force, defaults included, and no secret.

use anstyle::AnsiColor;

use crate::cli;
use crate::config::{Shown, ShownHandler, ShownLimit, ShownReply, ShownSecret, ShownSource};
use crate::exit::{Exit, Failure};
use crate::model::Name;

use super::output::{self, Field, below, escape, whole, words_of};
use super::store;

/// Prints the whole configuration in force.
pub(super) fn run(args: &cli::Overview) -> Result<Exit, Failure> {
    let shown = store::load_whole(&args.file.config)?.shown();
    if args.format.json {
        output::json(&shown)?;
    } else {
        tables(&shown)?;
    }
    Ok(Exit::Ok)
}

fn tables(shown: &Shown) -> Result<(), Failure> {
    let metrics = shown.metrics.map_or("none".to_owned(), |listen| listen.to_string());
    let proxies = listed(&shown.trusted_proxies);
    output::line(format!("server.listen           {}", shown.listen))?;
    output::line(format!("server.trusted_proxies  {proxies}"))?;
    output::line(format!("metrics.listen          {metrics}"))?;
    let store = shown.store.display();
    output::line(format!("storage.path            {store}\n"))?;
    if shown.sources.is_empty() {
        output::line("no source")?;
    }
    shown.sources.iter().try_for_each(source)?;
    if shown.handlers.is_empty() {
        output::line("no handler")?;
    }
    shown.handlers.iter().try_for_each(handler)?;
    let limits = shown.limits.iter().map(limit).collect();
    let columns = vec![
        whole("LIMIT"),
        words_of("VALUE"),
        words_of("DEFAULT"),
        words_of("RANGE"),
        below("WHY"),
    ];
    output::listing(columns, limits, false, "no limit")
}

fn source(source: &ShownSource) -> Result<(), Failure> {
    let say = |text: String| output::fact("", escape(&text));
    let path = escape(&source.path);
    output::fact(
        "source",
        format_args!("{}: provider {} at {path}", source.name, source.provider),
    )?;
    for secret in &source.secrets {
        say(format!("secret {} {}", secret.reference, secret.value))?;
    }
    let tolerance = source.tolerance.as_ref().map(|time| format!(", tolerance {time}"));
    let (body, tolerance) = (output::size(source.max_body_bytes), tolerance.unwrap_or_default());
    say(format!("bodies up to {body}{tolerance}"))?;
    if let Some(url) = &source.public_url {
        say(format!("public URL {url}"))?;
    }
    source.reply.iter().flat_map(answers).try_for_each(say)?;
    output::line("")
}

/// How its requests get their handler's answer, in sentences.
fn answers(reply: &ShownReply) -> Vec<String> {
    let mut lines = vec![format!(
        "answers with its handler's answer; a repeat waits {}; kept {}, a 5xx {}",
        reply.wait, reply.keep, reply.keep_errors
    )];
    lines.extend(
        reply.requests_per_minute.map(|count| format!("{count} requests of a caller in a minute")),
    );
    if !reply.request_fields.is_empty() {
        lines.push(format!("one request by {}", reply.request_fields.join(", ")));
    }
    let caller = |(name, secret): &(Name, ShownSecret)| {
        format!("caller {name}: {} {}", secret.reference, secret.value)
    };
    lines.extend(reply.callers.iter().map(caller));
    let header = |what: &str, header: &Option<String>| Some(format!("{what} {}", header.as_ref()?));
    lines.extend(header("caller by header", &reply.caller_header));
    lines.extend(header("caller by certificate in header", &reply.certificate_header));
    lines
}

fn handler(handler: &ShownHandler) -> Result<(), Failure> {
    let say = |text: String| output::fact("", escape(&text));
    let (sources, events) = (listed(&handler.sources), listed(&handler.events));
    let events = escape(&events);
    output::fact("handler", format_args!("{}: events {events} of {sources}", handler.name))?;
    say(match (&handler.command, &handler.forward) {
        (Some(argv), _) => format!("runs {}", argv.join(" ")),
        (None, target) => format!("forwards to {}", target.as_deref().unwrap_or("-")),
    })?;
    if let Some(sign) = &handler.sign {
        say(format!("signed anew: {sign}"))?;
    }
    for (name, value) in &handler.env {
        say(format!("with {name}={value}"))?;
    }
    if !handler.pass_env.is_empty() {
        say(format!("passes {}", handler.pass_env.join(", ")))?;
    }
    if let Some(runner) = handler.runner.as_ref().filter(|runner| !runner.is_default()) {
        say(format!("by runner {runner}"))?;
    }
    if let Some(cwd) = &handler.cwd {
        say(format!("in {}", cwd.display()))?;
    }
    let grace = handler.grace.as_ref().map(|grace| format!(", grace {grace}"));
    let gives_up = match (handler.max_attempts, &handler.give_up_after) {
        (Some(attempts), _) => output::count(attempts.into(), "attempt"),
        (None, time) => time.as_deref().unwrap_or("-").to_owned(),
    };
    say(format!(
        "timeout {}{}; {} at once; gives up after {gives_up}; unknown outcomes: {}",
        handler.timeout,
        grace.unwrap_or_default(),
        handler.concurrency,
        handler.on_unknown.as_str()
    ))?;
    output::line("")
}

fn limit(limit: &ShownLimit) -> Vec<Field> {
    // What the operator has changed is what is looked for.
    let value = match limit.value == limit.default {
        true => Field::from(&limit.value),
        false => output::painted(&limit.value, AnsiColor::Yellow),
    };
    let range = format!("{} to {}", limit.least, limit.most);
    vec![(&limit.key).into(), value, (&limit.default).into(), range.into(), limit.reason.into()]
}

fn listed(texts: &[String]) -> String {
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}
