//! The parts that a configuration defines: made for a start and for each reload.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::admin::ListenerInfo;
use crate::config::{Config, Resolved};
use crate::dispatcher::Worker;
use crate::document::Problem;
use crate::http;
use crate::store::postgres::PublishedHandler;
use crate::verify::Signer;

pub(super) struct Plan {
    pub(super) sources: http::Sources,
    pub(super) workers: Vec<Worker>,
    pub(super) published: Vec<PublishedHandler>,
    /// What the admin API reports of the sources, and their signers for test deliveries.
    pub(super) listeners: ListenerInfo,
}

impl Plan {
    /// Builds the parts, and logs the configuration's warnings. An `Err` has the problems.
    pub(super) fn new(
        config: &Config,
        resolved: Resolved,
        addresses: &[SocketAddr],
    ) -> Result<Self, Vec<Problem>> {
        let Resolved { sources, workers, published, warnings, .. } = resolved;
        for unwise in config.warnings().iter().chain(&warnings) {
            tracing::warn!("{unwise}");
        }
        let signer = |source: &http::Source| {
            let signer =
                Signer::new(Arc::clone(&source.scheme), source.keys.first().cloned(), None);
            (source.name.clone(), signer)
        };
        // Without a secret they can prove no delivery.
        let is_mute =
            |source: &&http::Source| source.keys.is_empty() && !source.scheme.proof().is_absent();
        let listeners = ListenerInfo {
            addresses: addresses.to_vec(),
            signers: sources.iter().map(signer).collect(),
            without_secret: sources
                .iter()
                .filter(is_mute)
                .map(|source| source.name.clone())
                .collect(),
            configuration: config.digest().to_string(),
        };
        let sources = http::Sources::new(sources, config.server().trusted_proxies.clone());
        Ok(Plan { sources, workers, published, listeners })
    }
}
