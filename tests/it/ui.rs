//! The dashboard over its own socket, beside a real receiver: who gets in, what each role may do, what each page
//! answers, and what becomes of hostile texts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

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
struct Dashboard {
    process: Child,
    port: u16,
    link: String,
    cookie: String,
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An answer: status, header lines, body.
struct Answer {
    status: u16,
    head: String,
    body: String,
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
    fn start(site: &Site, options: &[&str]) -> Dashboard {
        let mut command = site.command(&[&["ui", "--port", "0"], options].concat());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let (host, link) = address.split_once('/').unwrap();
        let port = host.rsplit(':').next().unwrap().parse().unwrap();
        let (link, cookie) = (format!("/{link}"), String::new());
        Dashboard { process, port, link, cookie }
    }

    /// Uses the link up.
    fn enter(mut self) -> Dashboard {
        let answer = self.get(&self.link);
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        self.cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
        self
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}\r\n", self.port)
    }

    fn get(&self, path: &str) -> Answer {
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
        self.post(path, "Sec-Fetch-Site: same-origin\r\n", &body)
    }

    fn send(&self, head: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
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
