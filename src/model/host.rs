//! Which names a machine has for itself.

use std::net::IpAddr;

/// Whether a `Host` header is an IP address or `localhost`, with or without a port. A web page can be given
/// any other name for this machine, and its browser then sends that name.
pub fn is_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => (address, port),
            None => return false,
        },
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let bracketed = host.starts_with('[');
    let address = name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6() == bracketed);
    port && (address || (!bracketed && name.eq_ignore_ascii_case("localhost")))
}
