//! Sources: where each is reached, its last word, when each secret last matched, and how to set it up.

use crate::admin::ListSecrets;
use crate::cmd::init::steps;
use crate::cmd::status::{SourceLine, source_lines};
use crate::http::public_url;
use crate::store::SecretUse;

use super::super::{parts::*, view::View};

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
    let name = &line.source;
    let own = view.config.source(name);
    let of = [("source", name.as_str())];
    html! { section.card id=(name) aria-label=(name) data-part={"source-" (name)} {
        header {
            h2 { (source(name)) }
            @if let Some(own) = own { span.small { "provider " (own.scheme.name()) } }
            @if line.refusing().is_some() { span.tag.bad { "refused" } }
            @if !line.served { span.tag.warn { "not served" } }
            span.end.btns {
                @if line.quarantined > 0 { a.btn.small href=(link("/quarantine", of)) {
                    (thousands(line.quarantined)) " kept"
                } }
                a.btn.small.quiet href=(link("/events", of)) { "Events" }
                @if line.served && view.app.login.is_linked() {
                    (change(&link("/change/test", of), "quiet", "in", "Send a test…"))
                }
            }
        }
        dl.kv.pad {
            dt { "Deliveries" }
            dd.num { @for line in &source_lines(line, &view.screen) { div { (shown(line)) } } }
            @for secret in own.iter().flat_map(|own| &own.secrets) {
                @let reference = secret.value.to_string();
                @let is_it = |one: &&SecretUse| one.source == *name && one.reference == reference;
                dt { "Secret" }
                dd { code { (reference) } " " @match secrets.iter().find(is_it) {
                    Some(used) => { "last matched " (age(used.last_matched_at, view.screen.now)) " ago" }
                    None => { "has not matched yet" }
                } }
            }
            @if let Some(own) = own {
                @let base = own.public_url.as_deref().unwrap_or("https://YOUR-HOST");
                @let url = public_url(base, &own.path.value, None);
                @let (secret, token) = (Some("its secret"), "the text of verify_token");
                dt { "At the provider" }
                dd { details id={"steps-" (name)} {
                    summary { (shown(own.scheme.setup().page.as_deref().unwrap_or("Set-up steps"))) }
                    ul { @for (field, value) in steps::fields(&own.scheme, &url, secret, token) {
                        li { (shown(&field)) ": " code { (shown(&value)) } }
                    } }
                    code { (view.app.command(&format!("providers show {}", own.scheme.name()))) }
                    " says what its signature is worth."
                } }
            }
        }
    } }
}
