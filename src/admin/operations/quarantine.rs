//! The quarantine: list failed deliveries, verify them again, accept or delete them.

use serde::{Deserialize, Serialize};

use super::super::operation::operation;
use crate::store::{Quarantine, QuarantineFilter, ReverifyResult};

operation! {
    /// Failed deliveries, newest first.
    Get "/v1/quarantine" Reads;
    for QuarantineFilter => Quarantine,
    |filter, context| Ok(context.store.quarantined(filter).await?)
}

operation! {
    /// Verify the next failed deliveries again, and change nothing.
    Post "/v1/quarantine/verify" Reads;
    VerifyQuarantine {
        /// The deliveries that are meant; its `limit` and `before` have no meaning here.
        filter: QuarantineFilter,
        /// The `next` of the last answer; 0 at first.
        after: i64,
        /// Keys that the provider publishes, which are tried in place of the source's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys: Option<String>,
    } -> ReverifyResult,
    |VerifyQuarantine { filter, after, keys }, context| {
        Ok(context.store.reverify(filter, after, false, keys).await?)
    }
}

operation! {
    /// Verify the next failed deliveries again, and accept those that are good now.
    Post "/v1/quarantine/accept" Changes;
    AcceptQuarantine {
        /// The deliveries that are meant; its `limit` and `before` have no meaning here.
        filter: QuarantineFilter,
        /// The `next` of the last answer; 0 at first.
        after: i64,
    } -> ReverifyResult,
    |AcceptQuarantine { filter, after }, context| {
        Ok(context.store.reverify(filter, after, true, None).await?)
    }
}

operation! {
    /// Delete failed deliveries.
    Post "/v1/quarantine/drop" Changes;
    DropQuarantine {
        /// The deliveries that are meant; its `limit` and `before` have no meaning here.
        filter: QuarantineFilter,
    } -> DroppedQuarantine,
    |DropQuarantine { filter }, context| {
        Ok(DroppedQuarantine { dropped: context.store.drop_quarantined(filter).await? })
    }
}

/// How many deliveries were deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DroppedQuarantine {
    pub dropped: u64,
}
