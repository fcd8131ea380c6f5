//! Sends requests to Debian's `webhook` and to the imported hooks, and compares what runs: the command, its folder, its
//! arguments and its variables. A request that ends differently is in the table with the sentence of the report that
//! says so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::{Webhook, imported, sha1_of, sha512_of};
use crate::support::{hex, hmac};

const HOOKS: &str = include_str!("oracle.json");

const TOKEN: &str = "X-Token: tok-1234567890";

/// What a request comes to here, where that is not what it comes to there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ours {
    /// No job.
    Nothing,
    /// A job that waits for a person.
    Held,
    /// Another run.
    Run,
}

use Ours::{Held, Nothing, Run};

struct Case {
    hook: &'static str,
    method: &'static str,
    query: &'static str,
    kind: &'static str,
    headers: Vec<String>,
    body: Vec<u8>,
    /// The sentence of the report, if the two differ.
    differs: Option<(&'static str, Ours)>,
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const PARTS: &str = "multipart/form-data; boundary=b";

fn of(hook: &'static str, body: impl AsRef<[u8]>) -> Case {
    let body = body.as_ref().to_vec();
    Case { hook, method: "POST", query: "", kind: JSON, headers: Vec::new(), body, differs: None }
}

/// A request with the token of most hooks.
fn token(hook: &'static str, body: impl AsRef<[u8]>) -> Case {
    of(hook, body).with(TOKEN)
}

fn form(hook: &'static str, body: &str) -> Case {
    Case { kind: FORM, ..token(hook, body) }
}

/// A request with a signature behind `before`, in the header `name`.
fn signed(hook: &'static str, name: &str, before: &str, secret: &str, body: &str) -> Case {
    let signature = match name {
        "X-Hub-Signature" => sha1_of(secret, body),
        _ if hook == "sig512" => sha512_of(secret, body),
        _ => hex(&hmac(secret, body.as_bytes())),
    };
    of(hook, body).with(format!("{name}: {before}{signature}"))
}

fn sig(before: &str, body: &str) -> Case {
    signed("sig", "X-Sig", before, "secret of sig", body)
}

/// A multipart form of these parts: what stands behind the name, and the content.
fn parts(hook: &'static str, parts: &[(&str, &str)]) -> Case {
    let part = |(name, content): &(&str, &str)| {
        format!("--b\r\nContent-Disposition: form-data; name={name}\r\n\r\n{content}\r\n")
    };
    let body = parts.iter().map(part).collect::<String>() + "--b--\r\n";
    Case { kind: PARTS, ..token(hook, body) }
}

impl Case {
    fn with(mut self, header: impl Into<String>) -> Self {
        self.headers.push(header.into());
        self
    }

    fn query(self, query: &'static str) -> Self {
        Case { query, ..self }
    }

    fn by(self, method: &'static str) -> Self {
        Case { method, ..self }
    }

    fn kind(self, kind: &'static str) -> Self {
        Case { kind, ..self }
    }

    fn differs(self, ours: Ours, says: &'static str) -> Self {
        Case { differs: Some((says, ours)), ..self }
    }

    fn target(&self) -> String {
        let query = if self.query.is_empty() { "" } else { "?" };
        format!("/hooks/{}{query}{}", self.hook, self.query)
    }
}

const AGAIN: &str = "a request with the same signed body as an earlier one runs nothing here";
const REPLAY: &str = "an equal body under another X-GitHub-Delivery is held";
const TWICE: &str = "comes twice holds the job that needs it; webhook took one of them";
const TWICE_PROOF: &str = "A signature or token that comes twice is refused (401)";
const KIND: &str =
    "The bytes of a body say whether it is JSON or a form; webhook went by Content-Type";
const XML: &str = "XML is not read: a job that needs a value of an XML body is held";
const CUT: &str = "A body that begins as JSON or multipart and is cut short, or goes on behind its end, holds the job";
const TEXT: &str = "and so does text that cannot be decoded";
const MULTIPART: &str = "A signature is checked over the body of a multipart form too";
const NULL: &str = "A member of null is as one that is not there; webhook answered 500";
const OPTION: &str = "An argument that begins with -, @ or +";
const OVER: &str = "a value over 64 KiB, values over 64 KiB together";
const REGEX: &str = "A regex looks at 4 KiB at most";
const METHODS: &str = "Without http-methods a hook takes POST here, and GET if its token";
const NO_GET: &str = "http-methods: GET is not taken here: a signature of no body proves nothing";
const NO_OPTIONS: &str = "http-methods: OPTIONS is not taken here: no source takes it";
const RENAMED: &str = "the variable HOOK_head.name is called HOOK_head_name here";
const PROXY: &str = "ip-whitelist is the proxy's task: in nginx `allow 192.0.2.0/24; allow 127.0.0.0/8; allow 198.51.100.7; deny all;`";
const XML_ONLY: &str = "XML bodies, which are not read here";
const STDIN: &str = "V_FILE is /dev/stdin, which can be read once";
const NO_FILE: &str = "pass-file-to-command of 'image': no file is made here";
const ADDRESS: &str = "argument 1: remote-addr of the request, which no handler gets";
const BODY_TOKEN: &str = "a member that is called 'auth.token' as a whole is not looked at (401)";
const OPEN: &str = "its rule has no signature and no token";

/// Values: what a command gets of a body.
fn values() -> Vec<Case> {
    let one = |value: &str| token("values", format!("{{\"a\":{value}}}"));
    let mut all: Vec<Case> = [
        "\"text\"",
        "\"\"",
        "\"two words\"",
        "\"a\\nb\\r\\n\\tc\"",
        "\"\\u00e4\\ud83d\\ude00\"",
        "\"{HOOK_A}\"",
        "\"$(id) `id` 'x'\"",
        "\" x \"",
        "1",
        "1.0",
        "1.50e2",
        "12345678901234567890123",
        "true",
        "false",
        "null",
        "{}",
        "[]",
        "[1,\"a\",null,true]",
        "[ 1 , { \"z\" : 1 , \"a\" : [ ] } ]",
        "{\"z\":1,\"a\":{\"y\":2,\"b\":null}}",
        "{\"html\":\"<a href='x'>&amp;</a>\"}",
        "{\"u\":\"\\u2028\\u0001\\u0008\\u000c\\u007f\\/\\\\\\\"\"}",
        "{\"\\u00e9\":1,\"e\":2,\"E\":3}",
        "[1.0,1e5,-0.0,-0]",
    ]
    .map(one)
    .into();
    all.extend([
        token("values", r#"{"b":{"c":"deep"}}"#),
        token("values", r#"{"b.c":"dotted","b":{"c":"deep"}}"#),
        token("values", r#"{"b":{"c":null}}"#),
        token("values", r#"{"b":null}"#),
        token("values", r#"{"b":"text"}"#),
        token("values", r#"{"b":[{"c":1}]}"#),
        token("values", r#"{"list":[{"name":"x"},{"name":"y"}]}"#),
        token("values", r#"{"list":[{"name":"x"}]}"#),
        token("values", r#"{"list":{"1":{"name":"of an object"}}}"#),
        token("values", r#"{"list.1.name":"whole"}"#),
        token("values", r#"{"root":[{"kind":"a"},{"kind":"b"}]}"#),
        token("values", r#"[{"kind":"a"},{"kind":"b"}]"#),
        token("values", "[]"),
        token("values", "{}"),
        token("values", ""),
        token("values", "   "),
        token("values", "words"),
        token("values", "5"),
        token("values", r#"{"n":1}"#).with("X-One: one"),
        token("values", r#"{"n":2}"#).with("x-ONE: two words"),
        token("values", r#"{"n":3}"#).query("q=1"),
        token("values", r#"{"n":4}"#).query("q=a%20b+c&other=2"),
        token("values", r#"{"n":5}"#).query("q"),
        token("values", r#"{"n":6}"#).query("q="),
        token("values", r#"{"n":7}"#).query("Q=1"),
        form("values", "a=1&b.c=2"),
        form("values", "a=two+words%21&list.1.name=x"),
        form("values", "a="),
        form("values", "a=%7B%22x%22%3A1%7D"),
        form("values", "a=1;b.c=2"),
        form("values", "a=1&x=%zz"),
        form("values", "other=1"),
        parts("values", &[("\"a\"", "of a part"), ("\"b.c\"", "two\r\nlines")]),
        parts("values", &[("\"a\"; filename=\"a.txt\"", "of a file")]),
        parts(
            "values",
            &[(
                "\"b\"; filename=\"b.json\"\r\nContent-Type: application/json",
                "{\"c\":\"of a file\"}",
            )],
        ),
        token("values", "{\"a\":\"over\"")
            .kind("application/vnd.hooks+json; charset=utf-8")
            .differs(Held, CUT),
        token("values", r#"{"a":"x"} and more"#).differs(Held, CUT),
        token("values", r#"{"a":"x","a":"y"}"#).differs(Held, TWICE),
        token("values", r#"{"b":{"c":1,"c":2}}"#).differs(Held, TWICE),
        form("values", "a=1&a=2").differs(Held, TWICE),
        token("values", r#"{"n":8}"#).query("q=1&q=2").differs(Held, TWICE),
        token("values", r#"{"n":9}"#).with("X-One: 1").with("X-One: 2").differs(Held, TWICE),
        token("values", b"{\"a\":\"\xff\"}").differs(Held, TEXT),
        token("values", r#"{"a":"\ud800"}"#).differs(Held, TEXT),
        token("values", r#"{"a":"a\u0000b"}"#).differs(Held, "a NUL character hold the job"),
        token("values", r#"{"a":"-rf"}"#).differs(Held, OPTION),
        token("values", r#"{"a":"@file"}"#).differs(Held, OPTION),
        token("values", r#"{"a":-1}"#).differs(Held, OPTION),
        token("values", r#"{"a":"of text"}"#).kind("text/plain").differs(Run, KIND),
        form("values", r#"{"a":"of a form"}"#).differs(Run, KIND),
        form("values", "a=of+json").kind(JSON).differs(Run, KIND),
        token("values", "<b><c>1</c></b>").kind("text/xml").differs(Held, XML),
        token("xml", "<app name=\"shop\"/>").kind("application/xml").differs(Held, XML),
        token("xml", r#"{"app":{"-name":"x"}}"#),
        token("xml-only", "<app><name>shop</name></app>").differs(Nothing, XML_ONLY),
        token("values", format!("{{\"a\":\"{}\"}}", "x".repeat(20_000))),
        token("values", format!("{{\"b\":{{\"c\":[\"{}\"]}}}}", "x".repeat(30_000))),
        token("values", format!("{{\"b\":{{\"c\":\"{}\"}}}}", "y".repeat(65_000)))
            .differs(Held, OVER),
        token("names", format!("{{\"ref\":\"{}\"}}", "z".repeat(5_000))),
        token("names", format!("{{\"ref\":\"{}\"}}", "z".repeat(21_000))),
        token("names", format!("{{\"ref\":\"{}\"}}", "z".repeat(70_000))).differs(Held, OVER),
        token("names", r#"{"ref":"refs/heads/main"}"#),
        token("names", r#"{"ref":null}"#),
        token("names", "{}"),
        token("renamed", r#"{"head":{"name":"x","id":"3f1c"}}"#).differs(Run, RENAMED),
        token("renamed", r#"{"head":{"id":"3f1c"}}"#),
        token("whole", r#"{ "b" : 1, "a" : [ "<", {} ] }"#),
        token("whole", "[1, 2]"),
        form("whole", "b=1&a=2"),
        token("whole", r#"{"a":1,"a":2}"#).differs(Held, TWICE),
        parts("parsed", &[("\"payload\"", "{\"ref\":\"of a part\"}"), ("\"other\"", "o")]),
        parts("parsed", &[("\"payload\"; filename=\"p\"", "{\"ref\":\"of a file\"}")]),
        form("parsed", "payload=%7B%22ref%22%3A%22of+a+form%22%2C%22a%22%3A1%7D&other=o"),
        form("parsed", "payload=%5B1%5D"),
        token("parsed", r#"{"payload":"{\"ref\":\"of a text\"}","other":1}"#),
        token("parsed", r#"{"payload":{"ref":"of an object"}}"#),
        token("parsed", r#"{"payload":"no JSON"}"#),
        token("parsed", r#"{"payload.ref":"dotted","payload":"{\"ref\":\"x\"}"}"#),
        token("parsed", r#"{"other":"alone"}"#),
        token("posted", r#"{"n":1}"#),
        token("file", r#"{"n":1}"#).differs(Run, STDIN),
        token("decoded", r#"{"image":"eA=="}"#).differs(Nothing, NO_FILE),
        token("address", r#"{"n":1}"#).differs(Nothing, ADDRESS),
        token("fails", r#"{"n":1}"#),
    ]);
    all
}

/// Rules: which requests fire.
fn rules() -> Vec<Case> {
    let long = "4".repeat(5_000);
    let mut all = Vec::new();
    for value in ["1", "\"1\"", "1.0", "1e0", "true", "null", "[1]", "\"2\"", "{\"x\":1}"] {
        for hook in ["is-one", "not-one", "regex", "is-on"] {
            all.push(token(hook, format!("{{\"a\":{value}}}")));
        }
    }
    all.extend([
        token("is-half", r#"{"a":1.5}"#),
        token("is-half", r#"{"a":1.50}"#),
        token("regex", r#"{"a":42}"#),
        token("regex", r#"{"a":"42 lines\nof text"}"#),
        token("regex", r#"{"a":"x.y"}"#),
        token("regex", r#"{"a":"xzy"}"#),
        token("regex", r#"{"b":42}"#),
        token("regex", format!("{{\"a\":\"{long}\"}}")).differs(Held, REGEX),
        token("is-one", "{}"),
        form("is-one", "a=1"),
        form("is-one", "a=1.0"),
        token("not-one", "{}"),
        token("not-one", r#"{"b":1}"#),
        token("either", r#"{"a":1}"#),
        token("either", r#"{"b":2}"#),
        token("either", r#"{"a":2,"b":"2"}"#),
        token("either", r#"{"a":2,"b":1}"#),
        token("either", "{}"),
        token("not-both", r#"{"a":1,"b":2}"#),
        token("not-both", r#"{"a":1,"b":3}"#),
        token("not-both", r#"{"a":2,"b":2}"#),
        token("not-both", r#"{"a":2}"#),
        token("not-both", r#"{"a":1}"#),
        token("not-both", "{}"),
        token("turned", r#"{"a":1,"b":2}"#),
        token("turned", r#"{"a":1,"b":3}"#),
        token("turned", r#"{"a":1}"#),
        token("turned", r#"{"b":2}"#),
        token("turned", "{}"),
        token("inside", r#"{"a":{"b":"x"}}"#),
        token("inside", r#"{"a.b":"x"}"#),
        token("inside", r#"{"a":{"b":"y"},"b":2}"#),
        token("inside", r#"{"a":1,"b":2}"#),
        token("inside", r#"{"a":null,"b":2}"#).differs(Run, NULL),
        token("in-query", r#"{"n":1}"#).query("tag=v1"),
        token("in-query", r#"{"n":2}"#).query("tag=1"),
        token("in-query", r#"{"n":3}"#),
        token("list", r#"[{"kind":"x"},{"kind":"sale"}]"#),
        token("list", r#"[{"kind":"sale"}]"#),
        token("list", r#"{"root":[{},{"kind":"sale"}]}"#),
        of("is-one", r#"{"a":1}"#),
        of("is-one", r#"{"a":1}"#).with("X-Token: tok-1234567891"),
        token("is-one", r#"{"a":1,"n":1}"#).with(TOKEN).differs(Nothing, TWICE_PROOF),
        token("twice", r#"{"n":1}"#),
        of("twice", r#"{"n":1}"#).with("X-Token: another-123456"),
        token("true", r#"{"n":1}"#),
        token("yes", r#"{"n":1}"#),
        token("networks", r#"{"n":1}"#).differs(Nothing, PROXY),
        token("elsewhere", r#"{"n":1}"#),
        of("open", r#"{"n":1}"#).differs(Nothing, OPEN),
        of("body-token", r#"{"auth":{"token":"tok-1234567890"},"n":1}"#),
        of("body-token", r#"{"auth":{"token":"tok-1234567891"},"n":2}"#),
        of("body-token", r#"{"n":3}"#),
        of("body-token", "auth.token=tok-1234567890&n=4").kind(FORM),
        of("body-token", "auth.token=tok-1234567891&n=5").kind(FORM),
        of("body-token", r#"{"auth.token":"tok-1234567890","n":6}"#).differs(Nothing, BODY_TOKEN),
        of(
            "body-token",
            &parts("body-token", &[("\"auth.token\"", "tok-1234567890"), ("\"n\"", "7")]).body,
        )
        .kind(PARTS),
        of("url-token", r#"{"n":1}"#).query("key=tok-1234567890&q=x"),
        of("url-token", "").by("GET").query("key=tok-1234567890&q=y"),
        of("url-token", "").by("GET").query("key=tok-1234567891&q=y"),
        token("post-put", r#"{"n":1}"#),
        token("post-put", r#"{"n":2}"#).by("PUT"),
        token("post-put", r#"{"n":3}"#).by("PATCH"),
        token("post-put", "").by("GET"),
        token("get-only", "").by("GET").query("q=1"),
        token("get-only", r#"{"n":1}"#),
        token("any-method", "").by("GET").query("q=1"),
        token("any-method", r#"{"n":1}"#),
        token("any-method", r#"{"n":2}"#).by("PUT").differs(Nothing, METHODS),
        signed("signed-get", "X-Sig", "", "secret of signed-get", r#"{"n":1}"#),
        signed("signed-get", "X-Sig", "", "secret of signed-get", "")
            .by("GET")
            .differs(Nothing, NO_GET),
        token("head-only", "").by("OPTIONS").differs(Nothing, NO_OPTIONS),
        token("head-only", r#"{"n":1}"#),
    ]);
    all
}

/// Signatures, with and without what stands before them.
fn signatures() -> Vec<Case> {
    let hub = |before, body| signed("hub", "X-Hub-Signature-256", before, "secret of hub", body);
    let sha1 = |before, body| signed("sig1", "X-Hub-Signature", before, "secret of sig1", body);
    let sha512 = |before, body| signed("sig512", "X-Sig", before, "secret of sig512", body);
    let two = |hook, secret, body| signed(hook, "X-Sig", "", secret, body);
    let key = |body| signed("event-key", "X-Sig", "", "secret of event-key", body);
    let upper = hex(&hmac("secret of sig", br#"{"n":9}"#)).to_uppercase();
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n--b--\r\n";
    vec![
        sig("", r#"{"n":1}"#),
        sig("sha256=", r#"{"n":2}"#),
        sig("sha1=00,sha256=", r#"{"n":3}"#),
        sig("sha256=00,sha256=", r#"{"n":4}"#),
        sig("00,", r#"{"n":5}"#),
        sig("sha512=", r#"{"n":6}"#),
        sig("SHA256=", r#"{"n":7}"#),
        sig("v1=", r#"{"n":8}"#),
        of("sig", r#"{"n":9}"#).with(format!("X-Sig: {upper}")),
        of("sig", r#"{"n":10}"#).with("X-Sig: sha256=00"),
        of("sig", r#"{"n":11}"#),
        sig("", r#"{"n":1}"#).differs(Nothing, AGAIN),
        sig("sha256=", "n=1").kind(FORM),
        sig("sha256=", "n=2").kind(FORM).with("X-Sig: sha256=00").differs(Nothing, TWICE_PROOF),
        sig("", multipart).kind(PARTS).differs(Run, MULTIPART),
        sha1("sha1=", r#"{"n":1}"#),
        sha1("", r#"{"n":2}"#),
        sha1("sha256=", r#"{"n":3}"#),
        sha512("sha512=", r#"{"n":1}"#),
        sha512("", r#"{"n":2}"#),
        hub("sha256=", r#"{"n":1}"#).with("X-GitHub-Delivery: d1").with("X-GitHub-Event: push"),
        hub("", r#"{"n":2}"#).with("X-GitHub-Delivery: d2"),
        hub("sha256=", r#"{"n":3}"#),
        hub("", r#"{"n":4}"#),
        hub("sha256=", "payload=%7B%22n%22%3A5%7D").kind(FORM).with("X-GitHub-Delivery: d5"),
        hub("sha256=", r#"{"n":1}"#)
            .with("X-GitHub-Delivery: d9")
            .with("X-GitHub-Event: push")
            .differs(Held, REPLAY),
        hub("sha256=", r#"{"n":7}"#).with("X-GitHub-Delivery: d7").with("X-GitHub-Event: ping"),
        hub("sha256=", r#"{"n":7}"#).with("X-GitHub-Delivery: d8").with("X-GitHub-Event: ping"),
        of("hub", r#"{"n":6}"#).with("X-Hub-Signature-256: sha256=00"),
        key(r#"{"n":1}"#).with("X-Event-Key: repo:push"),
        key(r#"{"n":2}"#).with("X-Event-Key: pr:opened"),
        key(r#"{"n":3}"#),
        two("soft", "first secret", r#"{"n":1}"#),
        two("soft", "second secret", r#"{"n":2}"#),
        two("soft", "third secret", r#"{"n":3}"#),
        two("hard", "first secret", r#"{"n":1}"#),
        two("hard", "second secret", r#"{"n":2}"#),
    ]
}

/// Sends the request in HTTP/1.0, whose answers come in one piece, and returns the head and the body of the answer.
fn ask(address: SocketAddr, case: &Case) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let (method, target, kind) = (case.method, case.target(), case.kind);
    let headers: String = case.headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = case.body.len();
    let head = format!(
        "{method} {target} HTTP/1.0\r\nHost: {address}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), &case.body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap(), body)
}

/// The event that an answer names, if it is a new one.
fn event_of(head: &str) -> Option<String> {
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut own = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        own.next().map(|(_, value)| value.to_owned())
    };
    header("Hooklatch-Event").filter(|_| header("Hooklatch-Status").as_deref() == Some("accepted"))
}

/// Prints what a command gets, each piece with a NUL behind it: to webhook, and here into a file named by the job.
const SCRIPT: &str = r#"
[ -n "$HOOKLATCH_JOB" ] && exec > "$SITE/out/$HOOKLATCH_JOB"
printf 'ran\0%s\0%s\0' "${0##*/}" "$PWD"
for one in "$@"; do printf 'argument %s\0' "$one"; done
grep -z -E '^(V_|HOOK_[a-z])' "/proc/$$/environ" | LC_ALL=C sort -z
"#;

#[test]
fn the_same_request_runs_the_same_command_or_the_report_says_why_not() {
    let (site, said) = imported("oracle.json", HOOKS);
    fs::create_dir(site.path("out")).unwrap();
    site.script("ran", &format!("{SCRIPT}exit 0"));
    site.script("fails", &format!("{SCRIPT}exit 3"));
    let hooks = HOOKS.replace("DIR", &site.path("").display().to_string());
    let Some(webhook) = Webhook::start(&site, &hooks) else { return };
    let receiver = site.start();
    let cases: Vec<Case> = values().into_iter().chain(rules()).chain(signatures()).collect();
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for case in &cases {
        let theirs = Some(ask(webhook.1, case).1).filter(|output| output.starts_with(b"ran\0"));
        let (head, _) = ask(receiver.address, case);
        let event = event_of(&head);
        if let Some(event) = &event {
            assert!(
                known.insert((case.hook, event.clone())),
                "two of {} have one event",
                case.hook
            );
        }
        found.push((theirs, event, head));
    }
    let is_settled =
        |job: &Value| ["succeeded", "held", "dead"].contains(&job["state"].as_str().unwrap());
    let jobs = site.jobs_when(|jobs| jobs.iter().all(is_settled));
    let mut wrong = Vec::new();
    let (mut equal, mut explained, mut runs) = (0, 0, 0);
    for (case, (theirs, event, answer)) in cases.iter().zip(found) {
        let of_case = |job: &&Value| {
            job["source"] == case.hook
                && Some(job["event_id"].as_str().unwrap()) == event.as_deref()
        };
        let job = jobs.iter().find(of_case);
        let output =
            |job: &Value| fs::read(site.path("out").join(job["job"].as_str().unwrap())).ok();
        let ran = job.and_then(output);
        let ours = match job {
            Some(_) if ran.is_some() => Run,
            Some(job) if job["state"] == "held" => Held,
            _ => Nothing,
        };
        let same = ran == theirs && ours != Held;
        runs += usize::from(same && ours == Run);
        let complaint = match case.differs {
            None if same => {
                equal += 1;
                continue;
            }
            None => "they differ".to_owned(),
            Some(_) if same => "they are the same".to_owned(),
            Some((_, expected)) if expected != ours => format!("{expected:?} was expected"),
            Some((says, _)) if !said.contains(says) => format!("the report does not say '{says}'"),
            Some(_) => {
                explained += 1;
                continue;
            }
        };
        let text = |bytes: &Option<Vec<u8>>| {
            bytes
                .as_ref()
                .map(|bytes| String::from_utf8_lossy(bytes).chars().take(300).collect::<String>())
        };
        wrong.push(format!(
            "{} {} {:?} {}: {complaint}\n  webhook: {:?}\n  here: {ours:?} {:?} {answer} {job:?}",
            case.method,
            case.target(),
            case.headers,
            String::from_utf8_lossy(&case.body).chars().take(200).collect::<String>(),
            text(&theirs),
            text(&ran),
        ));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}\n{said}", wrong.len(), cases.len(), wrong.join("\n"));
    eprintln!("{equal} requests are equal, {explained} explained");
    assert!(equal >= 120 && runs >= 80, "{equal} are equal, of which {runs} run a command");
}

#[test]
fn a_hook_that_is_left_out_lists_every_reason_and_keeps_its_signature() {
    let hooks = r#"[
        {"id": "many", "execute-command": "/bin/true", "http-methods": ["OPTIONS"],
         "pass-arguments-to-command": [{"source": "entire-headers"}, {"source": "payload", "name": "a.b"}],
         "pass-environment-to-command": [{"source": "entire-query", "envname": "ALL"}],
         "trigger-rule": {"and": [
            {"match": {"type": "scalr-signature", "secret": "one secret"}},
            {"match": {"type": "ip-whitelist", "ip-range": "nowhere"}}]}},
        {"id": "networks", "execute-command": "/bin/true",
         "trigger-rule": {"and": [
            {"or": [{"match": {"type": "ip-whitelist", "ip-range": "13.52.5.96/28"}},
                    {"match": {"type": "ip-whitelist", "ip-range": "18.184.99.224/28 2001:db8::1"}}]},
            {"match": {"type": "payload-hmac-sha256", "secret": "a long secret", "parameter": {"source": "header", "name": "X-Sig"}}}]}},
    ]"#;
    let (site, said) = imported("hooks.json", hooks);
    for reason in [
        "a rule of type 'scalr-signature'",
        "ip-whitelist: 'nowhere' is not a range, and webhook answers 500",
        "argument 1: entire-headers, of which only what is named is kept here",
        "variable ALL: entire-query, of which only what is named is kept here",
        "http-methods: OPTIONS",
        "in nginx `allow 13.52.5.96/28; allow 18.184.99.224/28; allow 2001:db8::/32; deny all;`",
    ] {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    // Arguments alone make no variable there.
    assert!(!said.contains("HOOK_A"), "{said}");
    let many = fs::read_to_string(site.path("conf.d/many.toml")).unwrap();
    assert!(many.contains("\"(entire-headers )\", \"{HOOK_A_B}\""), "each keeps its place: {many}");
    let networks = fs::read_to_string(site.path("conf.d/networks.toml")).unwrap();
    assert!(networks.contains("# secrets = [\"file:secrets/networks\"]"), "{networks}");
    assert!(networks.contains("# header = \"X-Sig\""), "{networks}");
    assert_eq!(fs::read_to_string(site.path("secrets/networks")).unwrap(), "a long secret");
}
