//! Columns of a row by their names, as the domain's types.

use std::fmt::Display;
use std::str::FromStr;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::model::{Digest, JobId, Timestamp};
use crate::store::border::Error;

use super::connection::describe;

pub(super) trait Columns {
    fn value<'a, T: FromSql<'a>>(&'a self, column: &str) -> Result<T, Error>;

    /// A size or count; the schema lets none be negative.
    fn number<T: TryFrom<i64, Error: Display>>(&self, column: &str) -> Result<T, Error> {
        T::try_from(self.value(column)?).map_err(|error| unreadable(column, error))
    }

    fn maybe_number<T: TryFrom<i64, Error: Display>>(
        &self,
        column: &str,
    ) -> Result<Option<T>, Error> {
        let number = self.value::<Option<i64>>(column)?.map(T::try_from);
        number.transpose().map_err(|error| unreadable(column, error))
    }

    /// A word, name or id in its text form.
    fn word<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T, Error> {
        self.value::<&str>(column)?.parse().map_err(|error| unreadable(column, error))
    }

    fn maybe_word<T: FromStr<Err: Display>>(&self, column: &str) -> Result<Option<T>, Error> {
        let word = self.value::<Option<&str>>(column)?.map(str::parse);
        word.transpose().map_err(|error| unreadable(column, error))
    }

    fn time(&self, column: &str) -> Result<Timestamp, Error> {
        self.value(column).map(Timestamp)
    }

    fn maybe_time(&self, column: &str) -> Result<Option<Timestamp>, Error> {
        Ok(self.value::<Option<i64>>(column)?.map(Timestamp))
    }

    fn job_id(&self, column: &str) -> Result<JobId, Error> {
        self.value::<Uuid>(column).map(|id| JobId::from_bytes(id.into_bytes()))
    }

    fn maybe_job_id(&self, column: &str) -> Result<Option<JobId>, Error> {
        let id = self.value::<Option<Uuid>>(column)?;
        Ok(id.map(|id| JobId::from_bytes(id.into_bytes())))
    }

    fn digest(&self, column: &str) -> Result<Digest, Error> {
        let digest = self.value::<&[u8]>(column)?.try_into();
        digest.map(Digest).map_err(|error| unreadable(column, error))
    }
}

impl Columns for Row {
    fn value<'a, T: FromSql<'a>>(&'a self, column: &str) -> Result<T, Error> {
        self.try_get(column).map_err(|error| Error::Unavailable(describe(&error)))
    }
}

pub(super) fn unreadable(column: &str, error: impl Display) -> Error {
    Error::Unavailable(format!("the column {column} cannot be read: {error}"))
}
