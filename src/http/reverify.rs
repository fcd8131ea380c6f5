//! Verifies a quarantined delivery again, with the configuration of today.

use std::collections::HashMap;
use std::slice;
use std::sync::Arc;

use super::source::{Source, Sources};
use crate::model::Name;
use crate::store::{Accept, NO_SUCH_SOURCE, QuarantinedDelivery, Reverifier};
use crate::verify::{self, Genuine, HANDSHAKE};

impl Sources {
    /// Verifies a kept delivery with the schemes, secrets and routes of these sources, as of its arrival.
    pub fn judge(&self) -> Reverifier {
        let by_name: HashMap<Name, Arc<Source>> =
            self.all.iter().map(|source| (source.name.clone(), Arc::clone(source))).collect();
        Arc::new(move |kept: QuarantinedDelivery, keys: Option<&str>| {
            let source = by_name.get(&kept.source).ok_or(NO_SUCH_SOURCE)?;
            reverify(source, kept, keys)
        })
    }
}

/// The source now returns its handler's answer, so the handler runs only for requests whose caller waits.
const NOBODY_WAITS: &str = "nobody_waits";

fn reverify(
    source: &Source,
    kept: QuarantinedDelivery,
    keys: Option<&str>,
) -> Result<Vec<Accept>, &'static str> {
    if source.reply.is_some() {
        return Err(NOBODY_WAITS);
    }
    let published = keys.map(|text| published(source, text)).transpose()?;
    let keys = published.as_ref().map_or(&source.keys[..], slice::from_ref);
    let QuarantinedDelivery { id, received_at, path, headers, body, .. } = kept;
    // The id is stable, so that a second acceptance is a duplicate.
    let own_id = format!("kept-{}-{id}", received_at.0);
    let (path, query) =
        path.split_once('?').map_or((&*path, None), |(path, query)| (path, Some(query)));
    let url = source.signed_url(path, query);
    // Only POST is signed.
    let request = verify::Request { method: "POST", url: url.as_deref(), headers: &headers, body };
    match source.verify(keys, request, received_at, Some(&own_id)) {
        Ok(Genuine::Event(events, _)) => Ok(events.into_iter().map(|(accept, _)| accept).collect()),
        Ok(Genuine::Challenge(_)) => Err(HANDSHAKE),
        Err(rejection) => Err(rejection.reason),
    }
}

/// Public keys that somebody gives in place of the source's. Of a secret nobody learns in this way whether it is right.
fn published(source: &Source, text: &str) -> Result<verify::Key, &'static str> {
    let are_published = source.scheme.proof().published_keys.is_some();
    let key = verify::key(&source.scheme, "published", text).ok().filter(|_| are_published);
    key.ok_or("bad_signature")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::model::{Headers, OnRedelivery, Timestamp};
    use crate::pattern::Pattern;
    use crate::provider::Scheme;
    use crate::routing::{Route, Routes};
    use crate::store::NewJob;
    use crate::verify::Draft;

    const START: Timestamp = Timestamp(1_767_225_600_000);

    fn sources(secret: &str) -> Sources {
        let scheme = Arc::new(Scheme::embedded("stripe").unwrap());
        let route = |handler: &str, pattern| {
            Route::new(handler.parse().unwrap(), vec![Pattern::new(pattern, false)])
        };
        let source = Source {
            name: "shop".parse().unwrap(),
            path: "/shop".to_owned(),
            keys: vec![verify::key(&scheme, "test", secret).unwrap()],
            scheme,
            verify_token: None,
            methods: vec!["POST"],
            public_url: None,
            body_limit_bytes: 1024,
            accept_wait: Duration::ZERO,
            refuse_proxied: false,
            on_redelivery: OnRedelivery::ReplayDead,
            reply: None,
            routes: Arc::new(Routes {
                source: "shop".parse().unwrap(),
                form_field: None,
                inflated_bytes: 1024,
                kept_bytes: 1024,
                routes: vec![route("wants", "invoice.*"), route("does-not", "charge.*")],
            }),
        };
        Sources::new([source], Vec::new())
    }

    /// Signed at [`START`] with `secret`, and kept since `received_at`.
    fn kept(source: &str, secret: &str, received_at: Timestamp) -> QuarantinedDelivery {
        let scheme = Scheme::embedded("stripe").unwrap();
        let key = verify::key(&scheme, "test", secret).unwrap();
        let body = Bytes::from_static(br#"{"id":"evt_1","object":"event","type":"invoice.paid"}"#);
        let draft = Draft {
            method: "POST",
            url: None,
            id: "evt_1",
            event_type: "invoice.paid",
            headers: Headers::new(),
            body: body.clone(),
        };
        let headers = verify::sign(&scheme, Some(&key), &draft, START).unwrap();
        let headers = verify::evidence(&scheme, &headers);
        let (source, path) = (source.parse().unwrap(), "/shop".to_owned());
        QuarantinedDelivery { id: 1, source, received_at, path, headers, body }
    }

    #[test]
    fn a_kept_delivery_is_verified_with_todays_secret_as_of_its_arrival() {
        let judge = sources("right").judge();
        let soon = START.after(Duration::from_secs(60));
        let judge = |kept| judge(kept, None);
        let accept = judge(kept("shop", "right", soon)).unwrap().remove(0);
        assert_eq!((accept.received_at, accept.delivery.event_id().as_str()), (soon, "evt_1"));
        assert_eq!(accept.jobs, [NewJob::of("wants".parse().unwrap())]);
        assert_eq!(accept.on_redelivery, OnRedelivery::ReplayDead);
        let late = START.after(Duration::from_secs(600));
        assert_eq!(judge(kept("shop", "right", late)).unwrap_err(), "stale_timestamp");
        assert_eq!(judge(kept("shop", "forged", soon)).unwrap_err(), "bad_signature");
        assert_eq!(judge(kept("gone", "right", soon)).unwrap_err(), NO_SUCH_SOURCE);
    }

    #[test]
    fn nobody_can_try_a_secret_on_a_kept_delivery() {
        let judge = sources("forgotten").judge();
        let tried = judge(kept("shop", "right", START), Some("right"));
        assert_eq!(tried.unwrap_err(), "bad_signature");
    }

    #[test]
    fn a_kept_challenge_never_becomes_an_event() {
        let text = "name = \"own\"\nlike = \"stripe\"\n[[handshake]]\nwhere = { \"json:/type\" = \"invoice.paid\" }\nproof = \"signature\"\n";
        let scheme = Scheme::parse("own", text, &crate::document::Problems::new()).unwrap();
        let mut sources = sources("right");
        Arc::get_mut(&mut sources.all[0]).unwrap().scheme = Arc::new(scheme);
        assert_eq!(sources.judge()(kept("shop", "right", START), None).unwrap_err(), HANDSHAKE);
    }
}
