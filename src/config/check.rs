//! Checks that need the whole configuration.

use crate::document::{Problems, nearest};
use crate::limits::{Limits, Unit};
use crate::model::{INTERNAL_SOURCE, Repeats};
use crate::payload::Place;
use crate::verify;

use super::handlers::{Action, Handler, Sign};
use super::read::millis;
use super::settings::{KEEP_IDS, LISTEN, METRICS_LISTEN, Settings};
use super::shown::duration_text;
use super::sources::Source;

/// Checks that no two sources have one path.
pub(super) fn paths(sources: &[Source], problems: &Problems) {
    for (n, source) in sources.iter().enumerate() {
        let path = &source.path;
        let same = |other: &&Source| other.path == *path && other.name != source.name;
        if let Some(other) = sources[..n].iter().find(same) {
            let (name, at) = (&other.name, &other.path.at);
            let message = format!("path '{}' is also that of source '{name}' ({at})", path.value);
            problems.reject(&path.at, message, "give each source a path of its own");
        }
    }
}

/// Checks that the main file's settings suit the sources.
pub(super) fn settings(settings: &Settings, sources: &[Source], problems: &Problems) {
    let limits = &settings.limits;
    let listen = settings.server.listen;
    if let Some(at) = settings.places.get(METRICS_LISTEN)
        && settings.metrics == Some(listen)
        && listen.port() != 0
    {
        let help = "give metrics their own port, which no proxy passes on";
        problems.reject(at, format!("{listen} is where deliveries come in"), help);
    }
    for source in sources {
        let provider = source.scheme.name();
        if let Some(resends) = source.scheme.setup().delivery.resends_for()
            && millis(resends) > limits.keep_ids_millis
        {
            let at = settings.places.get(KEEP_IDS).unwrap_or(&source.at);
            let (kept, resends) =
                (Unit::Millis.show(limits.keep_ids_millis), duration_text(resends));
            let message = format!(
                "keep_ids ({kept}) is shorter than provider '{provider}' re-sends events ({resends})"
            );
            let help = "an event whose id is forgotten runs again when it is re-sent; raise storage.keep_ids";
            problems.reject(at, message, help);
        }
        if let Repeats::Window(window) = source.scheme.identity().repeats
            && millis(window) > limits.keep_ids_millis
        {
            let at = settings.places.get(KEEP_IDS).unwrap_or(&source.at);
            let (kept, window) = (Unit::Millis.show(limits.keep_ids_millis), duration_text(window));
            let message = format!(
                "keep_ids ({kept}) is shorter than the window of repeats at source '{}' ({window})",
                source.name
            );
            problems.reject(at, message, "raise storage.keep_ids, or shorten repeats");
        }
        let proof = source.scheme.proof();
        let both = proof.tolerance().zip(proof.tolerance_ahead()).map(|(past, ahead)| past + ahead);
        if let Some(both) = both.filter(|both| millis(*both) > limits.keep_ids_millis) {
            let at = settings.places.get(KEEP_IDS).unwrap_or(&source.at);
            let (kept, both) = (Unit::Millis.show(limits.keep_ids_millis), duration_text(both));
            let message = format!(
                "keep_ids ({kept}) is shorter than a signed time of source '{}' is good for ({both})",
                source.name
            );
            let help =
                "a captured request whose id is forgotten would run again; raise storage.keep_ids";
            problems.reject(at, message, help);
        }
        let bodies = [source.body_limit_bytes, limits.bodies_in_flight_bytes];
        if bodies[0] > bodies[1] {
            let [one, all] = bodies.map(|bytes| Unit::Bytes.show(bytes));
            let message =
                format!("bodies of up to {one} do not fit limits.bodies_in_flight_bytes ({all})");
            let help = "raise that limit, or lower max_body of this source";
            problems.reject(&source.at, message, help);
        }
        if source.takes_anybody() && !listen.ip().is_loopback() {
            let name = &source.name;
            problems.reject(
                settings.places.get(LISTEN).unwrap_or(&source.at),
                format!("source '{name}' takes events from anybody, and {listen} is not only this machine"),
                "listen on 127.0.0.1, or give the source a provider that verifies",
            );
        }
    }
}

/// Checks that a source of each handler keeps the headers that its condition, its key and its values name, and that no
/// parameter that they name is a secret.
pub(super) fn headers(sources: &[Source], handlers: &[Handler], problems: &Problems) {
    for handler in handlers {
        let own = || sources.iter().filter(|source| handler.takes(&source.name));
        let kept = own().flat_map(|source| &source.scheme.identity().kept_headers);
        let kept: Vec<&str> = kept.map(String::as_str).collect();
        for (place, at) in handler.all_places() {
            if let Place::Query(name) = place
                && let Some(source) = own()
                    .find(|source| source.scheme.proof().parameters().any(|secret| secret == name))
            {
                let message = format!(
                    "the parameter '{name}' carries the secret of source '{}', which is not stored",
                    source.name
                );
                problems.reject(at, message, "name another parameter");
            }
            let Place::Header(name) = place else { continue };
            if kept.iter().any(|kept| kept.eq_ignore_ascii_case(name)) {
                continue;
            }
            let help = match nearest(name, kept.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => "add it to keep_headers in the provider's file".to_owned(),
            };
            let message = format!("no source of this handler keeps the header '{name}'");
            problems.reject(at, message, help);
        }
    }
}

/// Checks that each source of a forward that signs anew has a scheme and a secret for that.
pub(super) fn signing(sources: &[Source], handlers: &[Handler], problems: &Problems) {
    for handler in handlers {
        let Action::Forward(forward) = &handler.action else { continue };
        let Some(sign) = forward.sign.as_ref().filter(|sign| sign.value != Sign::No) else {
            continue;
        };
        for name in &handler.sources {
            let Some(source) = sources.iter().find(|source| source.name.as_str() == name.value)
            else {
                if name.value == INTERNAL_SOURCE {
                    problems.reject(
                        &sign.at,
                        format!("source '{INTERNAL_SOURCE}' signs nothing"),
                        "remove sign, or give the sources that sign a handler of their own",
                    );
                }
                continue;
            };
            let has_own = !source.secrets.is_empty() || source.scheme.proof().is_absent();
            if sign.value == Sign::Source && !has_own {
                let message = format!("source '{}' has secrets of its callers only", source.name);
                problems.reject(&sign.at, message, "name the endpoint's: sign = \"file:/path\"");
            } else if let Err((message, help)) = verify::can_resign(&source.scheme) {
                problems.reject(&sign.at, message, help);
            }
        }
    }
}

/// Checks that each source that answers has one handler and feasible times.
pub(super) fn replies(
    settings: &Settings,
    sources: &[Source],
    handlers: &[Handler],
    problems: &Problems,
) {
    for source in sources {
        let Some(replies) = &source.replies else { continue };
        let takes = |handler: &&Handler| handler.takes(&source.name);
        match handlers.iter().filter(takes).collect::<Vec<_>>()[..] {
            [_] => {}
            [] => {
                let help = "add the one handler with this source that does";
                problems.reject(&replies.at, "no handler answers", help);
            }
            [Handler { name: first, .. }, Handler { name: second, .. }, ..] => {
                let message = format!("handlers '{first}' and '{second}' would both answer");
                let help =
                    "give this source one handler; what else is to happen can be done by that";
                problems.reject(&replies.at, message, help);
            }
        }
        if let Some(deadline) = source.scheme.setup().delivery.deadline
            && replies.wait.value >= deadline
        {
            let [wait, deadline] = [replies.wait.value, deadline].map(duration_text);
            let provider = source.scheme.name();
            let message = format!(
                "reply_wait ({wait}) is not shorter than provider '{provider}' waits for an answer ({deadline})"
            );
            let help = "a repeat that waits so long gets no answer; lower it";
            problems.reject(&replies.wait.at, message, help);
        }
        let payloads = Limits::duration(settings.limits.keep_payloads_millis);
        if replies.keep.value > payloads {
            let [keep, payloads] = [replies.keep.value, payloads].map(duration_text);
            let message =
                format!("keep_answers ({keep}) is longer than storage.keep_payloads ({payloads})");
            problems.reject(&replies.keep.at, message, "lower it, or raise storage.keep_payloads");
        }
        if let Some(header) = &replies.certificate_header
            && settings.server.trusted_proxies.is_empty()
        {
            problems.reject(
                &header.at,
                format!("every client that reaches the port can send {}", header.value),
                "add server.trusted_proxies, the proxies that check certificates and set it",
            );
        }
    }
}
