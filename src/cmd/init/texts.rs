//! The texts that `init` writes: a main configuration, a source's stanza, and a proxy's configuration.
//! Must stay true: the configuration loads as written, and has no secret in it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::model::{DEFAULT_CONFIG, Name};
use crate::provider::Scheme;

const MIB: u64 = 1024 * 1024;

/// A main configuration. If it is not the system's, its store is in the same folder.
pub(crate) fn main(path: &Path) -> String {
    let text = include_str!("hooklatch.toml");
    let own = "path = \"hooklatch.db\"";
    match path == Path::new(DEFAULT_CONFIG) {
        true => text.replace(own, "# path = \"/var/lib/hooklatch/hooklatch.db\""),
        false => text.to_owned(),
    }
}

/// The steps before using a source whose proxy names the caller.
const BEFORE_CERTIFIED: &str = "\
#
# Only a proxy knows whose certificate came with a request. Name it in
# server.trusted_proxies, have it set the header below and take out what clients
# send in it, and then take the comment signs away here and below: the caller
# gets what the source's one handler answers.
#
";

/// The key for GitHub's Redeliver button.
const REDELIVER: &str = "\
# GitHub's Redeliver button runs a job again that failed for good.
on_redelivery = \"replay-dead\"
";

/// The keys by which a source identifies its callers with certificates.
const CERTIFIED: &str = "\
reply = \"handler\"
certificate_header = \"X-Client-Cert\"   # has the certificate's name
";

/// Behind the source's name: the name of the file with its `verify_token`.
pub(super) const VERIFY: &str = ".verify";

/// The stanza of one source, with a handler commented out. `reference` followed by the source's name is
/// the reference to its secret.
pub(crate) fn stanza(
    source: &Name,
    scheme: &Scheme,
    path: &str,
    public_url: Option<&str>,
    reference: &str,
) -> String {
    let (provider, proof) = (scheme.name(), scheme.proof());
    let mut table =
        format!("[sources.{source}]\nprovider = {}\npath = {}\n", quoted(provider), quoted(path));
    if proof.needs_certificates() {
        table.push_str(CERTIFIED);
    } else if proof.is_absent() {
        table.push_str("allow_unsigned = true            # nothing proves who sent a request\n");
    } else {
        let reference = quoted(&format!("{reference}{source}"));
        let comment = "# Several are good at once, while one is being rotated.";
        table.push_str(&format!("{comment}\nsecrets = [{reference}]\n"));
    }
    if scheme.challenge().needs_verify_token() {
        let reference = quoted(&format!("{reference}{source}{VERIFY}"));
        table.push_str(&format!("verify_token = {reference}\n"));
    }
    if provider == "github" {
        table.push_str(REDELIVER);
    }
    if let Some(word) = proof.sender_word() {
        table.push_str(&format!("# {word}: fill it in\nsender = \"FILL-IN\"\n"));
    }
    if let Some(url) = public_url {
        table.push_str(&format!("public_url = {}\n", quoted(url)));
    }
    let mut text = format!("# What {provider} sends. After a change: hooklatch reload.\n");
    if proof.needs_certificates() {
        // Commented out, because the loader refuses it without a trusted proxy.
        text.push_str(BEFORE_CERTIFIED);
        table.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
    } else {
        text.push_str(&format!("\n{table}"));
    }
    // A handler that answers its caller must take every type.
    let kind = scheme.setup().sample_type.as_deref().filter(|_| !proof.needs_certificates());
    let kind = kind.unwrap_or("*");
    text.push_str(&format!(
        "
# What runs for its events: a command, which gets the raw body on standard
# input, or a local HTTP endpoint. Here, or in a file of its own.
#
# [handlers.on-{source}]
# source = \"{source}\"
# events = [{}]   # \"*\" for all
# command = [\"/usr/local/bin/on-{source}\"]
# forward = \"http://127.0.0.1:3000/hooks\"   # instead of a command
",
        quoted(kind)
    ));
    text
}

/// A TOML string. Every escape of JSON is also valid in TOML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The configuration that makes a proxy pass on a source's URL.
#[derive(serde::Serialize)]
pub(super) struct Proxies {
    pub(super) caddy: String,
    pub(super) nginx: String,
}

/// The configuration that passes `url` on to `path` at `listen`; `most` is the largest body in bytes. nginx logs URLs
/// by default; Caddy logs none without the directive `log`.
pub(super) fn proxies(
    url: &str,
    path: &str,
    listen: SocketAddr,
    most: u64,
    secret_in_url: bool,
) -> Proxies {
    let log = if secret_in_url { "    access_log off;   # the secret is in the URL\n" } else { "" };
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (host, outside) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let mut inside = listen;
    if inside.ip().is_unspecified() {
        inside.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let (rewrite, target) = match outside == path {
        true => (String::new(), String::new()),
        false => (format!("        rewrite * {path}\n"), path.to_owned()),
    };
    let size = match most.is_multiple_of(MIB) {
        true => format!("{}m", most / MIB),
        false => format!("{}k", most.div_ceil(1024)),
    };
    let caddy = format!(
        "{host} {{\n    handle {outside} {{\n{rewrite}        reverse_proxy {inside}\n    }}\n}}"
    );
    let nginx = format!(
        "upstream hooklatch {{ server {inside}; keepalive 16; }}\n\
         location = {outside} {{\n{log}    client_max_body_size {size};\n    \
         proxy_pass http://hooklatch{target};\n    proxy_http_version 1.1;\n    \
         proxy_set_header Connection \"\";\n    \
         proxy_set_header X-Forwarded-For $remote_addr;\n}}"
    );
    Proxies { caddy, nginx }
}

/// Indents every line by two spaces.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
