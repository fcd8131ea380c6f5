//! The receiver and the store as a whole: who answers, status, listeners, signatures, secrets, reload.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::super::failure::Failure;
use super::super::listener_info::{SignDelivery, Signed};
use super::super::operation::{Context, operation};
use super::super::receiver::{ReceiverState, Status, look};
use super::super::reload::{self, Reloaded};
use crate::model::{AuditVerb, Name};
use crate::store::{
    AuditFilter, AuditRow, AuditSubject, CheckedPayloads, Page, PayloadCheck, SecretUse,
};
use crate::traffic::RecentTraffic;

/// Why a stopped store's runners cannot be asked.
pub(super) const NO_RUNNER: &str = "no receiver runs, and only a receiver can reach its runner";

const ONLY_A_RECEIVER: &str = "no receiver runs, and only a receiver knows it";

impl Context {
    /// The running receiver, or a failure that says `why` one is needed.
    pub(super) fn receiver(&self, why: &str) -> Result<&ReceiverState, Failure> {
        self.receiver.as_ref().ok_or_else(|| Failure::unavailable(why))
    }
}

operation! {
    /// The process that answers, and whether accepts are taken.
    Get "/v1/info" Reads;
    GetInfo {} -> Info,
    |GetInfo {}, context| Ok(Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        store: context.store.id().simple().to_string(),
        refused: context.store.ready().err().map(|refused| refused.to_string()),
    })
}

/// The process that answers for a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The store's random identity.
    pub store: String,
    /// Why accepts are refused, where they are.
    pub refused: Option<String>,
}

operation! {
    /// How everything stands.
    Get "/v1/status" Reads;
    GetStatus {
        /// Sources to report in addition to the receiver's own, separated by commas.
        #[serde(default, with = "comma_list")]
        sources: Vec<Name>,
    } -> Status,
    |request, context| look(&context.store, context.receiver.as_ref(), request.sources).await
}

operation! {
    /// Wait until the mark is another than `after`, at most 25 s. Each commit moves it, so each accepted event, each step
    /// of a job and each pause does; so do a kept failed delivery, and a store that starts or stops refusing accepts.
    Get "/v1/changes" Waits;
    GetChanges {
        /// The `mark` of the last answer; 0 at first.
        after: u64,
    } -> ChangeMark,
    |GetChanges { after }, context| {
        let mut changes = context.store.changes();
        // Without a change in time the mark is the same as before.
        let _ = timeout(CHANGE_WAIT, changes.wait_for(|mark| *mark != after)).await;
        let mark = *changes.borrow();
        Ok(ChangeMark { mark })
    }
}

/// How long one call waits: less than a client does.
const CHANGE_WAIT: Duration = Duration::from_secs(25);

/// How often something has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMark {
    /// How often since the receiver's start: it begins again at 0.
    pub mark: u64,
}

operation! {
    /// The deliveries of each source and the attempts of each handler in the last day, in slots of 15 minutes.
    Get "/v1/traffic" Reads;
    GetTraffic {} -> RecentTraffic,
    |GetTraffic {}, context| Ok(context.receiver(ONLY_A_RECEIVER)?.recent_traffic())
}

operation! {
    /// Where the receiver takes deliveries.
    Get "/v1/listeners" Reads;
    ListListeners {} -> ListenerList,
    |ListListeners {}, context| {
        let listeners = context.receiver(ONLY_A_RECEIVER)?.listeners();
        Ok(ListenerList { addresses: listeners.addresses.clone() })
    }
}

/// At least one address.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListenerList {
    pub addresses: Vec<SocketAddr>,
}

// It makes a genuine delivery, which the reading socket must not.
operation! {
    /// Sign a delivery as a source's provider would.
    Post "/v1/sign" Changes;
    for SignDelivery => Signed,
    |delivery, context| context.receiver(ONLY_A_RECEIVER)?.listeners().sign(&delivery)
}

operation! {
    /// When each secret last matched. Secrets themselves are never in an answer.
    Get "/v1/secrets" Reads;
    ListSecrets {} -> SecretList,
    |ListSecrets {}, context| Ok(SecretList { secrets: context.store.secrets().await? })
}

/// The secrets that ever matched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretList {
    pub secrets: Vec<SecretUse>,
}

operation! {
    /// The changes that operators have made, newest first.
    Get "/v1/audit" Reads;
    for AuditFilter => Page<AuditRow>,
    |filter, context| Ok(context.store.audit(filter).await?)
}

operation! {
    /// Compare the payloads of the next events with what was accepted.
    Get "/v1/payload-check" Reads;
    for PayloadCheck => CheckedPayloads,
    |ask, context| Ok(context.store.check_payloads(ask).await?)
}

operation! {
    /// Read the configuration again.
    Post "/v1/reload" Changes;
    Reload {} -> Reloaded,
    |Reload {}, context| {
        let why = "no receiver runs: it reads the configuration when it starts";
        let reloads = context.receiver(why)?.reloads.clone();
        let reload = async move { reload::ask(&reloads).await.map(|reloaded| (reloaded, 1)) };
        context.store.surround(AuditVerb::Reload, AuditSubject::default(), 1, reload).await
    }
}

operation! {
    /// Open the registration of a source whose provider sends the secret, and wait for it: only a request counts whose URL
    /// has `?register=WORD`. It closes when no call has waited for two seconds.
    Post "/v1/sources/{source}/secret" Changes;
    AwaitSecret {
        /// The source.
        source: Name,
        /// A random word that only the provider gets to know.
        word: String,
        /// How long to wait; ten seconds at most.
        wait_millis: u64,
    } -> AwaitedSecret,
    |request, context| {
        let wait = Duration::from_millis(request.wait_millis).min(REGISTRATION_WAIT);
        let receiver = context.receiver(ONLY_A_RECEIVER)?;
        let secret = receiver.await_secret(&request.source, &request.word, wait).await;
        Ok(AwaitedSecret { secret: secret.map(|text| text.to_string()) })
    }
}

/// How long one call waits.
const REGISTRATION_WAIT: Duration = Duration::from_secs(10);

/// What the provider has sent.
#[derive(Clone, Serialize, Deserialize)]
pub struct AwaitedSecret {
    /// The secret; none if nothing came in time.
    pub secret: Option<String>,
}

/// A list in one parameter of a query.
mod comma_list {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::model::Name;

    pub(super) fn serialize<S: Serializer>(names: &[Name], to: S) -> Result<S::Ok, S::Error> {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        to.serialize_str(&names.join(","))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Name>, D::Error> {
        let text = String::deserialize(from)?;
        let names = text.split(',').filter(|name| !name.is_empty());
        names.map(|name| name.parse().map_err(D::Error::custom)).collect()
    }
}
