//! QUARANTINE: keeps a delivery that failed verification.

use std::net::IpAddr;

use crate::limits::QUARANTINE_BODY_BYTES;
use crate::store::border::FailedDelivery;

use super::handle::Intake;

impl Intake {
    /// Keeps a failed delivery, or only counts it: where there are too many of them, and where the disk
    /// is short. Never waits.
    pub fn quarantine(&self, mut failed: FailedDelivery) {
        let limits = &self.engine.settings.limits;
        if limits.quarantine_bytes == 0 {
            return;
        }
        if failed.body.as_ref().is_some_and(|body| body.len() as u64 > QUARANTINE_BODY_BYTES) {
            failed.body = None;
        }
        let holder = holder(failed.address);
        let engine = self.engine.clone();
        let now = self.engine.clock.monotonic();
        self.quarantine.keep(failed, holder, limits, now, move || engine.stir());
    }
}

/// The client that a delivery's bytes count for. One client has a whole /64 of IPv6 addresses (RFC 6177).
fn holder(address: Option<IpAddr>) -> String {
    match address.map(|address| address.to_canonical()) {
        None => "unknown".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}
