//! Which events a handler takes, for the operator's commands.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::document::Value;
use crate::model::{INTERNAL_SOURCE, Name, config_option};
use crate::pattern::Pattern;
use crate::payload::Place;
use crate::provider::Scheme;
use crate::routing::{Route, Router, Routes};
use crate::store::{EventMatcher, NoticeSubscribers};

use super::configuration::Config;
use super::handlers::Handler;
use super::sources::Source;

/// `job` alone means `job.dead` and `job.held`, as `pull_request` does of GitHub's types.
pub(super) const INTERNAL_TWO_LEVELS: bool = true;

impl Handler {
    /// The internal source's name, if this handler takes its events.
    pub(super) fn takes_internal(&self) -> Option<Name> {
        let own = self.sources.iter().find(|source| source.value == INTERNAL_SOURCE)?;
        own.value.parse().ok()
    }
}

impl Config {
    /// The provider of `source`; `None` if the source is unknown.
    pub fn scheme_of(&self, source: &Name) -> Option<&Scheme> {
        self.source(source).map(|source| &*source.scheme)
    }

    /// Whether types of this source have two levels.
    pub fn two_levels(&self, source: &Name) -> bool {
        let own = source.as_str() == INTERNAL_SOURCE && INTERNAL_TWO_LEVELS;
        own || self.scheme_of(source).is_some_and(|scheme| scheme.identity().two_levels())
    }

    /// The entry of the handler's `events` that matches a type of this source.
    pub(crate) fn matching<'h>(
        &self,
        handler: &'h Handler,
        source: &Name,
        event_type: &str,
    ) -> Option<&'h str> {
        let two_levels = self.two_levels(source);
        handler.patterns().find(|text| Pattern::new(*text, two_levels).matches(event_type))
    }

    /// The handlers that take events of this source.
    pub(crate) fn takers<'a>(&'a self, source: &'a Name) -> impl Iterator<Item = &'a Handler> {
        self.handlers.iter().filter(move |handler| handler.takes(source))
    }

    /// The source's scheme with the parameters of the query that its handlers read.
    pub(crate) fn scheme_with_query(&self, source: &Source) -> Arc<Scheme> {
        let parameter = |place: &Place| match place {
            Place::Query(name) => Some(name.clone()),
            _ => None,
        };
        let places = self.takers(&source.name).flat_map(Handler::all_places);
        let names: BTreeSet<String> = places.filter_map(|(place, _)| parameter(place)).collect();
        match names.is_empty() {
            true => Arc::clone(&source.scheme),
            false => {
                let scheme = Scheme::clone(&source.scheme);
                Arc::new(scheme.with_kept_query(&names.into_iter().collect::<Vec<_>>()))
            }
        }
    }

    /// Which handlers want which events of a source.
    pub(crate) fn routes(&self, source: &Source) -> Routes {
        let two_levels = source.scheme.identity().two_levels();
        let triggers = source.scheme.identity().has_triggers();
        let route = |handler: &Handler| Route {
            handler: handler.name.clone(),
            patterns: handler.patterns().map(|text| Pattern::new(text, two_levels)).collect(),
            when: handler.condition().cloned(),
            key: handler.key(),
            delay: handler.pace.delay,
            triggers,
        };
        Routes {
            source: source.name.clone(),
            form_field: source.scheme.identity().form_field.clone(),
            inflated_bytes: source.body_limit_bytes,
            kept_bytes: usize::try_from(self.limits().condition_kept_bytes).unwrap_or(usize::MAX),
            routes: self.takers(&source.name).map(route).collect(),
        }
    }

    /// The routes of all sources.
    pub fn router(&self) -> Router {
        Router::new(self.sources.iter().map(|source| Arc::new(self.routes(source))))
    }

    /// Which handlers take the receiver's own events.
    pub fn interest(&self) -> NoticeSubscribers {
        let takes = |handler: &&Handler| handler.takes_internal().is_some();
        let wants = |handler: &Handler| {
            let pattern = |text: &Value<String>| Pattern::new(&*text.value, INTERNAL_TWO_LEVELS);
            (handler.name.clone(), handler.events.iter().map(pattern).collect())
        };
        // Absolute, because the reader of a mail does not know the receiver's working directory.
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| PathBuf::from(&self.file));
        let interest =
            NoticeSubscribers::new(self.handlers.iter().filter(takes).map(wants).collect());
        interest.with_config_option(config_option(&file))
    }

    /// The events that `handler` takes from its sources, or from `source` alone; of these only the types that
    /// match `only`, which has the form of an entry of `events`. Empty if the handler does not take events
    /// of `source`.
    pub(crate) fn wanted_by(
        &self,
        handler: &Handler,
        source: Option<&Name>,
        only: Option<&str>,
    ) -> Vec<EventMatcher> {
        // One item for all sources with one-level types and one for those with two levels: one item for
        // each source would repeat the patterns and could exceed a request's limit.
        let of_sort = |two_levels| {
            let its = |own: &&Source| {
                own.scheme.identity().two_levels() == two_levels
                    && source.is_none_or(|named| own.name == *named)
                    && handler.takes(&own.name)
            };
            let pattern = |text: &str| Pattern::new(text, two_levels);
            let own = handler.takes_internal().filter(|own| {
                two_levels == INTERNAL_TWO_LEVELS && source.is_none_or(|named| named == own)
            });
            let sources = self.sources.iter().filter(its).map(|own| own.name.clone());
            EventMatcher {
                sources: sources.chain(own).collect(),
                types: handler.events.iter().map(|text| pattern(&text.value)).collect(),
                only: only.map(pattern),
            }
        };
        let wanted = [false, true].map(of_sort);
        wanted.into_iter().filter(|wanted| !wanted.sources.is_empty()).collect()
    }
}
