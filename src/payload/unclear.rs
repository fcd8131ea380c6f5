//! Why a value of an event cannot be known.

/// Why what stands at a place cannot be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body is not a form")]
    NotForm,
    #[error("the compressed body cannot be inflated")]
    Compressed,
    #[error("the event was stored without it: no place named it then")]
    NotKept,
    #[error("it is there twice")]
    Twice,
    #[error("it is not text that can be decoded")]
    NotText,
    #[error("there is too much of it")]
    TooLarge,
}

/// The one item; two leave open which is meant.
pub(crate) fn one<T>(mut items: impl Iterator<Item = T>) -> Result<Option<T>, Unclear> {
    let first = items.next();
    items.next().map_or(Ok(first), |_| Err(Unclear::Twice))
}
