//! Fail points: places where a test makes this process kill itself with SIGKILL.
//!
//! Code that commits, reads or writes a frame, or starts or reaps a process calls [`point`] or [`frame`]
//! there; `tests/kill/crash.rs` runs through all of them. `cmd` arms one point at start from an
//! environment variable; another variable adds a migration to the store's, so that tests can kill the
//! process during one. Must stay true: a release build has no code, name or variable of this module, and
//! each name is used at one place in the source, which a test checks (`tests/kill/crash/deaths.rs`).

use std::fmt::Debug;

/// The point that the process survives: it makes one request panic.
pub const PANIC: &str = "request.panic";

#[cfg(debug_assertions)]
pub use armed::{
    MIGRATE, VARIABLE, add_migration, arm, cluster_migrations, frame, halves, migration, point,
};
#[cfg(not(debug_assertions))]
pub use released::{cluster_migrations, frame, halves, migration, point};

#[cfg(not(debug_assertions))]
mod released {
    use super::Debug;

    /// Does nothing in a release build.
    #[inline(always)]
    pub fn point(_: &'static str) {}

    /// Does nothing in a release build.
    #[inline(always)]
    pub fn frame(_: &'static str, _: &impl Debug) {}

    /// A release build adds no migration.
    #[inline(always)]
    pub fn migration() -> Option<&'static str> {
        None
    }

    /// A release build adds none.
    #[inline(always)]
    pub fn cluster_migrations() -> Option<[(&'static str, bool); 2]> {
        None
    }

    /// The whole body and an empty rest: a release build writes a body at once.
    #[inline(always)]
    pub fn halves(body: &[u8]) -> (&[u8], &[u8]) {
        (body, &[])
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::fs::File;
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{Debug, PANIC};

    /// The variable that arms a point: `NAME NTH TOKEN`. A process that passes NAME for the NTH time
    /// creates the file TOKEN and dies. If the file exists it goes on, so that a restarted process
    /// survives.
    pub const VARIABLE: &str = "HOOKLATCH_CRASH";

    /// The variable that adds a migration to the store's, so that a test can kill the process during it.
    pub const MIGRATE: &str = "HOOKLATCH_MIGRATE";

    static ARMED: OnceLock<Armed> = OnceLock::new();

    /// Unit tests always have the migration.
    static MIGRATES: AtomicBool = AtomicBool::new(cfg!(test));

    struct Armed {
        name: String,
        left: AtomicUsize,
        token: PathBuf,
    }

    /// Arms the point that the variable's `text` names. Call it once, before the process passes a point.
    ///
    /// # Panics
    /// If the text is not a point, a count and a file: a test would wait for a kill that does not come.
    pub fn arm(text: &str) {
        let armed = read(text);
        assert!(armed.is_some(), "{VARIABLE}: '{text}' is not a point, a count and a file");
        if let Some(armed) = armed {
            assert!(ARMED.set(armed).is_ok(), "{VARIABLE} is armed already");
        }
    }

    fn read(text: &str) -> Option<Armed> {
        let [name, nth, token] = text.splitn(3, ' ').collect::<Vec<_>>().try_into().ok()?;
        let left = nth.parse().ok().filter(|nth: &usize| *nth > 0)?;
        Some(Armed { name: name.to_owned(), left: left.into(), token: token.into() })
    }

    /// Adds a migration to the store's, for the rest of the process.
    pub fn add_migration() {
        MIGRATES.store(true, Ordering::SeqCst);
    }

    /// The SQL text of the added migration, if there is one.
    pub fn migration() -> Option<&'static str> {
        let sql = include_str!("store/tests/migration.sql");
        MIGRATES.load(Ordering::SeqCst).then_some(sql)
    }

    /// The SQL texts of the migrations added to those of a cluster's database, and whether each contracts it (N32).
    pub fn cluster_migrations() -> Option<[(&'static str, bool); 2]> {
        let expand = (include_str!("store/tests/expand.sql"), false);
        let contract = (include_str!("store/tests/contract.sql"), true);
        MIGRATES.load(Ordering::SeqCst).then_some([expand, contract])
    }

    /// Kills the process here if this point is armed.
    pub fn point(name: &'static str) {
        if let Some(armed) = ARMED.get()
            && armed.name == name
        {
            armed.pass();
        }
    }

    /// Kills the process here if this point is armed for this kind of message, as in `receiver.sent.Ack`. The
    /// kind is the first word of the message's `Debug` text.
    pub fn frame(name: &'static str, message: &impl Debug) {
        if let Some(armed) = ARMED.get()
            && let Some((point, kind)) = armed.name.rsplit_once('.')
            && point == name
        {
            let text = format!("{message:?}");
            if text.split(|c: char| !c.is_alphanumeric()).next() == Some(kind) {
                armed.pass();
            }
        }
    }

    /// A body in two parts, so that the process can die between writing them.
    pub fn halves(body: &[u8]) -> (&[u8], &[u8]) {
        body.split_at(body.len() / 2)
    }

    impl Armed {
        fn pass(&self) {
            let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
            if last && File::create_new(&self.token).is_ok() {
                assert_ne!(self.name, PANIC, "on purpose");
                let _dying = kill_process(getpid(), Signal::KILL);
                loop {
                    std::thread::park();
                }
            }
        }
    }
}
