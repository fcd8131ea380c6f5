//! Deliveries to each scheme. The first line of the input names the scheme; header lines follow up to an empty
//! line, and then the body.

use std::sync::LazyLock;

use hooklatch::document::Problems;
use hooklatch::model::Headers;
use hooklatch::provider::Scheme;

use super::signing;

/// Schemes with forms of proof that no built-in provider uses.
const OWN: [&str; 5] = [
    r#"
name = "token"
[signature]
algorithm = "token"
header = "X-Token"
[event]
id = "header:X-Id"
type = "json:/kind/name"
[replay]
guard = "off"
"#,
    r#"
name = "everything"
[signature]
algorithm = "hmac-sha512"
header = ["X-Sign-1", "X-Sign-2"]
repeatable = true
format = "pairs"
separator = "; "
label = "s"
prefix = "sha512="
encoding = "hex-any-case"
signed = "{method}|{url}|{header:X-Tenant}|{timestamp}|{body}|{id}"
[secret]
encoding = "hex"
[timestamp]
from = "item:t"
unit = "ms"
tolerance = "1min"
[event]
id = "header:X-Id"
type = ["header:X-Type", "json:/type"]
subtype = "json:/action"
form_field = "payload"
volatile = ["attempt", "sent_at"]
[delivery]
keep_headers = ["X-Id", "X-Type", "X-Tenant"]
"#,
    r#"
name = "inside"
[signature]
algorithm = "hmac-sha1"
header = "X-Sign"
encoding = "base64url"
signed = "{body}"
[secret]
encoding = "base64"
prefix = "key_"
[timestamp]
from = "json:/at"
unit = "iso8601"
tolerance = "5min"
[event]
id = "json:/a~1b/~0c"
type = "json:/t"
[delivery]
"#,
    r#"
name = "list"
[signature]
algorithm = "hmac-sha256"
header = "X-Signatures"
format = "list"
label = "v1a"
encoding = "base64"
signed = "{timestamp}.{body}"
[timestamp]
from = "header:X-Stamp"
unit = "s"
tolerance = "5min"
[event]
id = ["json:/data/0/id", "digest"]
type = ["json:/t", "json:/data/0/t"]
[delivery]
"#,
    r#"
name = "forms"
[signature]
algorithm = "hmac-sha256"
header = "X-Sign"
encoding = "hex"
signed = "{timestamp}.{body}"
[timestamp]
from = "header:X-Time"
unit = "s"
tolerance = "5min"
[event]
id = "header:X-Id"
type = "header:X-Type"
[replay]
guard = "hold"
[[alternative]]
signature = { header = "X-Other-Sign", encoding = "base64" }
timestamp.from = "header:X-Other-Time"
event.id = "header:X-Other-Id"
event.type = "header:X-Other-Type"
[delivery]
keep_headers = ["X-Id", "X-Type", "X-Other-Id", "X-Other-Type"]
"#,
];

static SCHEMES: LazyLock<Vec<Scheme>> = LazyLock::new(|| {
    let built_in = Scheme::embedded_names().filter_map(Scheme::embedded);
    let own = OWN.iter().map(|text| {
        let problems = Problems::new();
        Scheme::parse("own.toml", text, &problems)
            .unwrap_or_else(|| panic!("{:#?}", problems.into_sorted()))
    });
    built_in.chain(own).collect()
});

pub(super) fn check(data: &[u8]) {
    let (name, rest) = super::line(data);
    let named = SCHEMES.iter().find(|scheme| scheme.name().as_bytes() == name);
    let nth = usize::from(name.first().copied().unwrap_or(0)) % SCHEMES.len();
    let scheme = named.unwrap_or(&SCHEMES[nth]);
    let mut headers = Headers::new();
    let mut rest = rest;
    while !rest.is_empty() {
        let (line, behind) = super::line(rest);
        rest = behind;
        if line.is_empty() {
            break;
        }
        Headers::from_wire(line).iter().for_each(|(name, value)| headers.push(name, value));
    }
    signing::check(scheme, &headers, rest, true);
}
