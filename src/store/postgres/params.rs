//! The parameters of a statement, from the domain's types.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::model::{Digest, EventId, JobId, Name, Timestamp};
use crate::store::codec;

use super::flight::Param;

/// A value with its form in a statement.
pub(super) trait SqlValue {
    type Sql: ToSql + Sync + Send + 'static;

    fn sql(self) -> Self::Sql;
}

/// Values by their types: `type => its form: how to make it`.
macro_rules! values {
    ($($kind:ty => $sql:ty: $make:expr;)*) => {
        $(impl SqlValue for $kind {
            type Sql = $sql;

            fn sql(self) -> $sql {
                let make: fn(Self) -> $sql = $make;
                make(self)
            }
        })*
    };
}

values! {
    bool => bool: |value| value;
    i32 => i32: |value| value;
    i64 => i64: |value| value;
    u32 => i64: i64::from;
    u64 => i64: codec::size;
    usize => i64: codec::size;
    String => String: |value| value;
    &str => String: str::to_owned;
    &Name => String: |name| name.as_str().to_owned();
    &EventId => String: |id| id.as_str().to_owned();
    Vec<u8> => Vec<u8>: |value| value;
    Digest => Vec<u8>: |digest| digest.0.to_vec();
    Uuid => Uuid: |value| value;
    JobId => Uuid: |id| Uuid::from_bytes(*id.as_bytes());
    &JobId => Uuid: |id| Uuid::from_bytes(*id.as_bytes());
    Timestamp => i64: |time| time.0;
    Duration => i64: |time| codec::size(time.as_millis());
}

impl<T: SqlValue> SqlValue for Option<T> {
    type Sql = Option<T::Sql>;

    fn sql(self) -> Self::Sql {
        self.map(T::sql)
    }
}

impl<T: SqlValue> SqlValue for Vec<T> {
    type Sql = Vec<T::Sql>;

    fn sql(self) -> Self::Sql {
        self.into_iter().map(T::sql).collect()
    }
}

pub(super) fn param(value: impl SqlValue) -> Param {
    Box::new(value.sql())
}

/// `params![job, attempt, reason]`: a [`Vec`] of [`Param`], of [`SqlValue`]s. Times are in milliseconds.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::store::postgres::params::param($value)),*]
    };
}
pub(super) use params;
