//! The client's address: the peer's, or the one that a trusted proxy reports.
//!
//! The quarantine uses it to bound how much one address may fill. A header that names a certificate counts only if a
//! trusted proxy sent it. Verification never uses the address.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::limits::FORWARDED_HOPS;
use crate::model::Headers;

/// The proxies that are trusted to report a client's address.
pub type Proxies = Vec<IpNet>;

/// The client's address. Each trusted proxy appends the address of its peer to `X-Forwarded-For`. Everything
/// before the first untrusted address may be forged. `Forwarded` is not read, because a proxy that writes
/// one of the two headers passes on the other as the client sent it.
pub(super) fn address(peer: IpAddr, headers: &Headers, proxies: &Proxies) -> IpAddr {
    let mut address = peer.to_canonical();
    if proxies.is_empty() {
        return address;
    }
    let lines: Vec<&[u8]> = headers.all("x-forwarded-for").collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(|&byte| byte == b','));
    for hop in hops.take(FORWARDED_HOPS) {
        if !is_proxy(address, proxies) {
            break;
        }
        let Some(next) = std::str::from_utf8(hop).ok().and_then(parse) else { break };
        address = next;
    }
    address
}

pub(super) fn is_proxy(peer: IpAddr, proxies: &Proxies) -> bool {
    let peer = peer.to_canonical();
    proxies.iter().any(|network| network.contains(&peer))
}

/// An address as proxies write it, some with the port.
fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let of_socket = || text.parse().map(|socket: SocketAddr| socket.ip());
    let address: IpAddr = text.parse().or_else(|_| of_socket()).ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seen(peer: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = Headers::new();
        for line in forwarded {
            headers.push("X-Forwarded-For", *line);
        }
        let proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        address(peer.parse().unwrap(), &headers, &proxies).to_string()
    }

    /// Peer, lines of `X-Forwarded-For`, trusted proxies, client.
    type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a str);

    #[test]
    fn only_a_trusted_proxy_names_an_address_and_only_that_of_its_own_client() {
        let local = ["127.0.0.1/32"];
        let cases: &[Case<'_>] = &[
            ("192.0.2.1", &["198.51.100.7"], &[], "192.0.2.1"),
            ("192.0.2.1", &["198.51.100.7"], &local, "192.0.2.1"),
            ("127.0.0.1", &["198.51.100.7"], &local, "198.51.100.7"),
            ("::ffff:127.0.0.1", &["198.51.100.7:4711"], &local, "198.51.100.7"),
            ("127.0.0.1", &[], &local, "127.0.0.1"),
            // What the client itself wrote stands further left.
            ("127.0.0.1", &["203.0.113.9, 198.51.100.7"], &local, "198.51.100.7"),
            ("127.0.0.1", &["203.0.113.9", "198.51.100.7"], &local, "198.51.100.7"),
            (
                "127.0.0.1",
                &["198.51.100.7, 10.1.2.3"],
                &["127.0.0.1/32", "10.0.0.0/8"],
                "198.51.100.7",
            ),
            ("10.200.0.1", &["[2001:db8::7]:443"], &["10.0.0.0/8"], "2001:db8::7"),
            ("fd00::1", &["2001:db8::7"], &["fd00::/8"], "2001:db8::7"),
            ("11.0.0.1", &["198.51.100.7"], &["10.0.0.0/8"], "11.0.0.1"),
            ("127.0.0.1", &["unknown"], &local, "127.0.0.1"),
            ("127.0.0.1", &["198.51.100.7,"], &local, "127.0.0.1"),
            ("9.9.9.9", &["198.51.100.7"], &["0.0.0.0/0"], "198.51.100.7"),
        ];
        for (peer, forwarded, proxies, wanted) in cases {
            assert_eq!(seen(peer, forwarded, proxies), *wanted, "{peer} {forwarded:?} {proxies:?}");
        }
    }
}
