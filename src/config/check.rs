//! What only shows when everything is read: whether the parts agree.

use std::time::Duration;

use crate::document::{At, Problems};
use crate::limits::{Limits, Unit};
use crate::model::INTERNAL_SOURCE;
use crate::verify;

use super::handlers::{Action, Handler, Sign};
use super::settings::{KEEP_IDS, LISTEN, METRICS_LISTEN, Settings};
use super::sources::Source;

/// No two sources at one path.
pub(super) fn paths(sources: &[Source], problems: &Problems) {
    for (n, source) in sources.iter().enumerate() {
        let same =
            |other: &&Source| other.path.value == source.path.value && other.name != source.name;
        if let Some(other) = sources[..n].iter().find(same) {
            let message = format!(
                "path '{}' is also that of source '{}' ({})",
                source.path.value,
                other.name,
                other.path.at.position()
            );
            let help = "give each source a path of its own".to_owned();
            problems.push(source.path.at.problem(message, Some(help)));
        }
    }
}

/// What the main file's settings mean for the sources.
pub(super) fn settings(settings: &Settings, sources: &[Source], problems: &Problems) {
    let limits = &settings.limits;
    if let (Some(metrics), Some(at)) = (settings.metrics, settings.places.get(METRICS_LISTEN)) {
        let listen = settings.server.listen;
        if metrics == listen && listen.port() != 0 {
            let message = format!("{listen} is where deliveries come in");
            let help = "metrics have a port of their own, which no proxy passes on";
            problems.push(at.problem(message, Some(help.to_owned())));
        }
    }
    for source in sources {
        let provider = source.scheme.name();
        let resends = source.scheme.resends_for().map(|time| time.as_millis());
        if resends.is_some_and(|resends| resends > u128::from(limits.keep_ids_millis)) {
            let at = settings.places.get(KEEP_IDS).unwrap_or(&source.at);
            let resends = u64::try_from(resends.unwrap_or_default()).unwrap_or(u64::MAX);
            let message = format!(
                "keep_ids ({}) is shorter than provider '{provider}' re-sends events ({})",
                Unit::Millis.show(limits.keep_ids_millis),
                Unit::Millis.show(resends)
            );
            let help = "an event whose id is forgotten runs again when it is re-sent; raise storage.keep_ids";
            problems.push(at.problem(message, Some(help.to_owned())));
        }
        if source.body_limit_bytes > limits.bodies_in_flight_bytes {
            let message = format!(
                "bodies of up to {} do not fit limits.bodies_in_flight_bytes ({})",
                Unit::Bytes.show(source.body_limit_bytes),
                Unit::Bytes.show(limits.bodies_in_flight_bytes)
            );
            let help = "raise that limit, or lower max_body of this source";
            problems.push(source.at.problem(message, Some(help.to_owned())));
        }
        let listen = settings.server.listen;
        if source.takes_anybody() && !listen.ip().is_loopback() {
            let at = settings.places.get(LISTEN).unwrap_or(&source.at);
            let message = format!(
                "source '{}' takes events from anybody, and {listen} is not only this machine",
                source.name
            );
            let help = "listen on 127.0.0.1, or give the source a provider that verifies";
            problems.push(at.problem(message, Some(help.to_owned())));
        }
    }
}

/// Each source of a forward that signs anew has a scheme that can, and a secret to do it with.
pub(super) fn signing(sources: &[Source], handlers: &[Handler], problems: &Problems) {
    for handler in handlers {
        let Action::Forward(forward) = &handler.action else { continue };
        let Some(sign) = forward.sign.as_ref().filter(|sign| sign.value != Sign::No) else {
            continue;
        };
        for name in &handler.sources {
            let source = sources.iter().find(|source| source.name.as_str() == name.value);
            let wrong = match source {
                None if name.value == INTERNAL_SOURCE => Err((
                    format!("source '{INTERNAL_SOURCE}' signs nothing"),
                    "remove sign, or give the sources that sign a handler of their own".to_owned(),
                )),
                None => Ok(()),
                Some(source)
                    if sign.value == Sign::Source
                        && source.secrets.is_empty()
                        && !source.scheme.is_unsigned() =>
                {
                    Err((
                        format!("source '{}' has secrets of its callers only", source.name),
                        "name the endpoint's: sign = \"file:/path\"".to_owned(),
                    ))
                }
                Some(source) => verify::can_resign(&source.scheme),
            };
            if let Err((message, help)) = wrong {
                problems.push(sign.at.problem(message, Some(help)));
            }
        }
    }
}

/// Each source that answers has the one handler whose answers they are, and times that can be kept.
pub(super) fn replies(
    settings: &Settings,
    sources: &[Source],
    handlers: &[Handler],
    problems: &Problems,
) {
    let push = |at: &At, message: String, help: &str| {
        problems.push(at.problem(message, Some(help.to_owned())));
    };
    let millis =
        |time: Duration| Unit::Millis.show(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    for (source, replies) in sources.iter().filter_map(|own| Some((own, own.replies.as_ref()?))) {
        let takes = |handler: &&Handler| {
            handler.sources.iter().any(|own| own.value == source.name.as_str())
        };
        match handlers.iter().filter(takes).collect::<Vec<_>>()[..] {
            [_] => {}
            [] => push(
                &replies.at,
                "no handler answers".to_owned(),
                "add the one handler with this source that does",
            ),
            [first, second, ..] => push(
                &replies.at,
                format!("handlers '{}' and '{}' would both answer", first.name, second.name),
                "give this source one handler; what else is to happen can be done by that",
            ),
        }
        if let Some(deadline) = source.scheme.deadline().filter(|it| replies.wait.value >= *it) {
            push(
                &replies.wait.at,
                format!(
                    "reply_wait ({}) is not shorter than provider '{}' waits for an answer ({})",
                    millis(replies.wait.value),
                    source.scheme.name(),
                    millis(deadline)
                ),
                "a repeat that waits so long is never told anything; lower it",
            );
        }
        let payloads = Limits::duration(settings.limits.keep_payloads_millis);
        if replies.keep.value > payloads {
            push(
                &replies.keep.at,
                format!(
                    "keep_answers ({}) is longer than storage.keep_payloads ({})",
                    millis(replies.keep.value),
                    millis(payloads)
                ),
                "lower it, or raise storage.keep_payloads",
            );
        }
        let proxies = &settings.server.trusted_proxies;
        if let Some(header) = replies.certificate_header.as_ref().filter(|_| proxies.is_empty()) {
            push(
                &header.at,
                format!("whoever reaches the port can send {}", header.value),
                "add server.trusted_proxies, the proxies that check certificates and set it",
            );
        }
    }
}
