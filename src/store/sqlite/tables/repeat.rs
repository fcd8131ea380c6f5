//! Which events came of a request that is equal to an earlier one.

/// Whether event `e` has the id, the body and the type of the first event of its id, because equal requests of its source
/// may be several events. By the unique (source, id, variant).
pub(crate) const IS_REPEAT: &str =
    "(e.variant > 0 AND e.event_id LIKE 'sha256:%' AND EXISTS (SELECT 1 FROM event f
     WHERE f.source = e.source AND f.event_id = e.event_id AND f.variant = 0
         AND f.digest = e.digest AND f.type = e.type AND f.raw_type IS e.raw_type))";
