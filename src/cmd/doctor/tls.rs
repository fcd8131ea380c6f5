//! Checks how deliveries arrive: whether they are encrypted, and whether a proxy passes them on unchanged.

use std::net::SocketAddr;

use crate::model::config_option;

use super::super::output::size;
use super::finding::{Finding, Verdict};
use super::machine::Machine;

pub(super) fn check(machine: &Machine<'_>) -> Vec<Finding> {
    let config = machine.config;
    let mut findings = Vec::new();
    for source in &config.sources {
        if let Some(url) = source.public_url.as_ref().filter(|url| url.starts_with("http://")) {
            let name = &source.name;
            let seen =
                format!("{url} of source {name} is not encrypted: an eavesdropper can replay it");
            let fix = "give the provider an https:// URL, by way of a proxy";
            findings.push(Finding::unwise(seen, fix));
        }
    }
    // The socket unit may name another address than the configuration.
    let mut listening = machine.listening.clone();
    if listening.is_empty() {
        listening.push(config.server().listen);
    }
    findings.extend(listening.iter().filter_map(|address| reach(*address, config.server().listen)));
    findings
}

/// Checks who can reach an address. `None` for the configured address if other machines can reach it:
/// the check of the configuration has already warned of that.
fn reach(address: SocketAddr, configured: SocketAddr) -> Option<Finding> {
    if address.ip().to_canonical().is_loopback() {
        let seen = format!("only this machine can reach {address}: a proxy speaks TLS");
        return Some(Finding::ok(seen));
    }
    let seen = format!("{address} can be reached from other machines, without TLS");
    let fix = "systemctl edit hooklatch.socket, and write: [Socket] ListenStream= \
               ListenStream=127.0.0.1:8080";
    (address != configured).then(|| Finding::unwise(seen, fix))
}

/// Names the command that tests the proxy: only a delivery through it shows what it passes on.
pub(super) fn proxy(machine: &Machine<'_>) -> Vec<Finding> {
    let config = machine.config;
    // `send` has no client certificate.
    let can_send = config.sources.iter().filter_map(|source| {
        Some((source, config.endpoint(&source.name).filter(|endpoint| !endpoint.certified)?))
    });
    let Some((source, endpoint)) =
        can_send.max_by_key(|(source, _)| (source.public_url.is_some(), source.body_limit_bytes))
    else {
        return Vec::new();
    };
    let (name, suffix) = (&source.name, config_option(machine.path));
    let event_type = endpoint.scheme.setup().sample_type.as_deref().unwrap_or("test");
    let url = source.public_url.as_deref().unwrap_or("https://YOUR-HOST");
    let most = size(source.body_limit_bytes);
    let seen =
        format!("only a delivery through it shows what it passes on; --body FILE for {most}");
    let fix = format!("hooklatch send {name} {event_type} --url {url}{suffix}");
    vec![Finding::new(Verdict::Unknown, seen, Some(fix))]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_open_address_of_the_socket_unit_is_unwise() {
        let (open, own) = ("0.0.0.0:80".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        assert_eq!(reach(open, own).unwrap().verdict, Verdict::Unwise);
        assert_eq!(reach(open, open), None, "the configuration has been warned of");
        assert_eq!(reach(own, open).unwrap().verdict, Verdict::Ok);
    }
}
