//! What a handler wants, for the command that makes jobs of stored events.

use crate::model::Name;
use crate::pattern::Pattern;
use crate::store::Wanted;

use super::Config;

impl Config {
    /// The names of all handlers.
    pub fn handlers(&self) -> impl Iterator<Item = &Name> {
        self.handlers.iter().map(|handler| &handler.name)
    }

    /// What `handler` wants of each of its sources, and of that only the types that `only` means,
    /// written like an entry of `events`. None where there is no such handler.
    pub fn wanted_by(&self, handler: &Name, only: Option<&str>) -> Option<Vec<Wanted>> {
        let handler = self.handlers.iter().find(|known| known.name == *handler)?;
        let its = |name: &Name| handler.sources.iter().any(|own| own.value == name.as_str());
        let wanted = self.sources.iter().filter(|source| its(&source.name)).map(|source| {
            let pattern = |text: &str| Pattern::new(text, source.scheme.two_levels());
            Wanted {
                source: source.name.clone(),
                types: handler.events.iter().map(|text| pattern(text)).collect(),
                only: only.map(pattern),
            }
        });
        Some(wanted.collect())
    }
}
