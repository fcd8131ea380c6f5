//! What a hook's `ip-whitelist` is for a proxy. Here addresses are the proxy's task.

use std::net::{IpAddr, Ipv6Addr};

/// The networks from which a request may come, as texts of nginx. Empty if it may come from anywhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Addresses {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Addresses {
    /// A request must come from one of these ranges, or from another address.
    pub(super) fn add(&mut self, ranges: &str, allowed: bool) -> Result<(), String> {
        let ranges: Vec<String> = ranges.split_whitespace().map(range).collect::<Result<_, _>>()?;
        if ranges.is_empty() {
            return Err("an ip-whitelist without a range".to_owned());
        }
        match (allowed, self.allow.is_empty()) {
            (false, _) => self.deny.extend(ranges),
            (true, true) => self.allow = ranges,
            (true, false) if self.allow == ranges => {}
            (true, false) => return Err("two ip-whitelists in one `and`".to_owned()),
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    fn nginx(&self) -> String {
        let deny = self.deny.iter().map(|range| format!("deny {range};"));
        let allow = self.allow.iter().map(|range| format!("allow {range};"));
        let rest = (!self.allow.is_empty()).then(|| "deny all;".to_owned());
        deny.chain(allow).chain(rest).collect::<Vec<_>>().join(" ")
    }
}

/// A range as nginx writes it. A single address is `/32` there, which of IPv6 is a whole network.
fn range(text: &str) -> Result<String, String> {
    let wrong = || format!("ip-whitelist: '{text}' is not a range, and webhook answers 500");
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u32 = bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?;
    Ok(match address {
        IpAddr::V4(address) if bits == 32 => address.to_string(),
        IpAddr::V4(address) => format!("{address}/{bits}"),
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            format!("{}/{bits}", Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    })
}

/// The addresses of a whole rule: those of its tables, each with what else the table asks for. `None` if it asks for
/// none. They are one list for a proxy only if every other thing goes with the same addresses.
pub(super) fn of_all<'t, T: PartialEq>(
    tables: impl Iterator<Item = (&'t Addresses, T)>,
) -> Result<Option<String>, String> {
    let mut by_rest: Vec<(T, Vec<&Addresses>)> = Vec::new();
    for (addresses, rest) in tables {
        match by_rest.iter_mut().find(|(known, _)| *known == rest) {
            Some((_, all)) => all.push(addresses),
            None => by_rest.push((rest, vec![addresses])),
        }
    }
    let mut lists = by_rest.into_iter().map(|(_, all)| all);
    let Some(first) = lists.next() else { return Ok(None) };
    if lists.any(|other| other != first) {
        return Err("an ip-whitelist in one part of an `or`, and not in the other".to_owned());
    }
    match &first[..] {
        all if all.iter().any(|one| one.is_empty()) => Ok(None),
        [one] => Ok(Some(one.nginx())),
        all if all.iter().all(|one| one.deny.is_empty()) => {
            let mut joined = Addresses::default();
            for range in all.iter().flat_map(|one| &one.allow) {
                if !joined.allow.contains(range) {
                    joined.allow.push(range.clone());
                }
            }
            Ok(Some(joined.nginx()))
        }
        _ => Err("an `or` of ip-whitelists, one of them under `not`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn addresses(allowed: &[&str], denied: &[&str]) -> Addresses {
        let mut all = Addresses::default();
        allowed.iter().for_each(|ranges| all.add(ranges, true).unwrap());
        denied.iter().for_each(|ranges| all.add(ranges, false).unwrap());
        all
    }

    #[test]
    fn all_ranges_of_an_or_are_allowed() {
        let (one, two) = (addresses(&["10.0.0.1 10.1.0.0/16"], &[]), addresses(&["::1"], &[]));
        let both = of_all([(&one, 1), (&two, 1)].into_iter());
        assert_eq!(
            both,
            Ok(Some("allow 10.0.0.1; allow 10.1.0.0/16; allow ::/32; deny all;".into()))
        );
        let open = Addresses::default();
        assert_eq!(of_all([(&one, 1), (&open, 1)].into_iter()), Ok(None));
        assert!(of_all([(&one, 1), (&two, 2)].into_iter()).is_err());
        let same = of_all([(&one, 1), (&one, 2)].into_iter());
        assert_eq!(same, Ok(Some("allow 10.0.0.1; allow 10.1.0.0/16; deny all;".into())));
        let not = addresses(&["10.0.0.0/8"], &["10.0.0.1", "10.0.0.2"]);
        let lines = "deny 10.0.0.1; deny 10.0.0.2; allow 10.0.0.0/8; deny all;";
        assert_eq!(of_all([(&not, 1)].into_iter()), Ok(Some(lines.into())));
        let never = addresses(&[], &["10.0.0.1"]);
        assert_eq!(of_all([(&never, 1)].into_iter()), Ok(Some("deny 10.0.0.1;".into())));
        for wrong in ["10.0.0.0/33", "host", "", "1::/x"] {
            assert!(Addresses::default().add(wrong, true).is_err(), "{wrong}");
        }
    }
}
