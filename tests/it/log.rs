//! The log of a real receiver: the fields of its lines, the data that must not appear in them, and their
//! number.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::support::{PATIENCE, SECRET, Site, hex, hmac, needs, post};

/// The text that marks data which must not be in the log.
const MARK: &str = "m4rk3d";

const HANDLER: &str = "[handlers.work]\nsource = \"github\"\nevents = [\"*\"]\ncommand = [\"./work\"]\n\
    max_attempts = 1\nenv = { PASSWORD = \"file:secret\", OPEN = \"m4rk3d\" }\n";

/// A receiver whose standard error is a file.
struct Logged {
    child: Child,
    site: Site,
    address: SocketAddr,
}

impl Logged {
    fn start(site: Site, filter: &str) -> Logged {
        let file = File::create(site.path("log")).unwrap();
        let child = site.command(&["serve", "--log", filter]).stderr(file).spawn().unwrap();
        let mut logged = Logged { child, site, address: "127.0.0.1:0".parse().unwrap() };
        let end = Instant::now() + PATIENCE;
        logged.address = loop {
            let serving = logged.lines().into_iter().find(|line| line["message"] == "serving");
            if let Some(line) = serving {
                break line["address"].as_str().unwrap().parse().unwrap();
            }
            assert!(Instant::now() < end && logged.child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        };
        logged
    }

    fn lines(&self) -> Vec<Value> {
        let lines = self.site.lines("log");
        // The last line may be incomplete.
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Stops the receiver and returns every line of its log.
    fn stop(mut self) -> Vec<Value> {
        terminate(&self.child);
        assert!(self.child.wait().unwrap().success());
        self.lines()
    }

    fn github(&self, id: &str, path: &str, body: &str, signed: bool) -> u16 {
        let signature = hex(&hmac(if signed { SECRET } else { "another" }, body.as_bytes()));
        let headers = format!(
            "X-GitHub-Delivery: {id}\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n\
             Authorization: {MARK}\r\nX-Odd: {MARK}\r\n"
        );
        post(self.address, path, &headers, body.as_bytes()).0
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn each_change_by_the_admin_api_is_logged_with_the_uid_of_its_caller() {
    let site = Site::new(HANDLER);
    site.script("work", "exit 0");
    std::fs::write(site.path("secret"), "s3cret").unwrap();
    let logged = Logged::start(site, "info");
    for args in [&["pause", "work"][..], &["status"], &["events"], &["drop", "0199d0a3-5f6c"]] {
        logged.site.run(args);
    }
    let calls: Vec<Value> =
        logged.stop().into_iter().filter(|line| line["message"] == "admin API call").collect();
    assert_eq!(calls.len(), 1, "reading is not logged, and no job was found to drop: {calls:?}");
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(calls[0]["uid"], uid, "{calls:?}");
    assert_eq!(calls[0]["method"], "POST");
    assert_eq!(calls[0]["path"], "/v1/handlers/work/pause");
}

#[test]
fn no_line_has_a_payload_a_secret_a_query_or_a_header() {
    let site = Site::new(HANDLER);
    site.script("work", "cat; echo m4rk3d >&2; exit 1");
    let logged = Logged::start(site, "info,hooklatch=trace");
    let body = format!("{{\"secret\":\"{MARK}\"}}");
    assert_eq!(logged.github("d-1", &format!("/github?token={MARK}"), &body, true), 200);
    assert_eq!(logged.github("d-2", "/github", &body, false), 401);
    assert_eq!(logged.github(&format!("-{MARK}"), "/github", "{}", true), 200);
    assert_eq!(logged.github("d-3", &format!("/{MARK}?token={MARK}"), &body, true), 404);
    let stripe = format!("Stripe-Signature: t={MARK},v1={MARK}\r\n");
    assert_eq!(post(logged.address, "/stripe", &stripe, body.as_bytes()).0, 401);
    let mut stream = TcpStream::connect(logged.address).unwrap();
    stream.write_all(format!("{MARK} {MARK}\r\n{MARK}\r\n\r\n").as_bytes()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    logged.site.all_jobs(2, "dead");
    let lines = logged.stop();
    let forbidden =
        [MARK, SECRET, "token=", &hex(&hmac(SECRET, body.as_bytes()))[..16]].map(str::to_owned);
    for line in &lines {
        let text = line.to_string();
        assert!(!forbidden.iter().any(|text_of| text.contains(text_of.as_str())), "{text}");
    }
    let accepted = lines.iter().find(|line| line["answer"] == "accepted").unwrap();
    let logged = ["source", "event", "type", "jobs", "bytes"].map(|field| accepted[field].clone());
    let wanted = json!(["github", "d-1", "push", 1, body.len()]);
    assert_eq!(json!(logged), wanted);
    assert!(accepted["millis"].is_u64());
    let ended = lines.iter().find(|line| line["message"] == "ended").unwrap();
    for field in ["source", "event", "job", "attempt", "handler", "outcome"] {
        assert!(!ended[field].is_null(), "{field} of {ended}");
    }
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["level"].is_string()));
}

#[test]
fn a_derived_id_is_logged_with_its_reason_for_an_event_and_for_a_list() {
    let lists =
        "[sources.lists]\nprovider = \"line\"\npath = \"/lists\"\nsecrets = [\"file:secret\"]\n";
    let logged = Logged::start(Site::new(lists), "info");
    let bodies = [
        r#"{"events":[{"webhookEventId":"a"},{"webhookEventId":"-b"},{}]}"#,
        r#"{"events":[{"webhookEventId":"c"}]}"#,
    ];
    for body in bodies {
        let signature = BASE64.encode(&hmac(SECRET, body.as_bytes()));
        let header = format!("X-Line-Signature: {signature}\r\n");
        assert_eq!(post(logged.address, "/lists", &header, body.as_bytes()).0, 200);
    }
    assert_eq!(logged.github("-odd", "/github", "{}", true), 200);
    assert_eq!(logged.github("even", "/github", "[]", true), 200);
    let lines = logged.stop();
    let deliveries = lines.iter().filter(|line| line["message"] == "delivery");
    let said = deliveries.map(|line| json!([line["source"], line["id_faults"], line["id_fault"]]));
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            json!(["lists", 2, "bad_id"]),
            json!(["lists", 0, null]),
            json!(["github", null, "bad_id"]),
            json!(["github", null, null]),
        ]
    );
}

/// One endpoint cannot be reached, one closes the connection, and one refuses, so that each attempt's
/// details name a URL.
#[test]
fn a_forwards_query_is_in_no_log_store_backup_or_output() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (hangs_up, refuses) = ["", "HTTP/1.1 410 Gone\r\n\r\n"].map(endpoint).into();
    let handler = |(name, at): (&str, SocketAddr)| {
        format!(
            "[handlers.{name}]\nsource = \"github\"\nevents = [\"*\"]\non_unknown = \"hold\"\n\
             forward = \"http://{at}/hook?token={MARK}\"\n"
        )
    };
    let handlers = [("closed", closed), ("hangs-up", hangs_up), ("refuses", refuses)].map(handler);
    let logged = Logged::start(Site::new(&handlers.concat()), "info,hooklatch=trace");
    assert_eq!(logged.github("d-1", "/github", "{}", true), 200);
    logged.site.jobs_when(|jobs| {
        let in_state = |state: &str| jobs.iter().filter(|job| job["state"] == state).count();
        (in_state("held"), in_state("dead"), in_state("ready")) == (1, 1, 1)
    });
    let mut all = Vec::new();
    for command in [
        "show d-1",
        "explain d-1",
        "jobs",
        "status",
        "events",
        "doctor",
        "config show",
        "config check",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        for args in [args.clone(), [args, vec!["--json"]].concat()] {
            let output = logged.site.run(&args);
            all.push((args.join(" "), [output.stdout, output.stderr].concat()));
        }
    }
    let explained = String::from_utf8_lossy(&all[2].1).into_owned();
    assert!(explained.contains(&format!("http://{closed}/hook?…")), "{explained}");
    let backup = logged.site.path("backup.db");
    assert!(logged.site.run(&["backup", backup.to_str().unwrap()]).status.success());
    let (folder, log) = (backup.parent().unwrap().to_owned(), logged.site.path("log"));
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.is_file() && *file != logged.site.config());
    all.extend(files.map(|file| (file.display().to_string(), std::fs::read(file).unwrap())));
    assert!(all.iter().any(|(name, _)| *name == log.display().to_string()));
    let has_mark = |bytes: &[u8]| bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes());
    for (name, bytes) in &all {
        assert!(!has_mark(bytes), "{name}: {}", String::from_utf8_lossy(bytes));
    }
}

/// Starts an endpoint that reads each request, sends this answer, and closes the connection.
fn endpoint(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _some = stream.read(&mut [0; 4096]);
            let _sent = stream.write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn a_delivery_has_one_log_line_and_repeated_failures_are_summed() {
    let logged = Logged::start(Site::new(""), "info");
    for n in 0..20 {
        assert_eq!(logged.github(&format!("d-{n}"), "/github", "{}", false), 401);
        assert_eq!(post(logged.address, &format!("/scan-{n}"), "", b"").0, 404);
    }
    // The receiver keeps each connection for a second after its answer, so the test opens all at once.
    let mut strange: Vec<_> =
        (0..20).map(|_| TcpStream::connect(logged.address).unwrap()).collect();
    strange.iter_mut().for_each(|stream| stream.write_all(b"nonsense\r\n\r\n").unwrap());
    for mut stream in strange {
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    for n in 0..3 {
        logged.github(&format!("good-{n}"), "/github", &format!("[{n}]"), true);
    }
    let lines = logged.stop();
    let of = |reason: &str| -> Vec<_> {
        lines
            .iter()
            .filter(|line| line["reason"] == reason)
            .map(|line| line["count"].clone())
            .collect()
    };
    let sum = |counts: Vec<Value>| -> u64 {
        // The first line has no count; on a slow machine there is more than one sum.
        assert!(counts[0].is_null() && counts.len() < 10, "{counts:?}");
        1 + counts[1..].iter().map(|count| count.as_u64().unwrap_or(1)).sum::<u64>()
    };
    assert_eq!(sum(of("bad_signature")), 20);
    assert_eq!(sum(of("unknown_path")), 20);
    assert_eq!(sum(of("unreadable")), 20);
    let good = lines.iter().filter(|line| line["answer"] == "accepted").count();
    assert_eq!(good, 3);
}

#[test]
fn a_log_that_is_not_read_does_not_delay_deliveries_or_the_stop() {
    let site = Site::new("");
    let mut child = site.command(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let address: SocketAddr = loop {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0);
        let fields: Value = serde_json::from_str(&line).unwrap_or_default();
        if fields["message"] == "serving" {
            break fields["address"].as_str().unwrap().parse().unwrap();
        }
    };
    // A pipe holds 64 KiB, which is about 300 lines.
    let logged = Logged { child, site, address };
    for n in 0..600 {
        assert_eq!(logged.github(&format!("d-{n}"), "/github", &format!("[{n}]"), true), 200);
    }
    let Logged { child, .. } = &logged;
    terminate(child);
    let begun = Instant::now();
    let mut logged = logged;
    assert!(logged.child.wait().unwrap().success());
    assert!(begun.elapsed() < PATIENCE / 2, "the stop must not wait for a reader either");
    drop(stderr);
}

/// The receiver finds this test's socket at the path of the journal's, in a separate mount namespace.
#[test]
fn the_journal_gets_fields_if_standard_error_is_the_journal() {
    if let Err(why) = may_mount() {
        eprintln!("{why}");
        return needs::missing("mounts", "run as root with CAP_SYS_ADMIN");
    }
    let site = Site::new(HANDLER);
    site.script("work", "exit 0");
    let folder = site.path("journal");
    std::fs::create_dir(&folder).unwrap();
    let journal = UnixDatagram::bind(folder.join("socket")).unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let stderr = File::create(site.path("log")).unwrap();
    let stat = rustix::fs::fstat(&stderr).unwrap();
    let enter = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                 mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";
    let serve = site.command(&["serve"]);
    let mut child = Command::new("unshare");
    child.args(["--mount", "sh", "-c", enter]).arg(&folder).arg(serve.get_program());
    child.args(serve.get_args()).env("HOOKLATCH_CONFIG", site.config()).env_remove("INVOCATION_ID");
    child.env("JOURNAL_STREAM", format!("{}:{}", stat.st_dev, stat.st_ino)).stderr(stderr);
    let child = child.spawn().unwrap();
    let mut logged = Logged { child, site, address: "127.0.0.1:0".parse().unwrap() };
    let mut block = vec![0; 64 * 1024];
    let mut entry = |message: &str| loop {
        let bytes = journal.recv(&mut block).expect("the entry did not come");
        let text = String::from_utf8(block[..bytes].to_vec()).unwrap();
        if text.starts_with(&format!("MESSAGE={message} ")) {
            return text;
        }
    };
    let serving = entry("serving");
    let address = serving.lines().find_map(|line| line.strip_prefix("HOOKLATCH_ADDRESS="));
    logged.address = address.unwrap().parse().unwrap();
    assert_eq!(logged.github("d-1", "/github", "{}", true), 200);
    let delivery = entry("delivery");
    for field in
        ["PRIORITY=6", "HOOKLATCH_SOURCE=github", "HOOKLATCH_EVENT=d-1", "HOOKLATCH_JOBS=1"]
    {
        assert!(delivery.lines().any(|line| line == field), "{field} of {delivery}");
    }
    let ended = entry("ended");
    for field in
        ["HOOKLATCH_EVENT=d-1", "HOOKLATCH_ATTEMPT=1", "HOOKLATCH_HANDLER=work", "HOOKLATCH_JOB="]
    {
        assert!(ended.lines().any(|line| line.starts_with(field)), "{field} of {ended}");
    }
    assert!(logged.stop().is_empty(), "lines were also written to standard error");
}

/// Checks that the test can create a mount namespace and mount in it.
fn may_mount() -> Result<(), String> {
    let output =
        Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    }
}
