//! A process that may not execute. The denial cannot be undone, so the test needs a separate process: this
//! binary, started a second time for that one test.

use std::io::ErrorKind;
use std::process::Command;

/// The variable that is set in the process that loses the right to execute.
const CONFINED: &str = "HOOKLATCH_TEST_CONFINED";

#[test]
fn no_thread_of_a_confined_process_can_execute_a_program() {
    let confined = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "confine::confined_process"])
        .env(CONFINED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&confined.stdout);
    assert!(confined.status.success() && said.contains("1 passed"), "{said}");
}

/// The confined process. As a normal test it does nothing.
#[test]
fn confined_process() {
    if std::env::var_os(CONFINED).is_none() {
        return;
    }
    // This thread runs before the process is confined.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        wait.recv().unwrap();
        Command::new("true").status().unwrap_err().kind()
    });
    assert!(Command::new("true").status().unwrap().success());
    hooklatch::confine::deny_execution().unwrap();
    assert_eq!(Command::new("true").status().unwrap_err().kind(), ErrorKind::PermissionDenied);
    #[cfg(target_arch = "x86_64")]
    for number in [59, 322, 520, 545] {
        // SAFETY: the path is a null pointer, so the call fails and executes no program.
        let called = unsafe { libc::syscall(0x4000_0000 | number, 0, 0, 0, 0, 0) };
        let error = std::io::Error::last_os_error();
        assert_eq!(
            (called, error.kind()),
            (-1, ErrorKind::PermissionDenied),
            "x32 {number}: {error}"
        );
    }
    go.send(()).unwrap();
    assert_eq!(other.join().unwrap(), ErrorKind::PermissionDenied);
    // Other system calls still work.
    assert!(std::fs::read("/proc/self/status").is_ok());
}
