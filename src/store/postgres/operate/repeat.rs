//! Which events came of a request that is equal to an earlier one.

/// Whether event `e` has the id, the body and the type of the first event of its id, because equal requests of its source
/// may be several events. By the unique (source, id, variant).
macro_rules! is_repeat {
    () => {
        "(e.variant > 0 AND e.event_id LIKE 'sha256:%' AND EXISTS (SELECT FROM event f
            WHERE f.source = e.source AND f.event_id = e.event_id AND f.variant = 0
                AND f.digest = e.digest AND f.type = e.type AND f.raw_type IS NOT DISTINCT FROM e.raw_type))"
    };
}
pub(super) use is_repeat;
