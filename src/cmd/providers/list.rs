//! The table of the providers that a source can name.

use anstyle::AnsiColor;
use serde_json::{Value, json};

use crate::cli::Providers;
use crate::config;
use crate::exit::{Exit, Failure};
use crate::provider::{Resends, Scheme};

use super::super::output::{self, Cell, below, painted, short_span, whole, words_of};

/// Prints those with the text in their name or title.
pub(super) fn run(args: &Providers) -> Result<Exit, Failure> {
    let (mut known, problems) = config::providers(args.options.config());
    for problem in problems {
        output::said("warning", AnsiColor::Yellow.on_default(), &problem.to_string());
    }
    if let Some(text) = &args.text {
        let text = text.to_lowercase();
        let has = |field: &str| field.to_lowercase().contains(&text);
        known.retain(|(scheme, _)| has(scheme.name()) || has(&scheme.setup().title));
        if known.is_empty() {
            let message = format!("no provider has '{text}' in its name or title");
            return Err(Exit::No.failure(message).help(Scheme::help(&text, [])));
        }
    }
    let facts: Vec<Value> = known.iter().map(|(scheme, own)| facts(scheme, *own)).collect();
    output::either(&args.options.format, &facts, || {
        let rows = known.iter().map(|(scheme, own)| row(scheme, *own)).collect();
        output::listing(rows, false, "no providers")
    })
}

fn row(scheme: &Scheme, own: bool) -> Vec<Cell> {
    let setup = scheme.setup();
    let unverified = setup.facts.unverified().join(", ");
    let title = match own {
        true => painted(format_args!("{} (own file)", setup.title), AnsiColor::Cyan),
        false if unverified.is_empty() => setup.title.as_str().into(),
        false => format!("{} (unverified: {unverified})", setup.title).into(),
    };
    let id = match (scheme.identity().id_is_digest(), scheme.proof().covers_id()) {
        (true, true) => "digest".into(),
        (false, true) => painted("signed", AnsiColor::Green),
        (true, false) => painted("digest, not signed", AnsiColor::Yellow),
        (false, false) => painted("not signed", AnsiColor::Yellow),
    };
    let resends = match setup.delivery.resends {
        Some(Resends::For(time)) => short_span(time),
        Some(Resends::Never) => "never".to_owned(),
        None => "-".to_owned(),
    };
    vec![
        whole("NAME", scheme.name()),
        words_of("PROOF", scheme.proof().summary()),
        words_of("ID", id),
        whole("RE-SENDS", resends),
        words_of("HANDSHAKE", scheme.challenge().summary()),
        below("TITLE", title),
    ]
}

/// What a program gets of a provider.
pub(super) fn facts(scheme: &Scheme, own: bool) -> Value {
    let (proof, identity, setup) = (scheme.proof(), scheme.identity(), scheme.setup());
    json!({
        "name": scheme.name(),
        "title": setup.title,
        "own": own,
        "proof": proof.summary(),
        "forms": 1 + scheme.alternatives().len(),
        "id": identity.id_summary(),
        "id_signed": proof.covers_id(),
        "id_is_digest": identity.id_is_digest(),
        "guard": identity.guard.as_str(),
        "tolerance_s": proof.tolerance().map(|time| time.as_secs()),
        "resends_for_s": setup.delivery.resends_for().map(|time| time.as_secs()),
        "deadline_s": setup.delivery.deadline.map(|time| time.as_secs_f64()),
        "handshake": Some(scheme.challenge().summary()).filter(|text| *text != "-"),
        "facts": setup.facts,
        "docs": setup.docs,
    })
}
