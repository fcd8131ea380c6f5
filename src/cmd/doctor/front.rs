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

pub(super) fn look(config: &Config) -> Vec<Finding> {
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
    if shown.listen.ip().is_loopback() {
        found.push(Finding::ok(
            TLS,
            format!("{} is this machine's alone: a proxy speaks TLS", shown.listen),
        ));
    }
    let files = NGINX.iter().flat_map(|place| texts(Path::new(place)));
    found.extend(nginx(&files.collect::<Vec<_>>(), &shown));
    found
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
fn nginx(files: &[(PathBuf, String)], shown: &Shown) -> Vec<Finding> {
    let largest = shown.sources.iter().map(|source| source.max_body_bytes).max().unwrap_or(0);
    let general = files.iter().filter(|(path, _)| path.ends_with("nginx.conf"));
    let general = general.filter_map(|(_, text)| allowed(text)).next_back();
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(_, text)| passes_to(text, shown.listen)) {
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

/// Whether a site passes requests to this address.
fn passes_to(text: &str, listen: SocketAddr) -> bool {
    let names = [listen.to_string(), format!("localhost:{}", listen.port())];
    lines(text).any(|line| {
        (line.contains("proxy_pass") || line.starts_with("server "))
            && names.iter().any(|name| line.contains(name.as_str()))
    })
}

/// The last size that a file allows; 0 means any.
fn allowed(text: &str) -> Option<u64> {
    let sizes = lines(text).filter_map(|line| {
        let value = line.strip_prefix("client_max_body_size")?.trim().trim_end_matches(';').trim();
        // nginx's k, m and g are the powers of 1,024.
        let binary =
            value.to_lowercase().replace('k', "KiB").replace('m', "MiB").replace('g', "GiB");
        binary.parse::<ByteSize>().ok().map(|size| size.0)
    });
    sizes.last()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with('#'))
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
            nginx(files, &shown()).into_iter().map(|one| one.verdict).collect::<Vec<_>>()
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
        let found = nginx(&site(""), &shown()).remove(0);
        assert!(found.fix.unwrap().starts_with("client_max_body_size 25m; in hooks.conf"));
    }
}
