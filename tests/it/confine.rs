//! A process that may not execute. The denial cannot be undone, so the test needs a separate process: this
//! binary, started a second time for that one test.

use std::io::ErrorKind;
use std::process::Command;

/// Set in the process that loses the right to execute.
const CONFINED: &str = "HOOKLATCH_TEST_CONFINED";

#[test]
fn no_thread_of_a_confined_process_executes_anything() {
    let confined = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "confine::confined_process"])
        .env(CONFINED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&confined.stdout);
    assert!(confined.status.success() && said.contains("1 passed"), "{said}");
}

/// Does nothing but in the process that the test above starts.
#[test]
fn confined_process() {
    if std::env::var_os(CONFINED).is_none() {
        return;
    }
    // Under way already when the right is taken.
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
        // SAFETY: a call that executes nothing: no program is named.
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
    // Everything else goes on.
    assert!(std::fs::read("/proc/self/status").is_ok());
}
