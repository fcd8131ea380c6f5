//! What `demo`, `drill` and the tests share: a fake provider, its load, a scratch site, the receiver
//! process on it, and the account of what was acknowledged, stored and run.

pub(super) mod account;
pub(super) mod ledger;
pub(super) mod load;
pub mod provider;
pub(super) mod receiver;
pub(super) mod site;

use std::time::Duration;

/// How long anything may make no progress before the caller gives up.
const PATIENCE: Duration = Duration::from_secs(60);
