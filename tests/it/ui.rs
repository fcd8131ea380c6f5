//! The dashboard over its own socket, beside a real receiver: who gets in, what each role may do, what each page
//! answers, and what becomes of hostile texts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Receiver, Site, stripe_event};

const HANDLERS: &str = r#"
[handlers.fulfil]
source = "stripe"
events = ["*"]
command = ["/bin/sh", "-c", "echo '<script>alert(1)</script>'; exit 65"]
[handlers.lost]
source = "stripe"
events = ["lost.*"]
command = ["/bin/sh", "-c", "kill -9 $$"]
"#;

/// A dashboard and the session of one browser.
pub(crate) struct Dashboard {
    process: Child,
    pub(crate) port: u16,
    link: String,
    cookie: String,
    /// The name of a configured dashboard. `socket` is its Unix socket, if it has one.
    name: Option<String>,
    socket: Option<PathBuf>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a page of the dashboard sends with a form.
const OWN: &str = "Sec-Fetch-Site: same-origin\r\n";

/// An answer: status, header lines, body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The addresses in the page that begin so.
    fn links(&self, begin: &str) -> Vec<String> {
        let parts = self.body.split("href=\"").skip(1);
        let links =
            parts.filter_map(|part| part.split('"').next()).filter(|to| to.starts_with(begin));
        links.map(|to| to.replace("&amp;", "&")).collect()
    }

    /// The hidden fields of the form, as a body.
    fn fields(&self) -> String {
        let parts = self.body.split("<input type=\"hidden\" name=\"").skip(1);
        let mut body = form_urlencoded::Serializer::new(String::new());
        for part in parts {
            let (name, rest) = part.split_once("\" value=\"").unwrap();
            body.append_pair(name, rest.split('"').next().unwrap());
        }
        body.finish()
    }
}

impl Dashboard {
    pub(crate) fn start(site: &Site, options: &[&str]) -> Dashboard {
        Self::of(site.command(&[&["ui", "--port", "0"], options].concat()))
    }

    /// One that this command starts.
    pub(crate) fn of(mut command: Command) -> Dashboard {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let (host, link) = address.split_once('/').unwrap();
        let port = host.rsplit(':').next().unwrap().parse().unwrap();
        let (link, cookie) = (format!("/{link}"), String::new());
        Dashboard { process, port, link, cookie, name: None, socket: None }
    }

    /// One as the site's `[dashboard]` says.
    fn configured(site: &Site) -> Dashboard {
        let mut command = site.command(&["ui", "--configured"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (origin, place) = line.trim().split_once(" listens on ").unwrap();
        let name = origin.split_once("://").unwrap().1.to_owned();
        let socket = place.strip_prefix("unix:").map(PathBuf::from);
        let port = place.rsplit(':').next().unwrap().parse().unwrap_or_default();
        let (link, cookie) = (String::new(), String::new());
        Dashboard { process, port, link, cookie, name: Some(name), socket }
    }

    /// Types a token into the login page.
    fn log_in(&self, token: &str) -> Answer {
        self.post("/login", OWN, &format!("token={token}&to=/"))
    }

    /// Sends the cookie of a login with every further request.
    fn keep(&mut self, answer: &Answer) {
        assert_eq!(answer.status, 303, "{}", answer.body);
        let cookie = answer.header("set-cookie").unwrap();
        self.cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    }

    /// Uses the link up.
    pub(crate) fn enter(mut self) -> Dashboard {
        let answer = self.get(&self.link);
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        self.keep(&answer);
        self
    }

    fn host(&self) -> String {
        match &self.name {
            Some(name) => format!("Host: {name}\r\n"),
            None => format!("Host: 127.0.0.1:{}\r\n", self.port),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\n{}{}", self.host(), self.cookie), "")
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        let head = format!(
            "POST {path} HTTP/1.1\r\n{}{}{headers}Content-Length: {}\r\n",
            self.host(),
            self.cookie,
            body.len()
        );
        self.send(&head, body)
    }

    /// Opens the page of a change and submits its form.
    fn change(&self, path: &str, more: &str) -> Answer {
        let page = self.get(path);
        assert_eq!(page.status, 200, "{path}");
        let body = format!("{}&{more}", page.fields());
        let path = path.split('?').next().unwrap();
        self.post(path, OWN, &body)
    }

    fn connect(&self) -> Box<dyn Stream> {
        match &self.socket {
            Some(path) => Box::new(UnixStream::connect(path).unwrap()),
            None => Box::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap()),
        }
    }

    /// The status of an answer, which may not end.
    fn status(&self, method: &str, path: &str) -> u16 {
        let mut stream = self.connect();
        let (host, cookie) = (self.host(), &self.cookie);
        let form = "Content-Length: 7\r\nConnection: close\r\n\r\nform=00";
        write!(stream, "{method} {path} HTTP/1.1\r\n{host}{cookie}{OWN}{form}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn send(&self, head: &str, body: &str) -> Answer {
        let mut stream = self.connect();
        write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }
}

/// A site with a dead job and a held one of an event.
fn stopped() -> (Site, Receiver) {
    let site = Site::new(HANDLERS);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_lost", "lost.one", ""), 0);
    site.jobs_when(|jobs| {
        jobs.iter().filter(|job| ["held", "dead"].contains(&job["state"].as_str().unwrap())).count()
            == 2
    });
    (site, receiver)
}

const PAGES: &[&str] = &[
    "/",
    "/inbox",
    "/events",
    "/event?source=stripe&id=evt_lost",
    "/handlers",
    "/sources",
    "/quarantine",
    "/audit",
    "/more",
];

#[test]
fn nothing_is_shown_without_a_session_or_under_another_name() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]);
    for page in
        PAGES.iter().chain(&["/live?of=/", "/raw?source=stripe&id=evt_lost", "/change/reload"])
    {
        let answer = dashboard.get(page);
        assert_eq!(answer.status, 403, "{page}");
        assert!(!answer.body.contains("evt_lost"), "{page}");
    }
    assert_eq!(dashboard.post("/change/reload", "", "").status, 403);
    let dashboard = dashboard.enter();
    for host in ["evil.test", "localhost.evil.test", "127.0.0.1", "127.0.0.1:1", "a\r\nHost: b"] {
        let answer =
            dashboard.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n{}", dashboard.cookie), "");
        assert!([400, 421].contains(&answer.status), "{host}: {}", answer.status);
    }
    // The link is used up, whoever brings it; and a cookie cannot be guessed from it.
    assert_eq!(dashboard.get(&dashboard.link).status, 403);
}

#[test]
fn a_link_is_not_used_up_ahead_of_time() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]);
    let head =
        format!("GET {} HTTP/1.1\r\n{}Sec-Purpose: prefetch\r\n", dashboard.link, dashboard.host());
    assert_eq!(dashboard.send(&head, "").status, 503);
    dashboard.enter();
}

#[test]
fn every_answer_has_the_headers_that_shut_others_out() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let style = dashboard.get("/").links("/assets/").into_iter().find(|to| to.ends_with(".css"));
    let style = style.unwrap();
    for page in
        PAGES.iter().chain(&["/none", "/change/pause?handler=fulfil", "/change/none", &*style])
    {
        let answer = dashboard.get(page);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{page}");
        assert!(!policy.contains("unsafe"), "{page}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{page}");
        }
        let cached =
            if *page == style { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), Some(cached), "{page}");
        assert!(!answer.body.contains("style=") && !answer.body.contains(" onclick"), "{page}");
    }
}

#[test]
fn a_change_comes_from_a_form_of_this_dashboard_once() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let page = dashboard.get("/change/pause?handler=fulfil");
    let fields = page.fields();
    let own = "Sec-Fetch-Site: same-origin\r\n";
    let origin = format!("Origin: http://127.0.0.1:{}\r\n", dashboard.port);
    for (headers, body) in [
        ("", fields.as_str()),
        ("Sec-Fetch-Site: same-site\r\n", &fields),
        ("Sec-Fetch-Site: cross-site\r\n", &fields),
        ("Origin: null\r\n", &fields),
        ("Origin: http://evil.test\r\n", &fields),
        (own, "handler=fulfil"),
        (own, "handler=fulfil&form=00"),
    ] {
        assert_eq!(dashboard.post("/change/pause", headers, body).status, 403, "{headers}{body}");
    }
    let is_paused = || site.json(&["pause"]).to_string().contains("fulfil");
    assert!(!is_paused());
    let first = dashboard.post("/change/pause", &origin, &fields);
    assert_eq!((first.status, first.header("location")), (303, Some("/handlers")));
    assert!(is_paused());
    dashboard.change("/change/resume?handler=fulfil", "");
    // A second click shows the first one's result, and does nothing.
    let second = dashboard.post("/change/pause", own, &fields);
    assert_eq!((second.status, second.header("location")), (303, Some("/handlers")));
    assert!(!is_paused());
    let elsewhere = dashboard.get("/change/pause?handler=fulfil").fields();
    assert_eq!(dashboard.post("/other/pause", own, &elsewhere).status, 404);
    assert!(!is_paused());
    let large = "x".repeat(70_000);
    assert_eq!(dashboard.post("/change/pause", own, &large).status, 400);
}

#[test]
fn who_may_look_only_changes_nothing() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &["--view"]).enter();
    for page in PAGES {
        assert_eq!(dashboard.get(page).status, 200, "{page}");
    }
    let event = dashboard.get("/event?source=stripe&id=evt_lost");
    for to in event.links("/change/").iter().map(String::as_str).chain(["/change/reload"]) {
        assert_eq!(dashboard.get(to).status, 409, "{to}");
        let path = to.split('?').next().unwrap();
        let answer = dashboard.post(path, "Sec-Fetch-Site: same-origin\r\n", "form=00");
        assert_eq!(answer.status, 403, "{to}");
    }
}

#[test]
fn jobs_are_settled_one_by_one_and_together() {
    let (site, receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let event = dashboard.get("/event?source=stripe&id=evt_lost");
    let did = event.links("/change/succeeded");
    assert_eq!(did.len(), 1);
    let answer = dashboard.change(&did[0], "note=looked+it+up");
    assert!(answer.header("location").unwrap().starts_with("/event?source=stripe&id=evt_lost#"));
    let said = site.json(&["audit"]);
    assert_eq!((&said[0]["verb"], &said[0]["via"]), (&"resolve".into(), &"dashboard".into()));
    assert_eq!(said[0]["reason"], "looked it up");
    assert!(dashboard.get("/audit").body.contains("looked it up"));
    // An old page's form finds another job than it showed.
    let stale = format!("{}&attempt=7", did[0].split("&attempt").next().unwrap());
    assert_eq!(dashboard.get(&stale).status, 409);
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded"));

    for number in 0..3 {
        receiver.stripe(&stripe_event(&format!("evt_{number}"), "invoice.paid", ""), 0);
    }
    let dead = |count| {
        move |jobs: &[serde_json::Value]| {
            jobs.iter().filter(|job| job["state"] == "dead").count() == count
        }
    };
    site.jobs_when(dead(4));
    let inbox = dashboard.get("/inbox");
    let groups = inbox.links("/inbox?state=dead");
    let group = groups.into_iter().find(|to| to.contains("handler=")).unwrap();
    let open = dashboard.get(&group);
    let one = open.links("/change/replay").into_iter().find(|to| to.contains("one=1")).unwrap();
    let work = dashboard.change(&one, "").header("location").unwrap().to_owned();
    let replays = |jobs: &[serde_json::Value]| -> u64 {
        jobs.iter().map(|job| job["replays"].as_u64().unwrap()).sum()
    };
    site.jobs_when(|jobs| replays(jobs) == 1 && dead(4)(jobs));
    let progress = dashboard.get(&work);
    assert!(progress.body.contains("1 of 4"), "{}", progress.body);
    let rest = progress.links("/change/rest").remove(0);
    dashboard.change(&rest, "");
    site.jobs_when(|jobs| replays(jobs) == 4 && dead(4)(jobs));

    let drop = open.links("/change/drop").remove(0);
    let unsure = dashboard.change(&drop, "number=3");
    assert_eq!(unsure.status, 409, "the number was wrong");
    site.jobs_when(dead(4));
    dashboard.change(&drop, "number=4");
    site.jobs_when(|jobs| jobs.iter().filter(|job| job["state"] == "dropped").count() == 4);
}

#[test]
fn hostile_texts_are_texts() {
    let site = Site::new(HANDLERS);
    let receiver = site.start();
    let cross = "\\\"><img src=x onerror=alert(1)><script>alert(2)</script>\\u202e'";
    let id = "evt_x";
    receiver.stripe(&stripe_event(id, "a.<b>&'", &format!(r#","note":"{cross}","<i>":1"#)), 0);
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "dead"));
    crate::support::post(
        receiver.address,
        "/stripe",
        "Stripe-Signature: <script>\r\n",
        b"<script>alert(3)</script>",
    );
    crate::support::post(receiver.address, "/<script>alert(4)</script>", "", b"x");
    let dashboard = Dashboard::start(&site, &[]).enter();
    let target = "/event?source=stripe&id=evt_x&find=%3Cscript%3E";
    let found = "/find?id=%22%3E%3Cscript%3Ealert(5)%3C%2Fscript%3E";
    let typed = "/events?type=%22%3E%3Cscript%3E";
    for page in
        PAGES.iter().filter(|page| !page.contains("evt_lost")).chain(&[target, found, typed])
    {
        let answer = dashboard.get(page);
        let scripts = answer.body.matches("<script").count();
        assert_eq!(scripts, 1, "{page}: the page's own alone");
        for tag in ["<img", "<b>&'", "<i>", "\u{202e}"] {
            assert!(!answer.body.contains(tag), "{page}: {tag}");
        }
    }
    let raw = dashboard.get("/raw?source=stripe&id=evt_x");
    assert_eq!(raw.header("content-type"), Some("application/octet-stream"));
    assert_eq!(raw.header("content-disposition"), Some("attachment; filename=\"body\""));
}

#[test]
fn the_search_finds_an_event_by_its_senders_own_id() {
    let site = Site::new(HANDLERS);
    let receiver = site.start();
    receiver.stripe(&stripe_event("-evt odd", "invoice.paid", ""), 0);
    let id = site.json(&["events"])[0]["event_id"].as_str().unwrap().to_owned();
    let digits = id.strip_prefix("sha256:").unwrap();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let found = dashboard.get("/find?id=-evt+odd");
    let to = format!("/event?id=sha256%3A{digits}");
    assert_eq!((found.status, found.header("location")), (303, Some(&*to)), "{}", found.body);
    let page = dashboard.get(&to);
    assert!(page.status == 200 && page.body.contains(digits), "{}", page.body);
}

#[test]
fn a_token_in_a_body_is_masked_until_it_is_asked_for() {
    let site = Site::new(
        "[sources.graph]\nprovider = \"microsoft-graph\"\npath = \"/graph\"\nsecrets = [\"file:secret\"]\n",
    );
    let token = std::fs::read_to_string(site.path("secret")).unwrap().trim().to_owned();
    let receiver = site.start();
    let body = format!(r#"{{"value":[{{"clientState":"{token}","changeType":"updated"}}]}}"#);
    assert_eq!(crate::support::post(receiver.address, "/graph", "", body.as_bytes()).0, 200);
    let id = site.json(&["events"])[0]["event_id"].as_str().unwrap().to_owned();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let page = |more: &str| dashboard.get(&format!("/event?source=graph&id={id}{more}")).body;
    assert!(page("").contains("***") && !page("").contains(&token));
    assert!(page("&secrets=1").contains(&token));
}

#[test]
fn without_a_receiver_the_page_names_the_command() {
    let (site, receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    assert_eq!(dashboard.get("/").status, 200);
    receiver.kill();
    let gone = dashboard.get("/");
    assert_eq!(gone.status, 503);
    assert!(gone.body.contains("hooklatch serve"), "{}", gone.body);
    let _receiver = site.start();
    assert_eq!(dashboard.get("/").status, 200);
}

#[test]
fn a_followed_page_comes_again_when_it_changes() {
    let (site, receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).unwrap();
    write!(
        stream,
        "GET /live?of=%2Fevents HTTP/1.1\r\n{}{}\r\n",
        dashboard.host(),
        dashboard.cookie
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: page"));
    receiver.stripe(&stripe_event("evt_new", "invoice.paid", ""), 0);
    assert!(lines.any(|line| line.contains("evt_new")));
    receiver.kill();
    assert!(lines.any(|line| line == "event: gone"));
}

#[test]
fn the_assets_are_small() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let page = dashboard.get("/");
    let files = page.body.split('"').filter(|text| text.starts_with("/assets/"));
    let mut files: Vec<&str> = files.map(|path| path.split('#').next().unwrap()).collect();
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), 4);
    let bytes: usize = files.iter().map(|path| dashboard.get(path).body.len()).sum();
    assert!(bytes < 60 * 1024, "{bytes} bytes");
}

#[test]
fn a_source_is_tried_from_its_page() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    let sources = dashboard.get("/sources");
    let test = sources.links("/change/test?source=stripe").remove(0);
    let sent = dashboard.change(&test, "type=invoice.paid");
    let event = sent.header("location").unwrap();
    assert!(event.starts_with("/event?source=stripe&id="), "{event}");
    assert!(dashboard.get(event).body.contains("invoice.paid"));
    let wrong = dashboard.change(&test, "type=");
    assert_eq!(wrong.status, 400);
}

const OPERATE: &str = "operate-0123456789-0123456789-0123456789";
const VIEW: &str = "view-0123456789-0123456789-0123456789";

/// The token of each role, and what else `[dashboard]` says.
fn tokens(more: &str) -> String {
    format!(
        "[dashboard]\nlisten = \"127.0.0.1:0\"\noperate = [\"file:operate\"]\nview = [\"file:view\"]\n{more}\n"
    )
}

fn site(dashboard: &str, handlers: &str) -> Site {
    let site = Site::with(dashboard, handlers);
    for (name, secret) in [("operate", OPERATE), ("view", VIEW)] {
        fs::write(site.path(name), format!("{secret}\n")).unwrap();
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    site
}

/// Like [`stopped`], with a `[dashboard]`.
fn stopped_with(dashboard: &str) -> (Site, Receiver) {
    let site = site(dashboard, HANDLERS);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_lost", "lost.one", r#","note":"needle-in-body""#), 0);
    site.jobs_when(|jobs| {
        jobs.iter().filter(|job| ["held", "dead"].contains(&job["state"].as_str().unwrap())).count()
            == 2
    });
    (site, receiver)
}

/// Every route, as the source matches it: "raw", "work/number", "change/pause".
fn routes() -> BTreeSet<String> {
    let source = |file: &str| {
        let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cmd/ui");
        fs::read_to_string(ui.join(file)).unwrap()
    };
    let mut routes = BTreeSet::new();
    for file in ["server.rs", "pages/mod.rs"] {
        let text = source(file);
        let arms = text.lines().map(str::trim).filter(|line| line.contains("=>"));
        let arms = arms.filter_map(|line| {
            line.strip_prefix("Some(\"").or(line.strip_prefix('['))?.split_once([']', ')'])
        });
        routes.extend(arms.map(|(path, _)| path.replace(", ", "/").replace('"', "")));
    }
    assert!(routes.len() > 14, "{routes:?}");
    assert!(routes.remove("change/what"));
    let act = source("act.rs");
    let arms = act.lines().map(str::trim).filter(|line| line.starts_with('"'));
    let arms = arms.filter_map(|line| line.split_once(" =>"));
    let changes: Vec<&str> = arms.flat_map(|(words, _)| words.split(" | ")).collect();
    assert!(changes.len() > 12, "{changes:?}");
    routes.extend(changes.iter().map(|word| format!("change/{}", word.replace('"', ""))));
    routes
}

#[test]
fn every_route_has_its_answer_for_each_role() {
    let (site, receiver) = stopped_with(&tokens(""));
    // The changes of the quarantine have a page where something is kept.
    crate::support::post(receiver.address, "/stripe", "Stripe-Signature: t=1,v1=00\r\n", b"{}");
    let mut dashboard = Dashboard::configured(&site);
    while site.json(&["quarantine"])["matching"] == 0 {}
    let mut cookies = vec![String::new()];
    for token in [VIEW, OPERATE] {
        let answer = dashboard.log_in(token);
        dashboard.keep(&answer);
        cookies.push(std::mem::take(&mut dashboard.cookie));
    }
    dashboard.cookie.clone_from(&cookies[2]);
    let jobs = site.json(&["jobs"]);
    let of = |state: &str| {
        let job = jobs.as_array().unwrap().iter().find(|job| job["state"] == state).unwrap();
        format!("?job={}&attempt={}", job["job"].as_str().unwrap(), job["attempt"])
    };
    let (held, dead) = (of("held"), of("dead"));
    let groups = dashboard.get("/inbox").links("/inbox?state=dead");
    let group = groups.iter().find(|to| to.contains("handler=")).unwrap();
    let group = group.strip_prefix("/inbox").unwrap();
    // It gets the number 1.
    assert_eq!(dashboard.status("GET", &format!("/change/replay{group}")), 200);
    let event = "?source=stripe&id=evt_lost";
    let handler = "?handler=fulfil".to_owned();
    let page = [403, 200, 200];
    let change = [403, 409, 200];
    let table = [
        ("", String::new(), page),
        ("inbox", String::new(), page),
        ("events", String::new(), page),
        ("event", event.to_owned(), page),
        ("handlers", String::new(), page),
        ("sources", String::new(), page),
        ("quarantine", String::new(), page),
        ("audit", String::new(), page),
        ("more", String::new(), page),
        ("find", "?id=evt_lost".to_owned(), [403, 303, 303]),
        ("work/number", String::new(), page),
        ("live", "?of=/".to_owned(), page),
        ("raw", event.to_owned(), [403, 403, 200]),
        ("change/replay-job", dead.clone(), change),
        ("change/drop-job", dead.clone(), change),
        ("change/cancel", dead, change),
        ("change/succeeded", held.clone(), change),
        ("change/failed", held, change),
        ("change/replay-event", event.to_owned(), change),
        ("change/replay", group.to_owned(), change),
        ("change/drop", group.to_owned(), change),
        ("change/rest", "?work=1".to_owned(), change),
        ("change/pause", handler.clone(), change),
        ("change/resume", handler, change),
        ("change/reload", String::new(), change),
        ("change/accept", String::new(), change),
        ("change/forget", String::new(), change),
        ("change/test", "?source=stripe".to_owned(), change),
        // Links are for `hooklatch ui` without --configured; the login is a POST alone.
        ("in", "?t=0".to_owned(), [403, 404, 404]),
        ("login", String::new(), [403, 404, 404]),
        ("logout", String::new(), [403, 404, 404]),
    ];
    let rows: BTreeSet<String> = table.iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(rows, routes());
    for (route, query, wanted) in &table {
        let path = format!("/{}{query}", route.replace("number", "1"));
        for (cookie, wanted) in cookies.iter().zip(wanted) {
            dashboard.cookie.clone_from(cookie);
            assert_eq!(dashboard.status("GET", &path), *wanted, "{path} {cookie}");
            // Without a form of this session no POST changes anything.
            if *route != "logout" {
                assert_eq!(dashboard.status("POST", &path), 403, "{path} {cookie}");
            }
        }
    }
    for (cookie, wanted) in cookies.iter().zip([403, 303, 303]) {
        dashboard.cookie.clone_from(cookie);
        assert_eq!(dashboard.status("POST", "/logout"), wanted);
        assert_eq!(dashboard.get("/").status, 403, "the session has ended");
    }
    let audit = site.json(&["audit"]);
    assert!(audit.as_array().unwrap().is_empty(), "nothing has changed: {audit}");
}

#[test]
fn a_token_logs_in_from_the_login_page_only() {
    let (site, _receiver) = stopped_with(&tokens(""));
    let mut dashboard = Dashboard::configured(&site);
    let page = dashboard.get("/event?source=stripe&id=evt_lost");
    assert_eq!(page.status, 403);
    assert!(page.body.contains("type=\"password\"") && !page.body.contains("needle"));
    for path in ["//evil.test/", "/\\evil.test"] {
        let page = dashboard.get(path);
        assert_eq!(page.status, 403);
        assert!(page.body.contains("type=\"password\"") && !page.body.contains("evil"), "{path}");
    }
    let typed = format!("token={OPERATE}");
    let origin = |origin: &str| format!("Origin: {origin}\r\n");
    let own = format!("http://127.0.0.1:{}", dashboard.port);
    for (path, headers, body) in [
        ("/login", String::new(), typed.as_str()),
        ("/login", "Sec-Fetch-Site: cross-site\r\n".to_owned(), &typed),
        ("/login", "Sec-Fetch-Site: same-site\r\n".to_owned(), &typed),
        ("/login", origin("http://evil.test"), &typed),
        ("/login", origin(&own.replace("http", "https")), &typed),
        // A token in an address stays in histories and logs.
        (&format!("/login?{typed}"), OWN.to_owned(), ""),
        (&format!("/login?{typed}"), OWN.to_owned(), "token="),
        (&format!("/?{typed}"), OWN.to_owned(), ""),
    ] {
        let answer = dashboard.post(path, &headers, body);
        assert_eq!(answer.status, 403, "{path} {headers}");
        assert_eq!(answer.header("set-cookie"), None, "{path} {headers}");
    }
    for path in [format!("/login?{typed}"), format!("/?{typed}"), format!("/in?t={OPERATE}")] {
        let answer = dashboard.get(&path);
        assert_eq!((answer.status, answer.header("set-cookie")), (403, None), "{path}");
    }
    let to = "to=%2Fevent%3Fsource%3Dstripe%26id%3Devt_lost";
    let answer = dashboard.post("/login", &origin(&own), &format!("{typed}&{to}"));
    assert_eq!(answer.header("location"), Some("/event?source=stripe&id=evt_lost"));
    for to in ["//evil.test", "/\\evil.test", "https://evil.test", "/a%0d%0ab"] {
        let answer = dashboard.post("/login", &origin(&own), &format!("{typed}&to={to}"));
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{to}");
    }
    dashboard.keep(&answer);
    dashboard.change("/change/pause?handler=fulfil", "note=why");
    let said = site.json(&["audit"]);
    assert_eq!((&said[0]["name"], &said[0]["reason"]), (&"file:operate".into(), &"why".into()));
}

#[test]
fn after_ten_wrong_tokens_none_is_compared() {
    let (site, _receiver) = stopped_with(&tokens(""));
    let mut dashboard = Dashboard::configured(&site);
    let answer = dashboard.log_in(VIEW);
    for nth in 0..10 {
        assert_eq!(dashboard.log_in(&format!("{VIEW}{nth}")).status, 403);
    }
    assert_eq!(dashboard.log_in(OPERATE).status, 429);
    dashboard.keep(&answer);
    assert_eq!(dashboard.get("/").status, 200, "a session stays");
}

const WAITS: &str = r#"
[handlers.waits]
source = "stripe"
events = ["*"]
cwd = "."
command = ["/bin/sh", "-c", "echo needle-in-output; mkfifo go; read line <go; exit 65"]
"#;

#[test]
fn the_role_view_sees_payloads_only_where_it_may() {
    for (more, may) in [("", false), ("view_payloads = true", true)] {
        let site = site(&tokens(more), WAITS);
        let receiver = site.start();
        receiver.stripe(&stripe_event("evt_one", "one", r#","note":"needle-in-body""#), 0);
        let [mut view, mut operate] = [(); 2].map(|()| Dashboard::configured(&site));
        view.keep(&view.log_in(VIEW));
        operate.keep(&operate.log_in(OPERATE));
        let mut stream = operate.connect();
        let (host, cookie) = (operate.host(), &operate.cookie);
        write!(stream, "GET /live?of=%2F HTTP/1.1\r\n{host}{cookie}\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("needle-in-output")), "the handler runs");
        let event = "/event?source=stripe&id=evt_one";
        let signature = format!("{event}&show=headers&secrets=1");
        let found = format!("{event}&find=needle-in");
        let shows = |dashboard: &Dashboard, page: &str, needle: &str| {
            let answer = dashboard.get(page);
            assert_eq!(answer.status, 200, "{page}");
            answer.body.contains(needle)
        };
        let places = [
            ("/", "needle-in-output"),
            (event, "needle-in-output"),
            (event, "needle-in-body"),
            (&found, "needle-in-body"),
            (&signature, "v1="),
        ];
        for (page, needle) in places {
            assert!(shows(&operate, page, needle), "{page} {needle}");
            assert_eq!(shows(&view, page, needle), may, "{page} {needle}");
        }
        let raw = view.get("/raw?source=stripe&id=evt_one");
        assert_eq!(raw.status, if may { 200 } else { 403 });
        assert_eq!(raw.body.contains("needle"), may);
        fs::write(site.path("go"), "go on\n").unwrap();
        site.all_jobs(1, "dead");
        // The output of an attempt that has ended comes from the store.
        assert!(shows(&operate, event, "needle-in-output"));
        assert_eq!(shows(&view, event, "needle-in-output"), may);
        drop(receiver);
    }
}

#[test]
fn behind_an_https_proxy_its_name_is_the_only_one() {
    let (site, _receiver) =
        stopped_with(&tokens("public_url = \"https://Hooks.example.net:443/\""));
    let mut dashboard = Dashboard::configured(&site);
    let answer = dashboard.log_in(OPERATE);
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-hooklatch="), "{cookie}");
    for attribute in ["Path=/", "HttpOnly", "SameSite=Strict", "Secure"] {
        assert!(cookie.split("; ").any(|one| one == attribute), "{cookie}");
    }
    dashboard.keep(&answer);
    assert_eq!(dashboard.get("/").status, 200);
    let port = dashboard.port;
    for host in [&format!("127.0.0.1:{port}"), &format!("localhost:{port}"), "hooks.example.net:1"]
    {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{}", dashboard.cookie);
        assert_eq!(dashboard.send(&head, "").status, 421, "{host}");
    }
    let fields = dashboard.get("/change/pause?handler=fulfil").fields();
    let origin = |scheme: &str| format!("Origin: {scheme}://hooks.example.net\r\n");
    assert_eq!(dashboard.post("/change/pause", &origin("http"), &fields).status, 403);
    assert_eq!(dashboard.post("/change/pause", &origin("https"), &fields).status, 303);
    // A new start reads the tokens again, and no session outlives the old one.
    let mut again = Dashboard::configured(&site);
    again.cookie.clone_from(&dashboard.cookie);
    assert_eq!(again.get("/").status, 403);
}

/// What a proxy sends for a user.
fn as_user(name: &str) -> String {
    format!("X-Forwarded-User: {name}\r\nHooklatch-Proxy-Secret: {OPERATE}\r\n")
}

#[test]
fn a_proxy_names_the_user_with_its_secret() {
    let proxy = "[dashboard]\nlisten = \"127.0.0.1:0\"\npublic_url = \"https://hooks.example.net\"\n\
        proxy = { user_header = \"X-Forwarded-User\", secret = \"file:operate\", operate = [\"ops@example.net\"] }\n";
    let (site, _receiver) = stopped_with(proxy);
    let mut dashboard = Dashboard::configured(&site);
    let secret = format!("Hooklatch-Proxy-Secret: {OPERATE}\r\n");
    for (status, headers) in [
        (403, String::new()),
        (403, "X-Forwarded-User: ops@example.net\r\n".to_owned()),
        (403, "Cookie: __Host-hooklatch=ops@example.net\r\n".to_owned()),
        (403, as_user("ops@example.net").replace(OPERATE, VIEW)),
        (403, as_user("ops@example.net").replace(OPERATE, "")),
        (403, secret.clone()),
        (400, format!("{}X-Forwarded-User: joe\r\n", as_user("ops@example.net"))),
        (400, format!("{}{secret}", as_user("ops@example.net"))),
        (400, as_user("")),
        (400, as_user("j\u{f6}")),
        (400, as_user(&"j".repeat(101))),
        (200, as_user("joe")),
        (200, as_user("ops@example.net")),
    ] {
        dashboard.cookie = headers;
        assert_eq!(dashboard.get("/").status, status, "{}", dashboard.cookie);
        // There is no token to type.
        assert_ne!(dashboard.log_in(OPERATE).status, 303);
    }
    dashboard.cookie = as_user("joe");
    assert!(dashboard.get("/").body.contains("role: view"));
    assert_eq!(dashboard.status("GET", "/change/pause?handler=fulfil"), 409);
    dashboard.cookie = as_user("ops@example.net");
    assert!(dashboard.get("/").body.contains("role: operate"));
    let fields = dashboard.get("/change/pause?handler=fulfil").fields();
    dashboard.cookie = as_user("joe");
    assert_eq!(dashboard.post("/change/pause", OWN, &fields).status, 403, "another one's form");
    dashboard.cookie = as_user("ops@example.net");
    assert_eq!(dashboard.post("/change/pause", OWN, &fields).status, 303);
    assert_eq!(site.json(&["audit"])[0]["name"], "ops@example.net");
}

#[test]
fn the_mode_of_a_unix_socket_proves_the_proxy() {
    let (site, _receiver) = stopped_with(
        "[dashboard]\nlisten = \"unix:ui.sock\"\npublic_url = \"https://hooks.example.net\"\n\
         proxy = { user_header = \"X-Forwarded-User\" }\n",
    );
    let mut dashboard = Dashboard::configured(&site);
    let mode = fs::metadata(site.path("ui.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
    assert_eq!(dashboard.get("/").status, 403);
    dashboard.cookie = "X-Forwarded-User: joe\r\n".to_owned();
    assert!(dashboard.get("/").body.contains("role: view"));
}

#[test]
fn a_dashboard_that_is_not_configured_or_has_a_weak_token_does_not_start() {
    let refused = |site: &Site| {
        let mut command = site.command(&["ui", "--configured"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if !line.is_empty() {
            process.kill().unwrap();
        }
        assert_eq!(line, "", "it serves");
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(78));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&site("", HANDLERS)).contains("no [dashboard]"));
    let weak = site(&tokens(""), HANDLERS);
    fs::write(weak.path("view"), &VIEW[..31]).unwrap();
    let said = refused(&weak);
    assert!(said.contains("32 visible ASCII characters"), "{said}");
    assert!(!said.contains(&VIEW[..31]), "{said}");
    fs::write(weak.path("view"), OPERATE).unwrap();
    assert!(refused(&weak).contains("has the secret of a token in operate"));
}

#[test]
fn who_takes_nothing_of_an_answer_does_not_keep_others_out() {
    let (site, _receiver) = stopped_with(&tokens(""));
    let dashboard = Dashboard::configured(&site);
    let login = dashboard.get("/").body;
    let style = login.split('"').find(|text| text.ends_with(".css")).unwrap();
    let ask = format!("GET {style} HTTP/1.1\r\n{}\r\n", dashboard.host()).repeat(400);
    let stalled = || {
        let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).unwrap();
        stream.write_all(ask.as_bytes()).unwrap();
        stream
    };
    // As many as are answered at once.
    let _stalled: Vec<TcpStream> = (0..32).map(|_| stalled()).collect();
    let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    write!(stream, "GET / HTTP/1.1\r\n{}\r\n", dashboard.host()).unwrap();
    assert!(stream.read(&mut [0; 100]).is_ok(), "it does not answer");
}

#[test]
fn half_forms_of_strangers_keep_no_session_waiting() {
    let (site, _receiver) = stopped_with(&tokens(""));
    let mut dashboard = Dashboard::configured(&site);
    let answer = dashboard.log_in(OPERATE);
    dashboard.keep(&answer);
    let host = dashboard.host();
    // More than are read at once.
    let half = || {
        let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).unwrap();
        write!(stream, "POST /login HTTP/1.1\r\n{host}{OWN}Content-Length: 9\r\n\r\nt").unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut half: Vec<TcpStream> = (0..40).map(|_| half()).collect();
    let changed = dashboard.change("/change/pause?handler=fulfil", "");
    assert_eq!((changed.status, changed.header("location")), (303, Some("/handlers")));
    let is_open = |stream: &mut TcpStream| {
        let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        read == Err(std::io::ErrorKind::WouldBlock)
    };
    let open = half.iter_mut().map(is_open).filter(|open| *open).count();
    assert!(open >= 16, "it has waited for them: {open} are open");
}

#[test]
fn who_may_look_only_logs_no_operator_out() {
    let (site, _receiver) = stopped_with(&tokens(""));
    let mut dashboard = Dashboard::configured(&site);
    let answer = dashboard.log_in(OPERATE);
    for _ in 0..64 {
        assert_eq!(dashboard.log_in(VIEW).status, 303);
    }
    dashboard.keep(&answer);
    assert_eq!(dashboard.get("/").status, 200);
}

#[test]
fn the_role_view_does_not_see_the_errors_of_a_handler_that_cannot_run() {
    let site = site(&tokens(""), &HANDLERS.replace("kill -9 $$", r#"\"$(cat)\""#));
    let receiver = site.start();
    let mut dashboard = Dashboard::configured(&site);
    receiver.stripe(&stripe_event("evt_lost", "lost.one", r#","note":"needle-in-body""#), 0);
    let answers = [VIEW, OPERATE].map(|token| dashboard.log_in(token));
    let pages = ["/", "/handlers", "/event?source=stripe&id=evt_lost"];
    dashboard.keep(&answers[1]);
    let until = Instant::now() + Duration::from_secs(20);
    while !dashboard.get("/handlers").body.contains("needle") {
        assert!(Instant::now() < until, "{}", dashboard.get("/handlers").body);
    }
    dashboard.keep(&answers[0]);
    for page in pages {
        let body = dashboard.get(page).body;
        assert!(!body.contains("needle"), "{page}: {body}");
    }
}

#[test]
fn pictures_of_other_sites_are_no_wrong_links() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]);
    for _ in 0..11 {
        let from = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n";
        let head = format!("GET /in?t=0 HTTP/1.1\r\n{}{from}", dashboard.host());
        assert_eq!(dashboard.send(&head, "").status, 403);
    }
    dashboard.enter();
}

#[test]
fn a_body_without_an_end_does_not_keep_its_connection() {
    let (site, _receiver) = stopped_with(&tokens(""));
    let dashboard = Dashboard::configured(&site);
    let mut stream = TcpStream::connect(("127.0.0.1", dashboard.port)).unwrap();
    let host = dashboard.host();
    write!(stream, "GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n").unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while stream.write_all(b"1\r\na\r\n").is_ok() {
        assert!(Instant::now() < until, "it is open");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn where_nothing_is_kept_nothing_is_forgotten_later() {
    let (site, _receiver) = stopped();
    let dashboard = Dashboard::start(&site, &[]).enter();
    assert_eq!(dashboard.get("/change/forget").status, 409);
    // A form without the newest delivery that its page showed would mean all that came since.
    let fields = dashboard.get("/change/reload").fields();
    let answer = dashboard.post("/change/forget", "Sec-Fetch-Site: same-origin\r\n", &fields);
    assert_eq!(answer.status, 400);
}

#[test]
fn a_cookie_of_the_same_name_from_another_port_shuts_nobody_out() {
    let (site, _receiver) = stopped();
    let mut dashboard = Dashboard::start(&site, &[]).enter();
    let name = dashboard.cookie["Cookie: ".len()..].split('=').next().unwrap().to_owned();
    dashboard.cookie = dashboard.cookie.replacen("Cookie: ", &format!("Cookie: {name}=bad; "), 1);
    assert_eq!(dashboard.get("/events").status, 200);
}
