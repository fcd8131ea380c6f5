//! Parts that `demo`, `drill` and the tests share: a fake provider, its load, a scratch site, the
//! receiver process on that site, and the account that checks the promises.

pub(super) mod account;
pub(super) mod ledger;
pub(super) mod load;
pub mod provider;
pub(super) mod receiver;
pub(super) mod site;
pub(super) mod target;

use std::time::Duration;

/// How long the caller waits without progress before it fails.
const PATIENCE: Duration = Duration::from_secs(60);
