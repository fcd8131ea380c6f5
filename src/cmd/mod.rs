//! One file per subcommand.

pub mod config_check;
