//! Reads a program's first line as the kernel does (execve(2), "Interpreter scripts"), to say why a file that
//! is there and executable cannot be started.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The bytes of a file that the kernel reads to find its interpreter (BINPRM_BUF_SIZE).
const READ_BYTES: u64 = 256;

/// Why a program cannot be started, and what fixes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The fault, to be written after the program's name.
    pub message: String,
    pub help: String,
}

/// The fault in the first line of `program`, which gets the PATH `path`. `None` also if the file cannot be read,
/// or is a binary of a format that this machine may have registered (binfmt_misc).
pub fn fault(program: &Path, path: &str) -> Option<Fault> {
    let mut start = Vec::new();
    File::open(program).ok()?.take(READ_BYTES).read_to_end(&mut start).ok()?;
    let found = |message: String, help: &str| Some(Fault { message, help: help.to_owned() });
    let Some(line) = start.strip_prefix(b"#!") else {
        let message = "it begins with neither '#!' nor the header of a binary".to_owned();
        let help = "begin its first line with the interpreter, such as #!/bin/sh";
        return if start.contains(&0) { None } else { found(message, help) };
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.ends_with(b"\r") {
        let message = "its first line ends with a carriage return: saved with Windows line ends";
        let file = crate::model::shell_word(&program.display().to_string()).into_owned();
        return found(message.to_owned(), &format!(r"sed -i 's/\r$//' {file}"));
    }
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let interpreter = Path::new(OsStr::from_bytes(&line[..end]));
    if !is_program(interpreter) {
        let shown = interpreter.display();
        let message = format!("its interpreter '{shown}' does not exist or is not executable");
        return found(message, "install it, or correct the first line");
    }
    let name = env_name(&line[end..]).filter(|_| interpreter.ends_with("env"))?;
    let name = OsStr::from_bytes(name);
    let in_folder = |folder: &str| is_program(&PathBuf::from(folder).join(name));
    // A name with a slash is not searched in PATH: joined to "" it stays as it is.
    let found_by_env = match name.as_bytes().contains(&b'/') {
        true => in_folder(""),
        false => path.split(':').filter(|folder| !folder.is_empty()).any(in_folder),
    };
    let shown = name.display();
    let message = format!("its interpreter '{shown}' is in no folder of PATH ({path})");
    if found_by_env {
        return None;
    }
    found(message, "install it, correct the first line, or set PATH under env")
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// The program that `env` is to run. The kernel passes the rest of the line as one argument, which `-S` splits.
/// `None` if it has other options.
fn env_name(argument: &[u8]) -> Option<&[u8]> {
    let argument = argument.trim_ascii();
    let name = match argument.strip_prefix(b"-S") {
        Some(words) => words
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty() && !word.contains(&b'='))?,
        None => argument,
    };
    (!name.is_empty() && !name.starts_with(b"-")).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_first_line_that_the_kernel_cannot_follow_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it's");
        let of = |text: &[u8]| {
            std::fs::write(&file, text).unwrap();
            fault(&file, "/usr/bin:/bin").map(|fault| fault.message)
        };
        for text in [
            "#!/bin/sh\n",
            "#! /bin/sh -e\n",
            "#!/bin/sh",
            "#!/usr/bin/env sh\n",
            "#!/usr/bin/env -S LANG=C sh -e\n",
            "#!/usr/bin/env /bin/sh\n",
            "#!/usr/bin/env -i sh\n",
            "\x7fELF\0",
            "MZ\0",
        ] {
            assert_eq!(of(text.as_bytes()), None, "{text:?}");
        }
        for (text, wanted) in [
            ("#!/bin/sh\r\n", "Windows line ends"),
            ("#!/bin/sh -e\r\necho", "Windows line ends"),
            ("#!/usr/bin/env sh\r", "Windows line ends"),
            ("#!/no/such/ruby -w\n", "interpreter '/no/such/ruby' does not exist"),
            ("#!/tmp\n", "interpreter '/tmp' does not exist or is not executable"),
            ("#!\n", "interpreter '' does not exist"),
            (
                "#!/usr/bin/env no-such-node\n",
                "'no-such-node' is in no folder of PATH (/usr/bin:/bin)",
            ),
            // The kernel splits off one argument, not two.
            ("#!/usr/bin/env sh -e\n", "'sh -e' is in no folder"),
            ("#!/usr/bin/env /no/such/node\n", "'/no/such/node' is in no folder"),
            ("echo hello\n", "neither '#!' nor"),
            ("\u{feff}#!/bin/sh\n", "neither '#!' nor"),
            ("", "neither '#!' nor"),
        ] {
            let found = of(text.as_bytes()).unwrap_or_default();
            assert!(found.contains(wanted), "{text:?}: {found}");
        }
        std::fs::write(&file, "#!/bin/sh\r\n").unwrap();
        let help = fault(&file, "").unwrap().help;
        assert!(help.starts_with(r"sed -i 's/\r$//' '"), "{help}");
        let sed = std::process::Command::new("sh").args(["-c", &help]).status().unwrap();
        assert!(sed.success() && fault(&file, "").is_none(), "{help}");
    }
}
