//! Runners that others start, reached by name: real processes on real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

#[path = "it/support.rs"]
#[allow(dead_code, reason = "shared with other test binaries, which use other parts")]
mod support;

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use support::{Receiver, Site, stripe_event};

const HANDLERS: &str = r#"
[handlers.note]
source = "stripe"
events = ["note.*"]
command = ["./note"]
"#;

/// A site whose runners are started by the test; each works in a folder of its own.
struct Yard {
    site: Site,
}

/// A runner; dropped, it is killed.
struct Runner(Child);

impl Yard {
    fn new(handlers: &str) -> Self {
        let yard = Yard { site: Site::new(handlers) };
        std::fs::DirBuilder::new().mode(0o700).create(yard.sockets()).unwrap();
        yard.site.script("note", "echo \"$HOOKLATCH_EVENT_ID\" >> \"$SITE/noted\"");
        yard
    }

    /// The folder of the sockets.
    fn sockets(&self) -> PathBuf {
        self.site.path("sockets")
    }

    fn serve(&self) -> Command {
        let mut command = self.site.command(&["serve"]);
        command.arg("--runners").arg(self.sockets());
        command
    }

    fn receiver(&self) -> Receiver {
        Receiver::of(self.serve()).unwrap()
    }

    /// Starts the runner called `name`; its socket is linked to where the receiver looks for it.
    fn runner(&self, name: &str) -> Runner {
        let folder = self.site.path(name);
        let link = self.sockets().join(format!("{name}.socket"));
        let _there_already =
            std::os::unix::fs::symlink(folder.join(format!("{name}.socket")), link);
        let mut command = self.site.command(&["runner", "--name", name]);
        Runner(command.arg("--folder").arg(folder).spawn().unwrap())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_runner_is_launched_and_the_error_names_the_unit() {
    let yard = Yard::new(HANDLERS);
    let receiver = yard.receiver();
    assert_eq!(receiver.stripe(&stripe_event("evt_1", "note.a", ""), 0).0, 200);
    let said = receiver.log_when(|line| line["level"] == "ERROR");
    let said = said["message"].as_str().unwrap();
    assert!(said.contains("default.socket") && said.contains("hooklatch-runner.service"), "{said}");
    assert!(!yard.site.path("store.db.runner").exists() && yard.site.lines("noted").is_empty());
    let _runner = yard.runner("default");
    yard.site.all_jobs(1, "succeeded");
    assert!(yard.site.path("default/lock").exists());
    assert_eq!(receiver.stop(), Some(0));
}
