//! Columns of a row as the domain's types, by their names, and those types as parameters.

use std::error::Error as StdError;
use std::fmt::Display;
use std::str::FromStr;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::model::{
    AuditVerb, Blob, Digest, EventId, GroupRule, Incarnation, JobId, Name, NoticeType, Outcome,
    RunnerName, State, Timestamp, Via,
};
use crate::store::border::{AuditSubject, Error};

use super::connection::describe;

/// What a column is read as.
pub(super) trait Column: Sized {
    /// As the server sends it.
    type Stored<'a>: FromSql<'a>;

    fn read(stored: Self::Stored<'_>) -> Result<Self, String>;
}

impl<T: Column> Column for Option<T> {
    type Stored<'a> = Option<T::Stored<'a>>;

    fn read(stored: Self::Stored<'_>) -> Result<Self, String> {
        stored.map(T::read).transpose()
    }
}

macro_rules! columns {
    ($($stored:ty as $($column:ty),+ => $read:expr;)+) => {$($(
        impl Column for $column {
            type Stored<'a> = $stored;

            fn read(stored: Self::Stored<'_>) -> Result<Self, String> {
                $read(stored)
            }
        }
    )+)+};
}

columns! {
    bool as bool => Ok;
    i32 as i32 => Ok;
    i64 as i64 => Ok;
    String as String => Ok;
    Uuid as Uuid => Ok;
    Vec<u8> as Vec<u8> => Ok;
    Vec<String> as Vec<String> => Ok;
    &'a str as AuditSubject => |text| serde_json::from_str(text).map_err(|error| error.to_string());
    &'a str as AuditVerb, EventId, GroupRule, Incarnation, Name, NoticeType, Outcome, RunnerName, State, Via => word;
    // The schema lets none be negative.
    i64 as u32, u64, usize => number;
    i32 as u16 => number;
    i64 as Timestamp => |time| Ok(Timestamp(time));
    Uuid as JobId => |id: Uuid| Ok(JobId::from_bytes(id.into_bytes()));
    Vec<u8> as Blob => |bytes| Ok(Blob(bytes));
    Vec<u8> as Digest => |bytes| number(bytes).map(Digest);
}

fn word<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn number<S, T: TryFrom<S>>(stored: S) -> Result<T, String> {
    T::try_from(stored).map_err(|_| "out of range".to_owned())
}

pub(super) fn column<T: Column>(row: &Row, at: impl RowIndex + Display + Copy) -> Result<T, Error> {
    T::read(stored(row, at)?).map_err(|error| unreadable(at, error))
}

/// A column as the server sends it.
pub(super) fn stored<'a, T: FromSql<'a>>(
    row: &'a Row,
    at: impl RowIndex + Display,
) -> Result<T, Error> {
    row.try_get(at).map_err(|error| Error::Unavailable(describe(&error)))
}

pub(super) fn unreadable(column: impl Display, error: impl Display) -> Error {
    Error::Unavailable(format!("the column {column} cannot be read: {error}"))
}

/// What a row is read as.
pub(super) trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self, Error>;
}

/// With the number of its own row, or of the row that it belongs to: the column `row`.
pub(super) struct Numbered<T, K = i64> {
    pub(super) row: K,
    pub(super) of: T,
}

impl<T: FromRow, K: Column> FromRow for Numbered<T, K> {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(Numbered { row: column(row, "row")?, of: T::from_row(row)? })
    }
}

/// Reads fields from the columns of their names, and the others as it says.
macro_rules! from_row {
    ($($type:ident {
        $($field:ident),* $(; $row:ident => $($other:ident: $value:expr),+)?
    })+) => {$(
        impl $crate::store::postgres::columns::FromRow for $type {
            fn from_row(row: &tokio_postgres::Row) -> Result<Self, $crate::store::border::Error> {
                $(let $row = row;)?
                Ok($type {
                    $($field: $crate::store::postgres::columns::column(row, stringify!($field))?,)*
                    $($($other: $value,)+)?
                })
            }
        }
    )+};
}
pub(super) use from_row;

/// Tuples have the columns by their places.
macro_rules! tuples {
    ($($($part:ident $at:literal)+;)+) => {$(
        impl<$($part: Column),+> FromRow for ($($part,)+) {
            fn from_row(row: &Row) -> Result<Self, Error> {
                Ok(($(column(row, $at)?,)+))
            }
        }
    )+};
}
tuples! { A 0; A 0 B 1; A 0 B 1 C 2; }

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
