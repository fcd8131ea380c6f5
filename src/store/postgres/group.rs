//! The groups of jobs (I6, I7) across nodes: the lock that comes first (N35), and who goes on.
//!
//! What must stay true at each commit: at most one job holds a group, as a unique index asserts; and while no job
//! holds it, none is behind. So whoever makes a job of a group or moves one sends [`LOCK`] or [`LOCK_OF_JOBS`] before
//! it locks events and jobs, and [`RELEASE_OF_JOBS`] behind its moves. Statements that find which job is behind or
//! next begin behind the lock, or they would decide by an older snapshot (N36).

/// Locks the rows of the groups ($1 handlers, $2 keys), and makes those that are missing. A row that is there is
/// locked, and not written.
pub(super) const LOCK: &str = r#"
    INSERT INTO job_group (handler, key)
    SELECT DISTINCT handler COLLATE "C" AS handler, key COLLATE "C" AS key
    FROM unnest($1::text[], $2::text[]) AS asked (handler, key) ORDER BY handler, key
    ON CONFLICT (handler, key) DO UPDATE SET key = excluded.key WHERE false"#;

/// Locks the groups of these jobs ($1 ids), as [`LOCK`] does.
pub(super) const LOCK_OF_JOBS: &str = "
    INSERT INTO job_group (handler, key)
    SELECT DISTINCT handler, group_key FROM job WHERE id = ANY ($1::uuid[]) AND group_key IS NOT NULL
    ORDER BY handler, group_key
    ON CONFLICT (handler, key) DO UPDATE SET key = excluded.key WHERE false";

/// Lets the oldest job behind go on in each group of these jobs ($1 ids) that no job holds any more.
pub(super) const RELEASE_OF_JOBS: &str = "
    UPDATE job SET behind = false
    FROM (SELECT DISTINCT handler, group_key FROM job WHERE id = ANY ($1::uuid[]) AND group_key IS NOT NULL) left_by
    CROSS JOIN LATERAL (
        SELECT row FROM job b WHERE b.handler = left_by.handler AND b.group_key = left_by.group_key AND b.behind
        ORDER BY event LIMIT 1
    ) next
    WHERE job.row = next.row AND NOT EXISTS (
        SELECT FROM job h WHERE h.handler = left_by.handler AND h.group_key = left_by.group_key AND h.holds
            AND NOT h.behind)";
