//! Compares the appliance with adnanh/webhook, the usual tool for the task. That program verifies and
//! executes, but it does not store events, and it answers before its command has begun.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::accepts::Fresh;
use super::load::flood;
use super::requests::{Kind, SECRET};
use super::site::{HANDLER, Site};
use super::size::settle;
use super::table::{Bounds, Good, REPORTED_HIGH, Table};

/// The program's name, as Debian's package `webhook` installs it.
const PROGRAM: &str = "webhook";

/// The number of concurrent connections.
const CONNECTIONS: usize = 64;

/// The deliveries of one round. webhook holds each in memory until its command has run, about 40 KB; the
/// appliance's jobs run between two rounds, for some seconds.
const EVENTS: usize = 8_000;

/// The longest wait until webhook listens, and until its commands are done.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn measure(table: &Table) {
    let fresh = Fresh::default();
    for (name, runs) in [
        ("accepts beside adnanh/webhook, both execute /bin/true", true),
        ("accepts beside adnanh/webhook, which executes; here for later (paused)", false),
    ] {
        if table.wants(name) {
            compare(table, &fresh, name, runs);
        }
    }
}

fn compare(table: &Table, fresh: &Fresh, name: &str, runs: bool) {
    let site = Site::new(&HANDLER.replace("SOURCE", "github"));
    let Some(webhook) = Webhook::start(&site) else {
        return table.remark(&format!("left out, no program `{PROGRAM}`: {name}"));
    };
    let receiver = site.start();
    if !runs {
        site.pause();
    }
    let events = EVENTS / table.effort.divide;
    let round = |address| {
        let requests = fresh.take(Kind::GitHub, events);
        flood(address, &requests, CONNECTIONS, 200).rate()
    };
    let theirs = || {
        let rate = round(webhook.address);
        webhook.settle();
        rate
    };
    let ours = || {
        let rate = round(receiver.address);
        if runs {
            settle(&site);
        }
        rate
    };
    table.compare(
        name,
        Bounds { good: Good::High, floor: REPORTED_HIGH, aim: 8.0 },
        "/s",
        theirs,
        ours,
    );
}

/// A running webhook process. Dropping it ends the process.
struct Webhook {
    child: Child,
    address: SocketAddr,
}

impl Webhook {
    /// Starts webhook with one hook for the path and the secret of the GitHub source; `None` if it is not
    /// installed.
    fn start(site: &Site) -> Option<Self> {
        let hooks = serde_json::json!([{
            "id": Kind::GitHub.path().trim_start_matches('/'),
            "execute-command": "/bin/true",
            // Without this webhook answers a forgery with 200 too.
            "trigger-rule-mismatch-http-response-code": 403,
            "trigger-rule": { "match": {
                "type": "payload-hmac-sha256",
                "secret": SECRET,
                "parameter": { "source": "header", "name": "X-Hub-Signature-256" },
            } },
        }]);
        let file = site.path("hooks.json");
        fs::write(&file, hooks.to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        // webhook needs a port number, so the bench picks one that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(PROGRAM)
            .arg("-hooks")
            .arg(file)
            .args(["-urlprefix", "", "-ip", "127.0.0.1", "-port"])
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let webhook = Webhook { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < PATIENCE, "{PROGRAM} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(webhook)
    }

    /// Waits until it has executed all deliveries: until it and its commands use no more processor time.
    fn settle(&self) {
        let (begun, mut last) = (Instant::now(), self.ticks());
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.ticks();
            if now == last {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{PROGRAM} does not come to an end");
            last = now;
        }
    }

    /// The processor time of it and its commands so far, in clock ticks.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // utime, stime, cutime, cstime: fields 14 to 17 (proc_pid_stat(5)); the name ends with `)`.
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(4);
        fields.map(|field| field.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
