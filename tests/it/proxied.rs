//! Delivers a request and the challenges of every built-in provider through nginx and through Caddy, over TLS, with the
//! sources and the proxies' configuration as `init` prints them.
//!
//! `hooklatch send --url` plays a provider where it can; the others' requests are in `by_hand`.

mod by_hand;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hooklatch::provider::Scheme;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use crate::operator::text;
use crate::register::register;
use crate::support::{PATIENCE, Site, needs};
use by_hand::{Keys, Request};

/// A site with a source for each built-in provider that can deliver through a proxy, and the proxies' lines.
struct Proxied {
    site: Site,
    keys: Keys,
    /// Where the proxies listen, one after the other.
    port: u16,
    /// What `init` said of each source.
    said: BTreeMap<&'static str, Value>,
}

/// A running proxy; dropping it stops it.
struct Proxy {
    child: Child,
    /// The certificates that its clients trust.
    roots: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx ends its workers at this signal.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `certificate` needs client certificates; `none` refuses proxied requests.
fn is_left_out(provider: &str) -> bool {
    ["certificate", "none"].contains(&provider)
}

impl Proxied {
    fn new() -> Proxied {
        let site = Site::new("");
        let (port, inside) = (free_port(), free_port());
        let listen = format!("[server]\nlisten = \"127.0.0.1:{inside}\"\n");
        site.write_config(listen + "[storage]\npath = \"store.db\"\n");
        let keys = Keys::new(&site);
        let mut proxied = Proxied { site, keys, port, said: BTreeMap::new() };
        for provider in Scheme::embedded_names().filter(|provider| !is_left_out(provider)) {
            let said = proxied.init(provider);
            proxied.said.insert(provider, said);
        }
        proxied
    }

    /// Makes a source as its operator does, and fills in what the provider would show.
    fn init(&self, provider: &str) -> Value {
        let folder = self.site.path("");
        let url = format!("https://localhost:{}", self.port);
        let mut args = vec!["init", "--dir", folder.to_str().unwrap(), "--source", provider];
        args.extend(["--public-url", &url, "--json"]);
        if provider == "fastly-logging" {
            args.extend(["--path", "/.well-known/fastly/logging/challenge"]);
        }
        let output = self.site.command(&args).output().unwrap();
        assert!(output.status.success(), "{provider}: {}", text(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        if provider == "fastly-logging" {
            let file = self.site.path("secrets/fastly-logging.verify");
            fs::write(file, "service-made-for-tests\n").unwrap();
        }
        let file = self.secret_file(provider);
        if fs::read(&file).is_ok_and(|made| made.is_empty()) {
            fs::write(file, self.keys.secret(provider)).unwrap();
        }
        if let Some(sender) = by_hand::sender(provider) {
            let stanza = self.site.path(&format!("conf.d/{provider}.toml"));
            let filled = fs::read_to_string(&stanza).unwrap().replace("FILL-IN", sender);
            fs::write(stanza, filled).unwrap();
        }
        said
    }

    /// The file of a source's secret, or of its verify token where `name` ends in `.verify`.
    fn secret_file(&self, name: &str) -> PathBuf {
        let published = self.site.path(&format!("keys/{name}"));
        match published.exists() {
            true => published,
            false => self.site.path(&format!("secrets/{name}")),
        }
    }

    /// Its text; empty if the provider uses none.
    fn secret(&self, name: &str) -> String {
        let text = fs::read_to_string(self.secret_file(name)).unwrap_or_default();
        text.trim().to_owned()
    }

    fn lines(&self, proxy: &str) -> impl Iterator<Item = &str> {
        self.said.values().map(move |said| said["proxy"][proxy].as_str().unwrap())
    }

    /// The lines of all sources in one server, with `upstream` once.
    fn nginx(&self) -> Proxy {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        let roots = self.site.path("nginx.pem");
        fs::write(&roots, certificate).unwrap();
        fs::write(self.site.path("nginx.key"), key.serialize_pem()).unwrap();
        let (mut upstream, mut locations) = ("", String::new());
        for lines in self.lines("nginx") {
            let (first, location) = lines.split_once('\n').unwrap();
            upstream = first;
            locations += &format!("{location}\n");
        }
        let folder = self.site.path("nginx");
        fs::create_dir(&folder).unwrap();
        let mut conf = format!(
            "daemon off;\npid {0}/pid;\nerror_log {0}/error.log;\nevents {{}}\nhttp {{\naccess_log {0}/access.log;\n",
            folder.display()
        );
        if geteuid().is_root() {
            conf.insert_str(0, "user root;\n");
        }
        for temporary in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(conf, "{temporary}_temp_path {}/{temporary};", folder.display()).unwrap();
        }
        writeln!(
            conf,
            "{upstream}\nserver {{\nlisten 127.0.0.1:{} ssl;\nserver_name localhost;\nssl_certificate {};\nssl_certificate_key {};\n{locations}}}\n}}",
            self.port,
            roots.display(),
            self.site.path("nginx.key").display()
        )
        .unwrap();
        fs::write(folder.join("nginx.conf"), conf).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(folder.join("nginx.conf")).arg("-e").arg(folder.join("error.log"));
        self.start(command, roots)
    }

    /// The lines of all sources in one site; its certificate is of Caddy's own authority.
    fn caddy(&self) -> Proxy {
        let folder = self.site.path("caddy");
        fs::create_dir(&folder).unwrap();
        let mut handles = String::new();
        let mut site = "";
        for lines in self.lines("caddy") {
            let (first, rest) = lines.split_once('\n').unwrap();
            site = first;
            handles += rest.strip_suffix("}").unwrap();
        }
        let options = format!(
            "{{\nadmin off\nskip_install_trust\nauto_https disable_redirects\nstorage file_system {}\n}}\n",
            folder.display()
        );
        fs::write(folder.join("Caddyfile"), format!("{options}{site}\n{handles}}}\n")).unwrap();
        let mut command = Command::new("caddy");
        command.arg("run").arg("--config").arg(folder.join("Caddyfile"));
        command.env("HOME", &folder);
        self.start(command, folder.join("pki/authorities/local/root.crt"))
    }

    /// Starts the proxy and waits until it shows its certificate.
    fn start(&self, mut command: Command, roots: PathBuf) -> Proxy {
        let log = File::create(self.site.path("proxy.log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let proxy = Proxy { child: command.spawn().unwrap(), roots };
        let end = Instant::now() + PATIENCE;
        let serves = || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
                && proxy.roots.exists()
                && self.ask("/", &Request::get(), &proxy).0 != 0
        };
        while !serves() {
            let log = || fs::read_to_string(self.site.path("proxy.log")).unwrap();
            assert!(Instant::now() < end, "it does not serve: {}", log());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        proxy
    }

    /// The status of the answer, or 0 without one, and its head and body.
    fn ask(&self, path: &str, request: &Request, proxy: &Proxy) -> (u16, String) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--include", "--http1.1", "--cacert"]).arg(&proxy.roots);
        command.arg(format!("https://localhost:{}{path}{}", self.port, request.query));
        match request.method {
            "HEAD" => command.arg("--head"),
            method => command.args(["--request", method]),
        };
        for header in &request.headers {
            command.args(["--header", header]);
        }
        if request.method == "POST" {
            let body = self.site.path("body");
            fs::write(&body, &request.body).unwrap();
            command.args(["--header", "Content-Type: application/json"]);
            command.arg("--data-binary").arg(format!("@{}", body.display()));
        }
        let answer = text(&command.output().unwrap().stdout);
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), answer)
    }

    fn path(&self, provider: &str) -> &str {
        let url = self.said[provider]["url"].as_str().unwrap();
        &url[format!("https://localhost:{}", self.port).len()..]
    }

    /// Delivers an event of each provider, and returns what went wrong.
    fn deliver_all(&self, proxy: &Proxy) -> Vec<String> {
        let mut wrong = Vec::new();
        for provider in self.said.keys().copied() {
            let url = self.said[provider]["url"].as_str().unwrap();
            let by_hand = self.keys.delivery(provider, &self.secret(provider), url);
            let answer = match by_hand {
                Some(request) => self.ask(self.path(provider), &request, proxy),
                None => self.send(provider, proxy),
            };
            let (status, said) = answer;
            if !(200..300).contains(&status) || !said.to_lowercase().contains("accepted") {
                wrong.push(format!("{provider}: {status} {said}"));
            }
        }
        wrong
    }

    fn send(&self, provider: &str, proxy: &Proxy) -> (u16, String) {
        let scheme = Scheme::embedded(provider).unwrap();
        let kind = scheme.setup().sample_type.as_deref().unwrap_or("test");
        let url = format!("https://localhost:{}", self.port);
        let args = ["send", provider, kind, "--url", &url, "--no-wait", "--json"];
        let output = self.site.command(&args).env("SSL_CERT_FILE", &proxy.roots).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let answer = &said["answers"][0];
        let status = answer["status"].as_u64().unwrap_or(0);
        (status.try_into().unwrap(), format!("{answer}{}", text(&output.stderr)))
    }

    /// Sends the challenges of each provider, and returns what went wrong. A provider whose challenges come by a method
    /// that no request of the lists has is wrong too.
    fn challenge_all(&self, proxy: &Proxy) -> Vec<String> {
        let challenges = self.keys.challenges(|name| self.secret(name));
        let registrations = by_hand::registrations();
        let challenged =
            challenges.iter().map(|(provider, request, _)| (*provider, request.method));
        let registered =
            registrations.iter().map(|(provider, request)| (*provider, request.method));
        let listed: Vec<(&str, &str)> = challenged.chain(registered).collect();
        let mut wrong = Vec::new();
        for provider in self.said.keys().copied() {
            let scheme = Scheme::embedded(provider).unwrap();
            let signed = (scheme.challenge().summary() == "signed").then_some("POST");
            for method in scheme.challenge().methods().chain(signed) {
                if !listed.contains(&(provider, method)) {
                    wrong.push(format!("{provider}: no challenge of the lists is a {method}"));
                }
            }
        }
        for (provider, request, expected) in challenges {
            let (status, said) = self.ask(self.path(provider), &request, proxy);
            if !(200..300).contains(&status) || !said.contains(&expected) {
                wrong.push(format!("{provider}: {status} {said}, not {expected}"));
            }
        }
        wrong
    }

    /// The providers that send their secret themselves: `register` waits while it comes through the proxy.
    fn register_all(&self, proxy: &Proxy) {
        for (provider, request) in by_hand::registrations() {
            let (mut register, query) = register(&self.site, provider);
            let request = request.query(&query);
            let end = Instant::now() + PATIENCE;
            while self.ask(self.path(provider), &request, proxy).0 != 200 {
                assert!(Instant::now() < end, "{provider} cannot register");
            }
            assert!(register.wait().unwrap().success(), "{provider}");
        }
    }
}

#[test]
fn every_provider_delivers_through_nginx_and_caddy_as_init_prints_them() {
    for program in ["nginx", "caddy", "curl", "openssl"] {
        if Command::new(program).arg("-v").output().is_err() {
            needs::missing(
                "nginx, Caddy, curl and OpenSSL",
                "apt install nginx caddy curl openssl",
            );
            return;
        }
    }
    let proxied = Proxied::new();
    let receiver = proxied.site.start();
    for (name, proxy) in
        [("nginx", Proxied::nginx as fn(&Proxied) -> Proxy), ("caddy", Proxied::caddy)]
    {
        let proxy = proxy(&proxied);
        if name == "nginx" {
            proxied.register_all(&proxy);
        }
        let wrong = [proxied.challenge_all(&proxy), proxied.deliver_all(&proxy)].concat();
        let kept = || text(&proxied.site.run(&["quarantine"]).stdout);
        assert!(wrong.is_empty(), "behind {name}:\n{}\n{}", wrong.join("\n"), kept());
    }
    drop(receiver);
    // A secret in the URL is in no log of nginx.
    let log = fs::read_to_string(proxied.site.path("nginx/access.log")).unwrap();
    assert!(log.contains("POST /hooks/github "), "{log}");
    let in_url = |name: &&str| Scheme::embedded(name).unwrap().proof().carries_secret_in_url();
    let of_url: Vec<&str> = proxied.said.keys().copied().filter(in_url).collect();
    assert!(of_url.len() >= 5, "{of_url:?}");
    assert_eq!(of_url.iter().find(|name| log.contains(&proxied.secret(name))), None);
}
