//! The columns of PostgreSQL's rows, and the domain's types as parameters.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::model::{AuditVerb, Digest, EventId, JobId, Name, State, Timestamp};
use crate::store::border::Error;
use crate::store::columns::{At, Cell, Cells};

use super::connection::describe;

impl Cells for Row {
    fn cell(&self, at: impl At) -> Result<Cell<'_>, Error> {
        stored(self, at)
    }
}

impl<'a> FromSql<'a> for Cell<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(match *ty {
            Type::BOOL => Cell::Integer(bool::from_sql(ty, raw)?.into()),
            Type::INT4 => Cell::Integer(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Cell::Integer(i64::from_sql(ty, raw)?),
            Type::TEXT_ARRAY => Cell::Texts(Vec::from_sql(ty, raw)?),
            Type::BYTEA | Type::UUID => Cell::Bytes(raw),
            _ => Cell::Text(<&str>::from_sql(ty, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Cell::Null)
    }

    fn accepts(ty: &Type) -> bool {
        let known = [Type::BOOL, Type::INT4, Type::INT8, Type::TEXT_ARRAY, Type::BYTEA, Type::UUID];
        known.contains(ty) || <&str as FromSql>::accepts(ty)
    }
}

/// A column as the server sends it.
pub(super) fn stored<'a, T: FromSql<'a>>(row: &'a Row, at: impl At) -> Result<T, Error> {
    row.try_get(at).map_err(|error| Error::Unavailable(describe(&error)))
}

type Written = Result<IsNull, Box<dyn StdError + Sync + Send>>;

macro_rules! parameters {
    ($($type:ty as $stored:ty => $get:expr;)+) => {$(
        impl ToSql for $type {
            fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
                let get: fn(&$type) -> $stored = $get;
                get(self).to_sql(ty, out)
            }

            fn accepts(ty: &Type) -> bool {
                <$stored as ToSql>::accepts(ty)
            }

            to_sql_checked!();
        }
    )+};
}

parameters! {
    AuditVerb as &str => |verb| verb.as_str();
    EventId as &str => |id| id.as_str();
    Name as &str => |name| name.as_str();
    State as &str => |state| state.as_str();
    Timestamp as i64 => |time| time.0;
    JobId as Uuid => |id| Uuid::from_bytes(*id.as_bytes());
    Digest as &[u8] => |digest| &digest.0;
}
