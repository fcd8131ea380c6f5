-- Handlers whose jobs are not claimed until the operator resumes them. No job's state is touched.
CREATE TABLE paused (
    handler TEXT    NOT NULL PRIMARY KEY,
    since   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
