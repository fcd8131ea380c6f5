//! `hooklatch providers show`: how to set a provider up, and what its guarantees are worth.

use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use serde_json::json;

use crate::cli::ProvidersShow;
use crate::config;
use crate::exit::{Exit, Failure};
use crate::http;
use crate::limits::Limits;
use crate::model::config_option;
use crate::provider::Scheme;

use super::super::init::{reference, stanza, steps};
use super::super::output;
use super::{list, worth};

/// Prints the steps at the provider, the stanza, and the guarantees.
pub(super) fn run(args: &ProvidersShow) -> Result<Exit, Failure> {
    let (main, name) = (args.options.config(), &args.name);
    let scheme = config::provider(main, name.as_str());
    let scheme = scheme.map_err(|why| Exit::NotFound.failure(why))?;
    let own = Scheme::embedded(name.as_str()).as_ref() != Some(&*scheme);
    let (proof, setup) = (scheme.proof(), scheme.setup());
    let path = format!("/hooks/{name}");
    let base = match proof.is_absent() && !proof.needs_certificates() {
        true => "http://ADDRESS:PORT",
        false => "https://YOUR-HOST",
    };
    let in_public = proof.published_keys.is_some();
    let folder = if in_public { "keys" } else { "secrets" };
    let secret_file = Path::new(folder).join(name.as_str());
    let secret = (!proof.is_absent()).then(|| format!("the line in {}", secret_file.display()));
    let fields = steps::fields(
        &scheme,
        &http::public_url(base, &path, None),
        secret.as_deref(),
        "the text of verify_token",
    );
    let public_url = proof.covers_url().then_some(base);
    let reference = if in_public { "file:keys/" } else { reference(main) };
    let stanza = stanza(name, &scheme, &path, public_url, reference);
    let sentences = worth::sentences(&scheme, keep_ids(main));
    let report = json!({
        "provider": list::facts(&scheme, own),
        "page": setup.page,
        "fields": steps::json(&fields),
        "secret_from": setup.secret_from,
        "stanza": stanza,
        "guarantees": sentences.iter().map(|(about, text)| json!({ "about": about, "text": text }))
            .collect::<Vec<_>>(),
    });
    output::either(&args.options.format, &report, || {
        let bold = Style::new().bold();
        let title = output::escape(&setup.title);
        output::verbatim(format_args!("{bold}{name}{bold:#}: {title}"))?;
        steps::print(&scheme, &fields, &secret_file)?;
        let public = public_url.map_or(String::new(), |url| format!(" --public-url {url}"));
        let init = format!("hooklatch init --source {name}{public}{}", config_option(main));
        output::line(format!("\nPaste into conf.d/{name}.toml, or let this write it: {init}\n"))?;
        output::verbatim(stanza.trim_end())?;
        output::verbatim(format_args!("\n{bold}What its guarantees are worth{bold:#}\n"))?;
        sentences.iter().try_for_each(|(about, text)| output::fact(about, output::escape(text)))
    })
}

/// How long the configuration at `main` remembers ids; the default if it cannot be read.
fn keep_ids(main: &Path) -> Duration {
    let config = config::load(main);
    let limits = config.map_or_else(|_| Limits::default(), |config| config.limits().clone());
    Duration::from_millis(limits.keep_ids_millis)
}
