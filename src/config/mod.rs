//! The configuration: files in, the structs that the other modules are built from out.
//!
//! Two steps, so that a file can be checked on another machine than its own. [`load()`] reads
//! `hooklatch.toml`, and `conf.d/*.toml` and `providers/*.toml` in the same folder, and reports every
//! problem at once; [`Config::resolve`] reads the secrets and the environment. Only layers 4 and 5 import
//! this module. In a [`Config`] every value is in its range, every name that it mentions exists, and
//! secrets are references.

mod access;
mod changes;
mod check;
mod cluster;
mod commands;
mod condition;
mod configuration;
mod dashboard;
mod database;
mod environment;
mod files;
mod grouping;
mod handlers;
mod interpreters;
mod load;
mod pace;
mod plan;
mod providers;
mod published;
mod read;
mod replies;
mod requests;
mod resolve;
mod secrets;
mod settings;
mod shown;
mod signers;
mod sources;
mod values;
mod variables;
mod wanted;
mod warnings;

pub(crate) use handlers::{Action, Handler};
pub(crate) use plan::{Plan, Start};
pub(crate) use settings::limit_rows;
pub(crate) use shown::duration_text;
pub(crate) use sources::without_password;
#[cfg(debug_assertions)]
pub(crate) use {condition::read_when, values::read as read_values};

pub use access::{Access, Token};
pub use changes::read as secret_read;
pub use configuration::Config;
pub use dashboard::{Dashboard, Listen, PROXY_SECRET};
pub use database::{Database, OwnNode};
pub use environment::Environment;
pub use files::NO_CONFIGURATION;
pub use load::{load, load_in_part};
pub use providers::{provider, provider_file, providers};
pub use resolve::Resolved;
pub use secrets::{CREDENTIALS, Reference, SecretError};
pub use settings::{LimitRow, Server};
pub use signers::{CannotSign, Endpoint};

#[cfg(test)]
mod tests;
