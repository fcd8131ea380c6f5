//! BODY: passes a stored body on in parts, for both engines. It takes some 2 MiB of memory, whatever the body's size.

use std::io::ErrorKind;

use bytes::Bytes;

use crate::store::border::{BodyOf, Error};
use crate::store::codec::Unpacker;
use crate::store::columns::unreadable;
use crate::store::handles::Admin;

/// A body that is read.
pub struct BodyParts {
    store: Admin,
    of: BodyOf,
    unpacker: Unpacker,
    /// Of the stored form: what was read and not yet taken.
    piece: Bytes,
    /// Bytes of the stored form that were read.
    read: u64,
}

impl Admin {
    /// Begins to read a body; nothing where it is not kept, or not any more.
    pub async fn body(&self, of: BodyOf) -> Result<Option<BodyParts>, Error> {
        let Some(piece) = self.body_piece(of.clone(), 0).await? else { return Ok(None) };
        let unpacker = Unpacker::new().map_err(|error| unreadable("body", error))?;
        let (store, read) = (self.clone(), piece.len() as u64);
        Ok(Some(BodyParts { store, of, unpacker, piece: piece.into(), read }))
    }

    /// Reads a body to its end, where it is kept. A damaged one is an error.
    pub async fn check_body(&self, of: BodyOf) -> Result<(), Error> {
        let Some(mut parts) = self.body(of).await? else { return Ok(()) };
        while parts.part().await?.is_some() {}
        Ok(())
    }
}

impl BodyParts {
    /// The next part; none at the end.
    ///
    /// # Errors
    /// Where the body is deleted or damaged: what came before is not the whole of it.
    pub async fn part(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let part = self.unpacker.part(&mut self.piece);
            let part = part.map_err(|error| match error.kind() {
                ErrorKind::InvalidData => Error::Damaged(error.to_string()),
                _ => unreadable("body", error),
            })?;
            if !part.is_empty() {
                return Ok(Some(part.into()));
            }
            let piece = self.store.body_piece(self.of.clone(), self.read).await?;
            let piece = piece.ok_or_else(|| unreadable("body", "it was deleted meanwhile"))?;
            if piece.is_empty() {
                return match self.unpacker.is_whole() {
                    true => Ok(None),
                    false => Err(Error::Damaged("it is cut".to_owned())),
                };
            }
            self.read += piece.len() as u64;
            self.piece = piece.into();
        }
    }
}
