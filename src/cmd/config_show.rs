//! `hooklatch config show`: what is in force, defaults included, and no secret.

use comfy_table::{Cell, Color};

use crate::cli;
use crate::config::{Shown, ShownHandler, ShownLimit, ShownReply, ShownSecret, ShownSource};
use crate::exit::{Exit, Failure};
use crate::model::Name;

use super::output::{self, outside};
use super::store;

/// Prints the whole configuration in force.
pub(super) fn run(args: &cli::ConfigShow) -> Result<Exit, Failure> {
    let shown = store::load(&args.file.config)?.shown();
    if args.format.json {
        output::json(&shown)?;
    } else {
        tables(&shown)?;
    }
    Ok(Exit::Ok)
}

fn tables(shown: &Shown) -> Result<(), Failure> {
    output::line(format!("server.listen           {}", shown.listen))?;
    output::line(format!("server.trusted_proxies  {}", listed(&shown.trusted_proxies)))?;
    let metrics = shown.metrics.map_or("none".to_owned(), |listen| listen.to_string());
    output::line(format!("metrics.listen          {metrics}"))?;
    output::line(format!("storage.path            {}\n", shown.store.display()))?;
    let sources = shown.sources.iter().map(source).collect();
    let head = ["SOURCE", "PROVIDER", "PATH", "SECRETS", "MAX BODY", "TOLERANCE", "PUBLIC URL"];
    output::table(&head, sources, "no source")?;
    for source in &shown.sources {
        for line in source.reply.iter().flat_map(answers) {
            output::line(format!("  {}: {}", source.name, output::escape(&line)))?;
        }
    }
    output::line("")?;
    let handlers = shown.handlers.iter().map(handler).collect();
    let head = [
        "HANDLER",
        "SOURCES",
        "EVENTS",
        "RUNS",
        "TIMEOUT",
        "GRACE",
        "AT ONCE",
        "GIVES UP",
        "ON UNKNOWN",
    ];
    output::table(&head, handlers, "no handler")?;
    for handler in &shown.handlers {
        for (name, value) in &handler.env {
            let (name, value) = (output::escape(name), output::escape(value));
            output::line(format!("  {}: {name}={value}", handler.name))?;
        }
        if !handler.pass_env.is_empty() {
            output::line(format!("  {}: passes {}", handler.name, handler.pass_env.join(", ")))?;
        }
        if let Some(runner) = handler.runner.as_ref().filter(|runner| !runner.is_default()) {
            output::line(format!("  {}: by runner {runner}", handler.name))?;
        }
        if let Some(cwd) = &handler.cwd {
            let cwd = cwd.display().to_string();
            output::line(format!("  {}: in {}", handler.name, output::escape(&cwd)))?;
        }
    }
    output::line("")?;
    let limits = shown.limits.iter().map(limit).collect();
    output::table(&["LIMIT", "VALUE", "DEFAULT", "RANGE", "WHY"], limits, "no limit")
}

fn source(source: &ShownSource) -> Vec<Cell> {
    let secret = |secret: &ShownSecret| format!("{} {}", secret.reference, secret.value);
    let secrets: Vec<String> = source.secrets.iter().map(secret).collect();
    vec![
        Cell::new(&source.name),
        Cell::new(&source.provider),
        outside(&source.path),
        outside(&listed(&secrets)),
        Cell::new(output::size(source.max_body_bytes)),
        Cell::new(source.tolerance.as_deref().unwrap_or("-")),
        outside(source.public_url.as_deref().unwrap_or("-")),
    ]
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

fn handler(handler: &ShownHandler) -> Vec<Cell> {
    let runs = match (&handler.command, &handler.forward) {
        (Some(argv), _) => argv.join(" "),
        (None, target) => format!("forward to {}", target.as_deref().unwrap_or("-")),
    };
    let gives_up = match (handler.max_attempts, &handler.give_up_after) {
        (Some(attempts), _) => format!("after {}", output::count(attempts.into(), "attempt")),
        (None, time) => format!("after {}", time.as_deref().unwrap_or("-")),
    };
    vec![
        Cell::new(&handler.name),
        outside(&listed(&handler.sources)),
        outside(&listed(&handler.events)),
        outside(&runs),
        Cell::new(&handler.timeout),
        Cell::new(handler.grace.as_deref().unwrap_or("-")),
        Cell::new(handler.concurrency),
        Cell::new(gives_up),
        Cell::new(handler.on_unknown.as_str()),
    ]
}

fn limit(limit: &ShownLimit) -> Vec<Cell> {
    let value = Cell::new(&limit.value);
    // What the operator has changed is what is looked for.
    let value = if limit.value == limit.default { value } else { value.fg(Color::Yellow) };
    vec![
        Cell::new(&limit.key),
        value,
        Cell::new(&limit.default),
        Cell::new(format!("{} to {}", limit.least, limit.most)),
        Cell::new(limit.reason),
    ]
}

fn listed(texts: &[String]) -> String {
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}
