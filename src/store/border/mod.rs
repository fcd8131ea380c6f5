//! The domain types that cross the border of a handle, and its errors. No row number and no connection is among them.

mod accept;
mod audit;
mod claim;
mod completion;
mod error;
mod keyed;
mod quarantine;
mod rows;
mod settings;

pub use crate::routing::{Delay, Group, NewJob};
pub use accept::*;
pub use audit::*;
pub use claim::*;
pub use completion::*;
pub use error::*;
pub use keyed::*;
pub use quarantine::*;
pub use rows::*;
pub use settings::*;
