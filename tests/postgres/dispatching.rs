//! The handle of the dispatcher on several nodes: wake-ups, recovery, groups, and what a job's end writes.
