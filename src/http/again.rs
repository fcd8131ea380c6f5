//! Judges a kept delivery as the front door would have, had it known then what it knows now.

use std::collections::HashMap;
use std::sync::Arc;

use super::receive::public_url;
use super::{Source, Sources};
use crate::model::Name;
use crate::store::{Accept, Judge, Kept, NO_SUCH_SOURCE};
use crate::verify;

impl Sources {
    /// Verifies a kept delivery with these sources' schemes, secrets and routes, at the time it arrived.
    pub fn judge(&self) -> Judge {
        let by_name: HashMap<Name, Arc<Source>> =
            self.by_path.values().map(|source| (source.name.clone(), Arc::clone(source))).collect();
        Arc::new(move |kept| match by_name.get(&kept.source) {
            Some(source) => again(source, kept),
            None => Err(NO_SUCH_SOURCE),
        })
    }
}

fn again(source: &Source, kept: Kept) -> Result<Accept, &'static str> {
    let Kept { received_at, path, headers, body, .. } = kept;
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path.as_str(), None),
    };
    let configured = source.public_url.as_deref().filter(|_| source.scheme.signs_url());
    let url = configured.map(|configured| public_url(configured, path, query));
    // A source takes nothing but POST.
    let request = verify::Request { method: "POST", url: url.as_deref(), headers: &headers, body };
    let delivery = verify::verify(&source.scheme, &source.keys, request, received_at)
        .map_err(|rejection| rejection.reason)?;
    Ok(Accept {
        source: source.name.clone(),
        received_at,
        handlers: source.handlers(delivery.event_type().as_str()),
        delivery,
        on_redelivery: source.on_redelivery,
    })
}
