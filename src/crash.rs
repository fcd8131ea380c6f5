//! Fail points: places where a test has this process die, as by `kill -9` in that very moment.
//!
//! Whoever commits, writes or reads a frame, starts or reaps a process calls [`point`] or [`frame`]
//! there; `tests/kill/crash.rs` goes through all of them. `cmd` arms one of them, at start, by a variable.
//! Another variable adds a migration to the store's own, so that tests can kill one.
//! What must stay true: in a release build nothing of this is left, neither code nor names nor the
//! variables; and each name stands in one place of the source, which a test checks.

use std::fmt::Debug;

/// The names of all points.
pub const POINTS: &[&str] = &[
    "accept.commit.before",
    "accept.commit.after",
    "answer.before",
    "answer.after",
    "ask.commit.before",
    "ask.commit.after",
    "claim.commit.before",
    "claim.commit.after",
    "complete.commit.before",
    "complete.commit.after",
    "epoch.commit.before",
    "epoch.commit.after",
    "copy.step",
    "before.copied",
    "before.named",
    "migrate.commit.before",
    "migrate.commit.after",
    "restore.copied",
    "restore.changed",
    "restore.decided",
    "restore.aside",
    "restore.log.aside",
    "restore.named",
    "runner.orphaned.before",
    "runner.orphaned.after",
    "runner.hello.read",
    "runner.start.noted",
    "runner.spawned",
    "runner.process.noted",
    "runner.reaped",
    "runner.exit.noted",
    "runner.ack.noted",
    "request.panic",
];

/// The point that a process survives: one request panics there.
pub const PANIC: &str = "request.panic";

/// The names of all points that a frame passes. A test adds a message to one: `receiver.sent.Ack`.
pub const FRAMES: &[&str] = &[
    "receiver.before",
    "receiver.sent",
    "receiver.read",
    "runner.before",
    "runner.sent",
    "runner.read",
    // Of either: with the header and half of the body on their way.
    "half",
];

#[cfg(debug_assertions)]
pub use armed::{MIGRATE, VARIABLE, add_migration, arm, frame, halves, migration, point};
#[cfg(not(debug_assertions))]
pub use released::{frame, halves, migration, point};

#[cfg(not(debug_assertions))]
mod released {
    use super::Debug;

    /// Nothing.
    #[inline(always)]
    pub fn point(_: &'static str) {}

    /// Nothing.
    #[inline(always)]
    pub fn frame(_: &'static str, _: &impl Debug) {}

    /// None.
    #[inline(always)]
    pub fn migration() -> Option<&'static str> {
        None
    }

    /// All of it, at once.
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

    use super::{Debug, FRAMES, PANIC, POINTS};

    /// The variable that arms a point: `NAME NTH TOKEN`. The NTH time that a process passes NAME it
    /// dies, if it is the one that creates the file TOKEN: so one started anew passes unharmed.
    pub const VARIABLE: &str = "HOOKLATCH_CRASH";

    /// The variable that adds a migration to the store's own, so that a test can kill it.
    pub const MIGRATE: &str = "HOOKLATCH_MIGRATE";

    static ARMED: OnceLock<Armed> = OnceLock::new();

    /// Unit tests always have the migration.
    static MIGRATES: AtomicBool = AtomicBool::new(cfg!(test));

    struct Armed {
        name: String,
        left: AtomicUsize,
        token: PathBuf,
    }

    /// Arms the point that the variable's `text` names. Once, before the first point is passed.
    ///
    /// # Panics
    /// Where the text says nothing that can be done: a test would wait for a death that never comes.
    pub fn arm(text: &str) {
        let armed = read(text);
        assert!(armed.is_some(), "{VARIABLE}: '{text}' is no point, count and file");
        if let Some(armed) = armed {
            assert!(ARMED.set(armed).is_ok(), "{VARIABLE} is armed already");
        }
    }

    fn read(text: &str) -> Option<Armed> {
        let [name, nth, token] = text.splitn(3, ' ').collect::<Vec<_>>().try_into().ok()?;
        let known =
            POINTS.contains(&name) || FRAMES.iter().any(|point| kind(name, point).is_some());
        let left = nth.parse().ok().filter(|nth: &usize| *nth > 0)?;
        known.then(|| Armed { name: name.to_owned(), left: left.into(), token: token.into() })
    }

    /// The kind of message in `name`, where it is one of the frames that pass `point`.
    fn kind<'a>(name: &'a str, point: &str) -> Option<&'a str> {
        name.strip_prefix(point)?.strip_prefix('.')
    }

    /// Adds a migration to the store's own, for the rest of the process.
    pub fn add_migration() {
        MIGRATES.store(true, Ordering::SeqCst);
    }

    /// The added migration.
    pub fn migration() -> Option<&'static str> {
        let sql = include_str!("store/tests/migration.sql");
        MIGRATES.load(Ordering::SeqCst).then_some(sql)
    }

    /// A place where the process may die.
    pub fn point(name: &'static str) {
        if let Some(armed) = ARMED.get()
            && armed.name == name
        {
            armed.pass();
        }
    }

    /// The same for a message of this kind only, which its `Debug` text begins with.
    pub fn frame(name: &'static str, message: &impl Debug) {
        if let Some(armed) = ARMED.get()
            && let Some(kind) = kind(&armed.name, name)
        {
            let text = format!("{message:?}");
            if text.split(|c: char| !c.is_alphanumeric()).next() == Some(kind) {
                armed.pass();
            }
        }
    }

    /// A body in two parts, so that there is a place between them.
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
