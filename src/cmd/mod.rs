//! x
pub mod verify;
