//! The `hooklatch` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    hooklatch::cmd::main().into()
}
