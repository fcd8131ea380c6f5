//! What stands between the providers and the receiver: TLS, proxies and their limits.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;

use crate::config::{Config, Shown};

use super::super::output::size;
use super::Finding;

const TLS: &str = "TLS";
const PROXY: &str = "proxy";

/// Where Debian's nginx reads its sites from; the main file is the first.
const NGINX: [&str; 4] = [
    "/etc/nginx/nginx.conf",
    "/etc/nginx/conf.d",
    "/etc/nginx/sites-enabled",
    "/etc/nginx/snippets",
];

/// What nginx allows where it is not told otherwise (`client_max_body_size`, ngx_http_core_module).
const NGINX_BODY_BYTES: u64 = 1 << 20;

/// `listening`: where a running receiver really takes deliveries, which its socket unit may have said.
pub(super) fn look(config: &Config, listening: &[SocketAddr]) -> Vec<Finding> {
    let shown = config.shown();
    let mut found: Vec<_> = shown
        .sources
        .iter()
        .filter_map(|source| {
            let url = source.public_url.as_ref().filter(|url| url.starts_with("http://"))?;
            let seen = format!(
                "{url} of source {} is not encrypted: who listens in can replay it",
                source.name
            );
            Some(Finding::unwise(TLS, seen, "give the provider an https:// URL, by way of a proxy"))
        })
        .collect();
    let configured = [shown.listen];
    let listening = if listening.is_empty() { &configured } else { listening };
    found.extend(listening.iter().filter_map(|address| reach(*address, shown.listen)));
    let files = NGINX.iter().flat_map(|place| texts(Path::new(place)));
    found.extend(nginx(&files.collect::<Vec<_>>(), &shown, listening));
    found
}

/// Who can reach an address. One that stands in the configuration has been warned of with that.
fn reach(address: SocketAddr, configured: SocketAddr) -> Option<Finding> {
    if address.ip().to_canonical().is_loopback() {
        let seen = format!("{address} is this machine's alone: a proxy speaks TLS");
        return Some(Finding::ok(TLS, seen));
    }
    let seen = format!("{address} can be reached from other machines, without TLS");
    let fix = "systemctl edit hooklatch.socket, and write: [Socket] ListenStream= \
               ListenStream=127.0.0.1:8080";
    (address != configured).then(|| Finding::unwise(TLS, seen, fix))
}

/// The files at a place, a folder's one after the other, with their texts.
fn texts(place: &Path) -> Vec<(PathBuf, String)> {
    let inside = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = inside.chain(place.is_file().then(|| place.to_owned())).collect();
    files.sort();
    files
        .into_iter()
        .filter_map(|path| Some((path.clone(), fs::read_to_string(&path).ok()?)))
        .collect()
}

/// Judges the sites that pass deliveries to this receiver: by the text alone, since asking nginx would
/// take its rights.
fn nginx(files: &[(PathBuf, String)], shown: &Shown, listening: &[SocketAddr]) -> Vec<Finding> {
    let largest = shown.sources.iter().map(|source| source.max_body_bytes).max().unwrap_or(0);
    let general = files.iter().filter(|(path, _)| path.ends_with("nginx.conf"));
    let general = general.filter_map(|(_, text)| allowed(text)).next_back();
    let mut names: Vec<_> = listening.iter().flat_map(|address| names(*address)).collect();
    let upstreams: Vec<_> =
        files.iter().flat_map(|(_, text)| upstreams(text, &names)).map(str::to_owned).collect();
    names.extend(upstreams);
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(_, text)| passes_to(text, &names)) {
        let allowed = allowed(text).or(general).unwrap_or(NGINX_BODY_BYTES);
        let file = path.display();
        found.push(if allowed != 0 && allowed < largest {
            let seen = format!(
                "{file}: bodies over {} never arrive; {} are taken",
                size(allowed),
                size(largest)
            );
            let fix = format!(
                "client_max_body_size {}m; in {file}, then nginx -s reload",
                largest.div_ceil(1 << 20)
            );
            Finding::bad(PROXY, seen, fix)
        } else {
            Finding::ok(PROXY, format!("{file} passes bodies of every size that is taken"))
        });
    }
    found
}

/// How a proxy on this machine may call an address.
fn names(address: SocketAddr) -> [String; 4] {
    let port = address.port();
    let local = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
    let [name, v4, v6] = local;
    [address.to_string(), name, v4, v6]
}

/// The groups of servers that one with such a name is in.
fn upstreams<'t>(text: &'t str, names: &[String]) -> Vec<&'t str> {
    let (mut group, mut found) = (None, Vec::new());
    for statement in statements(text) {
        let mut words = statement.split_whitespace();
        match (words.next(), words.next()) {
            (Some("upstream"), name) => group = name,
            (Some("server"), Some(server)) if names.iter().any(|name| name == server) => {
                found.extend(group);
            }
            _ => {}
        }
    }
    found
}

/// Whether a site passes requests to one of these names.
fn passes_to(text: &str, names: &[String]) -> bool {
    let targets = statements(text).filter_map(|statement| {
        let (_, target) = statement.strip_prefix("proxy_pass")?.split_once("://")?;
        target.split('/').next()
    });
    targets.into_iter().any(|target| names.iter().any(|name| name == target))
}

/// The last size that a file allows; 0 means any.
fn allowed(text: &str) -> Option<u64> {
    let sizes = statements(text).filter_map(|statement| {
        let value = statement.strip_prefix("client_max_body_size")?.trim();
        // nginx's k, m and g are the powers of 1,024.
        let binary =
            value.to_lowercase().replace('k', "KiB").replace('m', "MiB").replace('g', "GiB");
        binary.parse::<ByteSize>().ok().map(|size| size.0)
    });
    sizes.last()
}

/// What stands between semicolons and braces, without comments.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let parts = lines.flat_map(|line| line.split([';', '{', '}'])).map(str::trim);
    parts.filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Verdict;
    use super::*;

    fn shown() -> Shown {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("s"), "0123456789abcdef").unwrap();
        let main = folder.path().join("hooklatch.toml");
        let text = "[sources.github]\nprovider = \"github\"\nsecrets = [\"file:s\"]\n";
        fs::write(&main, text).unwrap();
        crate::config::load(&main).unwrap().shown()
    }

    #[test]
    fn a_proxy_that_cuts_large_bodies_off_is_found() {
        let site = |body: &str| {
            let text = format!(
                "server {{\n  {body}\n  location / {{ \n proxy_pass http://127.0.0.1:8080; }}\n}}\n"
            );
            vec![(PathBuf::from("hooks.conf"), text)]
        };
        let verdict = |files: &[(PathBuf, String)]| {
            let shown = shown();
            let found = nginx(files, &shown, &[shown.listen]);
            found.into_iter().map(|one| one.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdict(&site("")), [Verdict::Bad], "1 MiB is the default");
        assert_eq!(verdict(&site("# client_max_body_size 25m;")), [Verdict::Bad]);
        assert_eq!(verdict(&site("client_max_body_size 25m;")), [Verdict::Ok]);
        assert_eq!(verdict(&site("client_max_body_size 0;")), [Verdict::Ok]);
        let mut general =
            vec![(PathBuf::from("nginx.conf"), "client_max_body_size 1g;".to_owned())];
        general.extend(site(""));
        assert_eq!(verdict(&general), [Verdict::Ok]);
        let other = vec![(PathBuf::from("x.conf"), "proxy_pass http://127.0.0.1:9000;".to_owned())];
        assert_eq!(verdict(&other), []);
        let shown = shown();
        let found = nginx(&site(""), &shown, &[shown.listen]).remove(0);
        assert!(found.fix.unwrap().starts_with("client_max_body_size 25m; in hooks.conf"));
    }

    /// What README tells to write must be seen, or its limit is never looked at.
    #[test]
    fn readmes_own_site_is_found() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let readme = fs::read_to_string(readme).unwrap();
        let site = readme.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap();
        let judged = |site: &str| {
            let shown = shown();
            let files = [(PathBuf::from("hooks"), site.to_owned())];
            nginx(&files, &shown, &[shown.listen])
        };
        let found = judged(site);
        assert!(matches!(found[..], [Finding { verdict: Verdict::Ok, .. }]), "{found:?}");
        let found = judged(&site.replace("client_max_body_size 25m;", ""));
        assert!(matches!(found[..], [Finding { verdict: Verdict::Bad, .. }]), "{found:?}");
    }

    #[test]
    fn a_port_of_the_socket_unit_is_the_one_that_counts() {
        let (open, own) = ("0.0.0.0:80".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        assert_eq!(reach(open, own).unwrap().verdict, Verdict::Unwise);
        assert_eq!(reach(open, open), None, "the configuration has been warned of");
        assert_eq!(reach(own, open).unwrap().verdict, Verdict::Ok);
        let site = "location / { proxy_pass http://127.0.0.1:9000/x; }".to_owned();
        let files = [(PathBuf::from("hooks"), site)];
        assert_eq!(nginx(&files, &shown(), &["[::]:9000".parse().unwrap()]).len(), 1);
    }
}
