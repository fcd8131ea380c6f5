//! The columns of a row of either engine as the domain's types. `rows` has the rows that both engines read.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use uuid::Uuid;

use crate::model::{
    AuditVerb, Blob, Digest, EventId, GroupRule, Incarnation, JobId, Name, NoticeType, Outcome,
    RunnerName, State, Timestamp, Via,
};
use crate::store::border::{AuditSubject, Error};

/// A column of a row as the engine has it. SQLite has truth values as 0 and 1.
pub(crate) enum Cell<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Texts(Vec<String>),
}

/// The name of a column, or its place from 0.
pub(crate) trait At:
    rusqlite::RowIndex + tokio_postgres::row::RowIndex + Display + Copy
{
}

impl At for &str {}
impl At for usize {}

/// A row of an engine.
pub(crate) trait Cells {
    fn cell(&self, at: impl At) -> Result<Cell<'_>, Error>;
}

/// What a column is read as.
pub(crate) trait Column: Sized {
    fn read(cell: Cell<'_>) -> Result<Self, String>;
}

impl<T: Column> Column for Option<T> {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Null => Ok(None),
            cell => T::read(cell).map(Some),
        }
    }
}

/// SQLite keeps an id that is a UUID as its 16 bytes.
impl Column for EventId {
    fn read(cell: Cell<'_>) -> Result<Self, String> {
        match cell {
            Cell::Text(text) => word(text),
            Cell::Bytes(bytes) => word(&uuid(bytes)?.to_string()),
            _ => Err(OTHER_KIND.to_owned()),
        }
    }
}

const OTHER_KIND: &str = "it is of another kind";

macro_rules! columns {
    ($($cell:ident as $($column:ty),+ => $read:expr;)+) => {$($(
        impl Column for $column {
            fn read(cell: Cell<'_>) -> Result<Self, String> {
                match cell {
                    Cell::$cell(stored) => $read(stored),
                    _ => Err(OTHER_KIND.to_owned()),
                }
            }
        }
    )+)+};
}

columns! {
    Integer as bool => |number| Ok(number != 0);
    // The schema lets none be negative that cannot be.
    Integer as i32, i64, u16, u32, u64, usize => number;
    Integer as Timestamp => |time| Ok(Timestamp(time));
    Text as String => |text: &str| Ok(text.to_owned());
    Text as AuditSubject, BTreeMap<String, String> => |text| serde_json::from_str(text)
        .map_err(|error| error.to_string());
    Text as AuditVerb, GroupRule, Incarnation, Name, NoticeType, Outcome, RunnerName, State, Via => word;
    Bytes as Uuid => uuid;
    Bytes as JobId => |bytes| Ok(JobId::from_bytes(uuid(bytes)?.into_bytes()));
    Bytes as Vec<u8> => |bytes: &[u8]| Ok(bytes.to_vec());
    Bytes as Blob => |bytes: &[u8]| Ok(Blob(bytes.to_vec()));
    Bytes as Digest => |bytes| number(bytes).map(Digest);
    Texts as Vec<String> => Ok;
}

fn word<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn number<S, T: TryFrom<S>>(stored: S) -> Result<T, String> {
    T::try_from(stored).map_err(|_| "out of range".to_owned())
}

fn uuid(bytes: &[u8]) -> Result<Uuid, String> {
    Uuid::from_slice(bytes).map_err(|error| error.to_string())
}

pub(crate) fn column<T: Column>(row: &impl Cells, at: impl At) -> Result<T, Error> {
    T::read(row.cell(at)?).map_err(|error| unreadable(at, error))
}

/// What stands for an event's source, id or type of which a changed byte has left none. No payload has a sum of it.
const UNREADABLE: &str = "unreadable";

/// An event's source, id or type where people are told of it, or where its job is settled.
pub(crate) fn readable<T: Column + FromStr>(row: &impl Cells, at: impl At) -> Result<T, Error> {
    column(row, at).or_else(|error| UNREADABLE.parse().map_err(|_| error))
}

pub(crate) fn unreadable(column: impl Display, error: impl Display) -> Error {
    Error::Unavailable(format!("the column {column} cannot be read: {error}"))
}

/// What a row is read as.
pub(crate) trait FromRow: Sized {
    fn from_row(row: &impl Cells) -> Result<Self, Error>;
}

/// A value with the number of its own row, or of the row that it belongs to: the column `row`.
pub(crate) struct Numbered<T, K = i64> {
    pub(crate) row: K,
    pub(crate) of: T,
}

impl<T: FromRow, K: Column> FromRow for Numbered<T, K> {
    fn from_row(row: &impl Cells) -> Result<Self, Error> {
        Ok(Numbered { row: column(row, "row")?, of: T::from_row(row)? })
    }
}

/// Reads fields from the columns of their names, and the others as it says.
macro_rules! from_row {
    ($($type:ident {
        $($field:ident),* $(; $row:ident => $($other:ident: $value:expr),+)?
    })+) => {$(
        impl $crate::store::columns::FromRow for $type {
            fn from_row(
                row: &impl $crate::store::columns::Cells,
            ) -> Result<Self, $crate::store::border::Error> {
                $(let $row = row;)?
                Ok($type {
                    $($field: $crate::store::columns::column(row, stringify!($field))?,)*
                    $($($other: $value,)+)?
                })
            }
        }
    )+};
}
pub(crate) use from_row;

/// Tuples have the columns by their places.
macro_rules! tuples {
    ($($($part:ident $at:literal)+;)+) => {$(
        impl<$($part: Column),+> FromRow for ($($part,)+) {
            fn from_row(row: &impl Cells) -> Result<Self, Error> {
                Ok(($(column(row, $at)?,)+))
            }
        }
    )+};
}
tuples! { A 0; A 0 B 1; A 0 B 1 C 2; }
