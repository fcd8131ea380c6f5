//! The domain types that cross the border of a handle, and its errors. No row number and no connection is among them.

mod accept;
mod audit;
mod backfill;
mod claim;
mod completion;
mod counts;
mod error;
mod find;
mod keyed;
mod node;
mod quarantine;
mod replay;
mod retention;
mod rows;
mod settings;
mod stall;
mod status;

pub use crate::routing::{Delay, Group, NewJob};
pub use accept::*;
pub use audit::*;
pub use backfill::*;
pub use claim::*;
pub use completion::*;
pub use counts::*;
pub use error::*;
pub use find::*;
pub use keyed::*;
pub use node::*;
pub use quarantine::*;
pub use replay::*;
pub use retention::*;
pub use rows::*;
pub use settings::*;
pub use stall::*;
pub use status::*;
