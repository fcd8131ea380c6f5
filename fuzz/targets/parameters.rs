//! The parameters of a request to the admin API: its path, its query and its body.

use hooklatch::probe;

use super::text_line;

pub(super) fn check(data: &[u8]) {
    let Some((line, body)) = text_line(data) else { return };
    let Some((method, target)) = line.split_once(' ') else { return };
    let Ok((target, body)) = probe::admin_request(method, target, body) else { return };
    let again = probe::admin_request(method, &target, &body);
    assert_eq!(again, Ok((target, body)), "a request that the client wrote is read as it was");
}
