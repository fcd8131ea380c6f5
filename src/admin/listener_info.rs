//! Where a running receiver takes deliveries, and how it signs as its sources.
//!
//! `send` uses it: a systemd credential or another user's file is a secret that the shell of an operator cannot read,
//! so the receiver signs. The caller is the store's owner or root, who can read the secrets anyhow; the reading socket
//! does not sign, and no request from the network comes here.

use std::net::SocketAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::failure::{Failure, FailureKind};
use crate::model::{Headers, Name, Timestamp};
use crate::verify::{Draft, Signer};

#[derive(Debug, Default)]
pub struct ListenerInfo {
    /// Where it takes deliveries.
    pub addresses: Vec<SocketAddr>,
    /// What signs as each source.
    pub signers: Vec<(Name, Signer)>,
    /// The sources whose secrets are empty: each delivery to them is answered 401.
    pub without_secret: Vec<Name>,
    /// The digest of the configuration in force.
    pub configuration: String,
}

/// Sign a delivery as a source's provider would.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignDelivery {
    /// The source; the receiver signs as its provider.
    pub source: Name,
    /// The request's method.
    pub method: String,
    /// The URL, where the provider signs it.
    pub url: Option<String>,
    /// The event's id, where a header has it.
    pub id: String,
    /// The event's type.
    pub event_type: String,
    /// The raw body, in base64.
    pub body: String,
    /// The time that is signed.
    pub at: Timestamp,
}

/// The headers of a signed delivery.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Signed {
    /// Names and values; ours are text.
    pub headers: Vec<(String, String)>,
    /// Where the secret was read from.
    pub reference: Option<String>,
}

impl ListenerInfo {
    /// Signs a delivery as its source's provider would.
    pub(super) fn sign(&self, unsigned: &SignDelivery) -> Result<Signed, Failure> {
        let Some((_, signer)) = self.signers.iter().find(|(name, _)| *name == unsigned.source)
        else {
            let source = &unsigned.source;
            let message = format!(
                "the running receiver has no source {source} (after a change of the configuration: hooklatch reload)"
            );
            return Err(Failure::new(FailureKind::NotFound, message));
        };
        let body = data_encoding::BASE64.decode(unsigned.body.as_bytes());
        let body = body.map_err(|_| Failure::unavailable("the body to sign is not base64"))?;
        let draft = Draft {
            method: &unsigned.method,
            url: unsigned.url.as_deref(),
            id: &unsigned.id,
            event_type: &unsigned.event_type,
            headers: Headers::new(),
            body: Bytes::from(body),
        };
        let headers = signer.sign(&draft, unsigned.at).map_err(Failure::unavailable)?;
        let text = |(name, value): (&str, &[u8])| {
            (name.to_owned(), String::from_utf8_lossy(value).into_owned())
        };
        Ok(Signed {
            headers: headers.iter().map(text).collect(),
            reference: signer.reference().map(str::to_owned),
        })
    }
}
