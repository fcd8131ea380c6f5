//! The handles: the table of the store's verbs, each with what it promises on every engine. A verb is the engine's own
//! of the same name, so one that an engine lacks does not compile.

mod admin;
mod intake;
mod jobs;
mod quarantine;
mod reverify;
mod surround;

pub use admin::Admin;
pub use intake::Intake;
pub use jobs::Jobs;

/// Runs `$verb` with the engine's own handle.
macro_rules! on_engine {
    ($handle:ident, $engine:ident => $verb:expr) => {
        match $handle {
            Self::Sqlite($engine) => $verb,
            Self::Postgres($engine, ..) => $verb,
        }
    };
}
use on_engine;

/// The verbs of a handle: each is the engine's own of the same name.
macro_rules! verbs {
    () => {};
    ($(#[$doc:meta])* $vis:vis async fn $verb:ident($($arg:ident: $kind:ty),* $(,)?) -> $result:ty; $($rest:tt)*) => {
        $(#[$doc])*
        $vis async fn $verb(&self, $($arg: $kind),*) -> $result {
            $crate::store::handles::on_engine!(self, engine => engine.$verb($($arg),*).await)
        }
        $crate::store::handles::verbs! { $($rest)* }
    };
    ($(#[$doc:meta])* $vis:vis fn $verb:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $result:ty)?; $($rest:tt)*) => {
        $(#[$doc])*
        $vis fn $verb(&self, $($arg: $kind),*) $(-> $result)? {
            $crate::store::handles::on_engine!(self, engine => engine.$verb($($arg),*))
        }
        $crate::store::handles::verbs! { $($rest)* }
    };
}
use verbs;
