//! A delivery as a handler gets it: header lines, bytes and facts.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::ids::JobId;
use super::names::{EventId, EventType, Name};
use super::time::Timestamp;

/// The header in which an event has its sender's own id, where that is not the event's.
pub const SENDER_ID: &str = "Hooklatch-Sender-Id";

/// It says how to read a body, as Content-Type does, so it goes where the body goes.
pub const CONTENT_ENCODING: &str = "Content-Encoding";

/// HTTP header lines in the order of their arrival. Names keep their case and compare without it;
/// values are bytes, because HTTP's are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    pub fn new() -> Self {
        Headers(Vec::new())
    }

    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.0.push((name.into(), value.into()));
    }

    /// The values of `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.0.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// The sender's own id, where it is not the event's.
    pub fn sender_id(&self) -> Option<Cow<'_, str>> {
        self.all(SENDER_ID).next().map(String::from_utf8_lossy)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_slice()))
    }

    /// The size of all names and values.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines as HTTP/1.1 writes them, `Name: value CRLF` each. The stored form, which loses no byte.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        for (name, value) in &self.0 {
            wire.extend_from_slice(name.as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value);
            wire.extend_from_slice(b"\r\n");
        }
        wire
    }

    /// Reads what [`Headers::to_wire`] wrote. A header value holds no CR or LF, so this is exact.
    pub fn from_wire(wire: &[u8]) -> Self {
        let mut headers = Headers::new();
        for line in wire.split(|&b| b == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(colon) = line.iter().position(|&b| b == b':') {
                let value = &line[colon + 1..];
                headers.push(
                    String::from_utf8_lossy(&line[..colon]),
                    value.strip_prefix(b" ").unwrap_or(value),
                );
            }
        }
        headers
    }
}

/// What a handler gets to know about its event and attempt. A runner gets the body apart from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    pub handler: Name,
    /// The job, which is also the idempotency key.
    pub job: JobId,
    /// The number of the attempt, from 1. A number is never used twice.
    pub attempt: u32,
    /// How often the operator replayed the job.
    pub replays: u32,
    pub source: Name,
    /// The caller of the request: the parts of its name, joined by tabs. A part is visible ASCII and spaces.
    /// `None` if the source has a single caller, or if the key has been replaced.
    pub caller: Option<String>,
    pub event_id: EventId,
    pub event_type: EventType,
    /// When the delivery arrived.
    pub received_at: Timestamp,
    /// Only those that the source's scheme keeps.
    #[serde(default, with = "wire_text", skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The bytes that the provider sent.
    #[serde(skip)]
    pub body: Bytes,
}

/// The form of headers in JSON: their stored form, in base64.
mod wire_text {
    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Headers;

    pub(super) fn serialize<S: Serializer>(headers: &Headers, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&BASE64.encode(&headers.to_wire()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Headers, D::Error> {
        let wire = BASE64.decode(String::deserialize(d)?.as_bytes()).map_err(Error::custom)?;
        Ok(Headers::from_wire(&wire))
    }
}

/// Bytes from outside as JSON shows them: `{"text": …}` where they are UTF-8, `{"base64": …}`
/// otherwise. Both lose no byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlobForm<'a> {
    Text(Cow<'a, str>),
    Base64(String),
}

impl std::ops::Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => BlobForm::Text(text.into()).serialize(s),
            Err(_) => BlobForm::Base64(data_encoding::BASE64.encode(&self.0)).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match BlobForm::deserialize(d)? {
            BlobForm::Text(text) => Ok(Blob(text.into_owned().into_bytes())),
            BlobForm::Base64(text) => data_encoding::BASE64
                .decode(text.as_bytes())
                .map(Blob)
                .map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn headers_round_trip_through_their_stored_form() {
        let mut headers = Headers::new();
        headers.push("X-A", b"\xff: b".as_slice());
        headers.push("X-A", b"".as_slice());
        headers.push("y", b" lead".as_slice());
        assert_eq!(Headers::from_wire(&headers.to_wire()), headers);
        assert_eq!(headers.all("x-a").count(), 2);
    }

    #[test]
    fn bytes_round_trip_through_json() {
        for bytes in [b"plain \"text\"\n".as_slice(), b"\xff\0", b""] {
            let blob = Blob(bytes.to_vec());
            let json = serde_json::to_string(&blob).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Blob>(&json).ok(), Some(blob), "{json}");
        }
    }
}
