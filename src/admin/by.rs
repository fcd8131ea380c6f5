//! The header in which the caller of a change says who it is, and why it asks: JSON in base64, so that every text fits.

use actix_web::http::header::HeaderMap;
use data_encoding::BASE64;

use super::failure::{Failure, FailureKind};
use crate::limits::BY_HEADER_BYTES;
use crate::store::By;

pub(super) const HEADER: &str = "hooklatch-by";

/// What the header of a request says, which may have none.
pub(super) fn read(headers: &HeaderMap) -> Result<By, Failure> {
    let mut values = headers.get_all(HEADER);
    let Some(value) = values.next() else { return Ok(By::default()) };
    if values.next().is_some() {
        return Err(malformed("it comes twice"));
    }
    if value.len() > BY_HEADER_BYTES {
        return Err(malformed(format!("it has more than {BY_HEADER_BYTES} bytes")));
    }
    let json = BASE64.decode(value.as_bytes()).map_err(malformed)?;
    let by: By = serde_json::from_slice(&json).map_err(malformed)?;
    by.check().map_err(malformed)?;
    Ok(by)
}

/// The value of the header.
pub(super) fn write(by: &By) -> serde_json::Result<String> {
    Ok(BASE64.encode(&serde_json::to_vec(by)?))
}

fn malformed(why: impl ToString) -> Failure {
    let why = why.to_string();
    Failure::new(FailureKind::Malformed, format!("the header {HEADER} cannot be read: {why}"))
}
