//! Sources: where each is reached, its last word, when each secret last matched, and how to set it up.

use crate::admin::ListSecrets;
use crate::cmd::init::steps;
use crate::cmd::status::SourceLine;
use crate::http::public_url;
use crate::store::SecretUse;

use super::super::parts::*;
use super::super::view::View;

pub(super) async fn show(view: &mut View<'_>) -> Result<Markup, Failure> {
    view.at("/sources", "Sources");
    let secrets = view.ask(ListSecrets {}).await?.secrets;
    Ok(html! {
        (view.head(""))
        div.stack {
            @for line in &view.screen.sources { (one(view, line, &secrets)) }
            @if view.screen.sources.is_empty() {
                p.card.empty { "No source is configured. " code { (view.app.command("init --source github")) } }
            }
        }
    })
}

fn one(view: &View<'_>, line: &SourceLine, secrets: &[SecretUse]) -> Markup {
    let (name, now) = (&line.source, view.screen.now);
    let own = view.config.source(name);
    let provider = own.map(|own| own.scheme.name());
    let refused = line.refusing();
    let matched = |reference: &str| {
        let used = secrets.iter().find(|one| one.source == *name && one.reference == reference);
        used.map(|used| used.last_matched_at)
    };
    let of = [("source", name.as_str())];
    let steps = own.map(|own| {
        let base = own.public_url.as_deref().unwrap_or("https://YOUR-HOST");
        let url = public_url(base, &own.path.value, None);
        steps::fields(&own.scheme, &url, Some("its secret"), "the text of verify_token")
    });
    html! {
        section.card id=(name) aria-label=(name) data-part={"source-" (name)} {
            header {
                h2 { (source(name)) }
                @if let Some(provider) = provider { span.small { "provider " (provider) } }
                @if refused.is_some() { span.tag.bad { "refused" } }
                @if !line.served { span.tag.warn { "not served" } }
                span.end.btns {
                    @if line.quarantined > 0 { a.btn.small href=(link("/quarantine", of)) { (thousands(line.quarantined)) " kept" } }
                    a.btn.small.quiet href=(link("/events", of)) { "Events" }
                    @if line.served && view.app.login.is_linked() { (change(&link("/change/test", of), "quiet", "in", "Send a test…")) }
                }
            }
            dl.kv.pad {
                dt { "Path" } dd { code { (line.path.as_deref().unwrap_or("not configured any more")) } }
                dt { "Last good" }
                dd { @if let Some(at) = line.last_good_at { (time(at, now)) " · " (age(at, now)) " ago" } @else { "none yet" } }
                @if let Some(failed) = &line.last_failure {
                    dt { "Last refused" } dd { (time(failed.at, now)) ": " (shown(&failed.reason)) }
                }
                @if let Some(refused) = &refused { dt { "Now" } dd { (sentence_case(refused)) } }
                dt { "Since the start" }
                dd.num {
                    (thousands(line.accepted)) " accepted · " (thousands(line.duplicates)) " repeated · " (thousands(line.refused)) " refused"
                    @if line.handshakes > 0 { " · " (thousands(line.handshakes)) " challenges answered" }
                    @if line.too_large > 0 { " · " (thousands(line.too_large)) " too large (" code { "max_body" } ")" }
                }
                @for secret in own.iter().flat_map(|own| &own.secrets) {
                    @let reference = secret.value.to_string();
                    dt { "Secret" }
                    dd {
                        code { (reference) } " "
                        @match matched(&reference) {
                            Some(at) => { "last matched " (age(at, now)) " ago" }
                            None => { "has not matched yet" }
                        }
                    }
                }
                @if let Some(own) = own {
                    dt { "At the provider" }
                    dd { details id={"steps-" (name)} {
                        summary { (shown(own.scheme.setup().page.as_deref().unwrap_or("Set-up steps"))) }
                        ul { @for (field, value) in steps.iter().flatten() { li { (shown(field)) ": " code { (shown(value)) } } } }
                        code { (view.app.command(&format!("providers show {}", own.scheme.name()))) } " says what its signature is worth."
                    } }
                }
            }
        }
    }
}
