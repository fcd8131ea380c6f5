//! A second stop signal, and a store whose lock another program holds.

use crate::support::Site;

#[test]
fn a_second_signal_ends_the_wait_and_sent_forwards_are_recorded() {
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::new(&format!(
        "[handlers.slow]\nsource = \"github\"\nevents = [\"*\"]\non_unknown = \"hold\"\n\
         forward = \"http://{}/\"\n",
        endpoint.local_addr().unwrap()
    ));
    let receiver = site.start();
    receiver.github("d-1", "push", "{}");
    let (mut unanswered, _) = endpoint.accept().unwrap();
    // It is sent when its first byte is here.
    std::io::Read::read_exact(&mut unanswered, &mut [0]).unwrap();
    receiver.terminate();
    receiver.log_when(|line| line["message"].as_str().is_some_and(|m| m.starts_with("stopping;")));
    assert_eq!(receiver.stop(), Some(0));
    let job = site.all_jobs(1, "held").remove(0);
    assert_eq!(job["reason"], "unknown outcome");
}

#[test]
fn a_locked_store_is_waited_for_and_then_refused() {
    let site = Site::new("");
    site.start().stop();
    let other = rusqlite::Connection::open(site.path("store.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let output = site.run(&["serve"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(
        said.contains("store.db is in use by a program that has it open with SQLite"),
        "{said}"
    );
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    site.start().stop();
}
