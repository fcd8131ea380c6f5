//! How the configurations of a database's nodes differ.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Name;
use crate::store::border::NodeRow;

/// Says which handlers of others an active node lacks, and leaves of its handlers' keys those that differ.
pub(crate) fn compare(nodes: &mut [NodeRow]) {
    // Of each handler the keys that all of its nodes have with one value.
    let mut equal: BTreeMap<Name, BTreeMap<String, String>> = BTreeMap::new();
    for own in nodes.iter().flat_map(|node| &node.handlers) {
        let equal = equal.entry(own.handler.clone()).or_insert_with(|| own.keys.clone());
        equal.retain(|key, value| own.keys.get(key) == Some(&*value));
    }
    for node in nodes.iter_mut().filter(|node| node.state == "active") {
        for own in &mut node.handlers {
            if let Some(equal) = equal.get(&own.handler) {
                own.keys.retain(|key, _| !equal.contains_key(key));
            }
        }
        let own: BTreeSet<&Name> = node.handlers.iter().map(|own| &own.handler).collect();
        node.lacks = equal.keys().filter(|name| !own.contains(name)).cloned().collect();
    }
}
