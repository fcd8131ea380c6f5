//! `hooklatch config show`: what is in force, defaults included, and no secret.

use anstyle::AnsiColor;

use crate::cli;
use crate::config::{
    Action, Config, Handler, LimitRow, Reference, Replies, Source, duration_text, limit_rows,
    sign_text, variable_text,
};
use crate::document::Value;
use crate::exit::{Exit, Failure};
use crate::model::Name;
use crate::retry::GiveUp;

use super::output::{self, Field, below, escape, whole, words_of};
use super::store;

/// Prints the whole configuration in force.
pub(super) fn run(args: &cli::Overview) -> Result<Exit, Failure> {
    let config = store::load_whole(&args.file.config)?;
    if args.format.json {
        output::json(&config)?;
    } else {
        tables(&config)?;
    }
    Ok(Exit::Ok)
}

fn tables(config: &Config) -> Result<(), Failure> {
    let metrics = config.metrics().map_or("none".to_owned(), |listen| listen.to_string());
    let server = config.server();
    output::line(format!("server.listen           {}", server.listen))?;
    output::line(format!("server.trusted_proxies  {}", listed(&server.trusted_proxies)))?;
    output::line(format!("metrics.listen          {metrics}"))?;
    output::line(format!("storage.path            {}\n", config.store().path.display()))?;
    if config.sources.is_empty() {
        output::line("no source")?;
    }
    config.sources.iter().try_for_each(source)?;
    if config.handlers.is_empty() {
        output::line("no handler")?;
    }
    config.handlers.iter().try_for_each(handler)?;
    let limits = limit_rows(config.limits()).iter().map(limit).collect();
    let columns = vec![
        whole("LIMIT"),
        words_of("VALUE"),
        words_of("DEFAULT"),
        words_of("RANGE"),
        below("WHY"),
    ];
    output::listing(columns, limits, false, "no limit")
}

fn source(source: &Source) -> Result<(), Failure> {
    let say = |text: String| output::fact("", escape(&text));
    let (path, provider) = (escape(&source.path.value), source.scheme.name());
    output::fact("source", format_args!("{}: provider {provider} at {path}", source.name))?;
    for reference in &source.secrets {
        say(format!("secret {}", secret(reference)))?;
    }
    let tolerance = source.scheme.tolerance().map(duration_text);
    let tolerance = tolerance.map_or(String::new(), |time| format!(", tolerance {time}"));
    say(format!("bodies up to {}{tolerance}", output::size(source.body_limit_bytes)))?;
    if let Some(url) = &source.public_url {
        say(format!("public URL {url}"))?;
    }
    source.replies.iter().flat_map(answers).try_for_each(say)?;
    output::line("")
}

fn secret(reference: &Value<Reference>) -> String {
    format!("{} ***", reference.value)
}

/// How its requests get their handler's answer, in sentences.
fn answers(reply: &Replies) -> Vec<String> {
    let [wait, keep, errors] =
        [reply.wait.value, reply.keep.value, reply.keep_errors].map(duration_text);
    let mut lines = vec![format!(
        "answers with its handler's answer; a repeat waits {wait}; kept {keep}, a 5xx {errors}"
    )];
    lines.extend(
        reply.requests_per_minute.map(|count| format!("{count} requests of a caller in a minute")),
    );
    if !reply.fields.is_empty() {
        lines.push(format!("one request by {}", listed(&reply.fields)));
    }
    let caller = |(name, reference): &(Name, _)| format!("caller {name}: {}", secret(reference));
    lines.extend(reply.callers.iter().map(caller));
    let header = |what: &str, header: &Option<Value<String>>| {
        Some(format!("{what} {}", header.as_ref()?.value))
    };
    lines.extend(header("caller by header", &reply.caller_header));
    lines.extend(header("caller by certificate in header", &reply.certificate_header));
    lines
}

fn handler(handler: &Handler) -> Result<(), Failure> {
    let say = |text: String| output::fact("", escape(&text));
    let sources = listed(handler.sources.iter().map(|source| &source.value));
    let events = escape(&listed(handler.patterns()));
    output::fact("handler", format_args!("{}: events {events} of {}", handler.name, sources))?;
    let grace = match &handler.action {
        Action::Command(command) => {
            say(format!("runs {}", command.argv.value.join(" ")))?;
            for (name, variable) in &command.env {
                say(format!("with {name}={}", variable_text(name, &variable.value)))?;
            }
            if !command.pass_env.is_empty() {
                let passed = listed(command.pass_env.iter().map(|name| &name.value));
                say(format!("passes {passed}"))?;
            }
            if !command.runner.value.is_default() {
                say(format!("by runner {}", command.runner.value))?;
            }
            if let Some(cwd) = &command.cwd {
                say(format!("in {}", cwd.value.display()))?;
            }
            format!(", grace {}", duration_text(command.grace))
        }
        Action::Forward(forward) => {
            say(format!("forwards to {}", forward.target))?;
            if let Some(sign) = &forward.sign {
                say(format!("signed anew: {}", sign_text(&sign.value)))?;
            }
            String::new()
        }
    };
    let gives_up = match handler.give_up {
        GiveUp::Attempts(attempts) => output::count(attempts.into(), "attempt"),
        GiveUp::After(time) => duration_text(time),
    };
    say(format!(
        "timeout {}{grace}; {} at once; gives up after {gives_up}; unknown outcomes: {}",
        duration_text(handler.timeout),
        handler.concurrency,
        handler.on_unknown.as_str()
    ))?;
    output::line("")
}

fn limit(limit: &LimitRow) -> Vec<Field> {
    // What the operator has changed is what is looked for.
    let value = match limit.value == limit.default {
        true => Field::from(&limit.value),
        false => output::painted(&limit.value, AnsiColor::Yellow),
    };
    let range = format!("{} to {}", limit.least, limit.most);
    vec![(&limit.key).into(), value, (&limit.default).into(), range.into(), limit.reason.into()]
}

fn listed(all: impl IntoIterator<Item: ToString>) -> String {
    let texts: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}
