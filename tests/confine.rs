//! A process that may not execute. One test, in a process of its own: what is taken is not given back.

#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::process::Command;

#[test]
fn no_thread_of_a_confined_process_executes_anything() {
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
