//! x
use crate::{cli, exit::*};
pub(super) fn run(_: &cli::Verify) -> Result<Exit, Failure> {
    Ok(Exit::Ok)
}
