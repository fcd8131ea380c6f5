//! The whole configuration as it is written, with the defaults for what is not written.

use std::net::SocketAddr;

use serde::Serialize;

use crate::document::Problem;
use crate::limits::Limits;
use crate::model::Name;
use crate::store;

use super::handlers::Handler;
use super::settings::{Server, Settings};
use super::sources::Source;

/// A checked configuration. Secrets are references.
#[derive(Serialize)]
pub struct Config {
    /// The main file, as messages name it.
    #[serde(skip)]
    pub(super) file: String,
    #[serde(flatten)]
    pub(super) settings: Settings,
    pub(crate) sources: Vec<Source>,
    pub(crate) handlers: Vec<Handler>,
    #[serde(skip)]
    pub(super) warnings: Vec<Problem>,
    #[serde(skip)]
    pub(super) mistakes: Vec<Problem>,
}

impl Config {
    /// The mistakes in the files: nothing after [`load`](super::load()). Where there is something, sources, handlers
    /// and limits may be missing or at their defaults; the store's path never is ([`load_in_part`](super::load_in_part)).
    pub fn mistakes(&self) -> &[Problem] {
        &self.mistakes
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn server(&self) -> &Server {
        &self.settings.server
    }

    /// Where metrics are read, if anywhere.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.settings.metrics
    }

    pub fn store(&self) -> store::Settings {
        store::Settings {
            path: self.settings.store_path.clone(),
            limits: self.settings.limits.clone(),
        }
    }

    pub fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    pub(crate) fn source(&self, name: &Name) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == *name)
    }

    pub(crate) fn handler(&self, name: &Name) -> Option<&Handler> {
        self.handlers.iter().find(|handler| handler.name == *name)
    }
}
