//! Receives deliveries. (STAND-IN: only the structs that the configuration produces.)

use std::sync::Arc;
use std::time::Duration;

use crate::model::Name;
use crate::pattern::Pattern;
use crate::provider::Scheme;
use crate::verify::Key;

/// Paths that belong to the receiver itself, so that no source can have them.
pub const RESERVED_PATHS: &[&str] = &["/healthz", "/readyz"];

/// A configured inbound endpoint.
pub struct Source {
    /// Its name.
    pub name: Name,
    /// The path it is reached at.
    pub path: String,
    /// How its provider signs.
    pub scheme: Arc<Scheme>,
    /// Its secrets; any of them may match.
    pub keys: Vec<Key>,
    /// The URL the provider was given, for schemes that sign it.
    pub public_url: Option<String>,
    /// The largest body.
    pub body_limit_bytes: u64,
    /// How long a commit is waited for.
    pub accept_wait: Duration,
    /// Whether requests that came through a proxy are refused.
    pub refuse_proxied: bool,
    /// The handlers and what they want.
    pub routes: Vec<Route>,
}

/// What a handler wants of a source.
pub struct Route {
    /// Which handler.
    pub handler: Name,
    /// The types it wants.
    pub patterns: Vec<Pattern>,
}
