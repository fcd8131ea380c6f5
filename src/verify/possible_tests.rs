//! Every provider file that is accepted has a genuine request that is accepted: tried with all combinations of the keys
//! that say where a proof is and what it covers.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use serde_json::{Value, json};

use crate::document::Problems;
use crate::model::{Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Draft, Request};

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const SECRET: &str = "c2VjcmV0LW9mLXRlc3Rz";
const URL: &str = "https://h.example/t";
/// Stands for a prefix that no header can have.
const PREFIX: &str = "PREFIX";

/// A file in parts.
#[derive(Clone, Copy)]
struct Keys {
    algorithm: &'static str,
    carrier: &'static str,
    format: &'static str,
    prefix: &'static str,
    encoding: &'static str,
    signed: &'static str,
    stamp: &'static str,
    event: &'static str,
}

const PLAIN: Keys = Keys {
    algorithm: "hmac-sha256",
    carrier: "header = \"X-Signature\"",
    format: "",
    prefix: "",
    encoding: "hex",
    signed: "{body}",
    stamp: "",
    event: "",
};

const CARRIERS: [&str; 8] = [
    "header = \"X-Signature\"",
    "header = \"X-Time\"",
    "header = \"X-Id\"",
    "field = \"json:/sig\"",
    "query = \"token\"",
    "query = \"token\"\nfield = \"json:/sig\"",
    "field = \"json:/sig\"\nform = \"sig\"",
    "form = \"sig\"",
];

impl Keys {
    /// The file, with another carrier if one is given.
    fn file(&self, carrier: Option<&str>) -> String {
        let Keys { algorithm, format, prefix, encoding, signed, stamp, event, .. } = self;
        let carrier = carrier.unwrap_or(self.carrier);
        let kind = match *algorithm {
            "token" => String::new(),
            "jwt" => "jwt = [\"HS256\"]\n".to_owned(),
            "jwt-body" => {
                "jwt = [\"HS256\"]\nbody_claim = \"sha256\"\nbody_encoding = \"hex\"\n".to_owned()
            }
            _ => format!("encoding = \"{encoding}\"\nsigned = \"{signed}\"\n"),
        };
        let algorithm = algorithm.trim_end_matches("-body");
        let replay = "[replay]\nguard = \"off\"\n";
        let file = |replay: &str| {
            format!(
                "name = \"own\"\n[signature]\nalgorithm = \"{algorithm}\"\n{carrier}\nprefix = \"{prefix}\"\n{format}\n{kind}{stamp}\n[event]\nid = [\"header:X-Id\", \"digest\"]\n{event}\n{replay}"
            )
        };
        let signed_id = file("").replace("[\"header:X-Id\", \"digest\"]", "\"header:X-Id\"");
        match (signed.contains("{id}"), *algorithm == *"hmac-sha256") {
            (true, true) => signed_id,
            _ => file(replay),
        }
    }
}

fn parse(text: &str) -> Option<Scheme> {
    Scheme::parse("own.toml", text, &Problems::new())
}

/// Whether some request that its sender would make is accepted.
fn has_a_request(keys: &Keys, scheme: &Scheme) -> Result<(), String> {
    let key = verify::key(scheme, "test", SECRET)?;
    let elements = keys.event.contains("each");
    let mut body = json!({ "a": "one", "time": NOW.seconds(), "sig": "" });
    let by_form = keys.carrier.starts_with("form");
    let in_body = keys.carrier.contains("field") || by_form;
    let signed = match in_body {
        true => {
            let elsewhere = Keys { prefix: PREFIX, ..*keys }.file(Some("header = \"X-Elsewhere\""));
            parse(&elsewhere).ok_or("no such file")?
        }
        false => scheme.clone(),
    };
    let signs_form = keys.algorithm == PLAIN.algorithm && keys.signed.contains("form}");
    let is_form = signs_form || keys.event.contains("form_field") || by_form;
    let text = |body: &Value| match () {
        () if is_form => {
            let mut form = form_urlencoded::Serializer::new(String::new());
            let mut body = body.clone();
            if by_form && let Some(signature) = body["sig"].as_str().filter(|sig| !sig.is_empty()) {
                form.append_pair("sig", signature);
            }
            if by_form {
                body["sig"] = "".into();
            }
            form.append_pair("payload", &body.to_string());
            form.finish()
        }
        () if elements => json!({ "events": [body] }).to_string(),
        () => body.to_string(),
    };
    let draft = |body: &Value| Draft {
        method: "POST",
        url: Some(URL),
        id: "evt-1",
        body: Bytes::from(text(body)),
        ..Draft::default()
    };
    let mut headers = verify::sign(&signed, Some(&key), &draft(&body), NOW)?;
    if in_body {
        let value = headers.all("X-Elsewhere").next().unwrap_or_default();
        let prefix = keys.prefix.replace("\\u00e9", "\u{e9}");
        body["sig"] = String::from_utf8_lossy(value).replace(PREFIX, &prefix).into();
    }
    let json_or_form =
        if is_form { "application/x-www-form-urlencoded" } else { "application/json" };
    headers.push("Content-Type", json_or_form);
    // As a server hands them on.
    let trimmed: Vec<(String, Vec<u8>)> = headers
        .iter()
        .map(|(name, value)| (name.to_owned(), value.trim_ascii().to_vec()))
        .collect();
    let mut sent = Headers::default();
    for (name, value) in trimmed {
        sent.push(name, value);
    }
    let body = draft(&body).body;
    let request = Request { method: "POST", url: Some(URL), headers: &sent, body };
    verify::verify(scheme, std::slice::from_ref(&key), request, NOW)
        .map(drop)
        .map_err(|why| format!("{why:?}"))
}

/// Whether the signature's header is also that of the id, which the test's signer would write twice.
fn is_in_id(keys: &Keys) -> bool {
    let signs_id = keys.algorithm == PLAIN.algorithm && keys.signed.contains("{id}");
    keys.carrier.contains("X-Id") && !signs_id
}

/// Tries all of them. Gives how many files were accepted and refused.
fn try_all(files: impl Iterator<Item = Keys>) -> (usize, usize) {
    let (mut accepted, mut refused) = (0, 0);
    for keys in files.filter(|keys| !is_in_id(keys)) {
        let text = keys.file(None);
        let Some(scheme) = parse(&text) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        if let Err(why) = has_a_request(&keys, &scheme) {
            panic!("this file can never accept a request ({why}):\n{text}");
        }
    }
    (accepted, refused)
}

/// The keys with each of these in the place that `set` fills.
fn each<'a, T: Copy>(files: &'a [Keys], values: &'a [T], set: fn(Keys, T) -> Keys) -> Vec<Keys> {
    files.iter().flat_map(|keys| values.iter().map(move |value| set(*keys, *value))).collect()
}

#[test]
fn every_form_of_a_signature_can_be_read() {
    let mut formats = vec!["", "format = \"plain\"", "format = \"commas\""];
    for label in ["v1", "v,1", "v 1"] {
        formats.push(format!("format = \"list\"\nlabel = \"{label}\"").leak());
    }
    for separator in [",", ", ", ";", "=", "a", ".", " = "] {
        for label in ["v1", "t", "v=1", "v,1", "v;1"] {
            let others = ["", "\nunless = \"v1\"", "\nunless = \"v2\""];
            for unless in others.into_iter().chain([
                "\nequals = \"|\"",
                "\nequals = \"\"",
                "\nequals = \";\"",
            ]) {
                let pairs = "format = \"pairs\"\nseparator";
                formats
                    .push(format!("{pairs} = \"{separator}\"\nlabel = \"{label}\"{unless}").leak());
            }
        }
    }
    let timed = (
        "[timestamp]\nfrom = \"item:t\"\nunit = \"s\"\ntolerance = \"5min\"",
        "{timestamp}.{body}",
    );
    let files = each(&[PLAIN], &["hmac-sha256", "token", "jwt"], |keys, algorithm| Keys {
        algorithm,
        ..keys
    });
    let files = each(&files, &CARRIERS, |keys, carrier| Keys { carrier, ..keys });
    let files = each(&files, &formats, |keys, format| Keys { format, ..keys });
    let files = each(&files, &["", "p=", "p,", " p", "p ", "p\\u00e9"], |keys, prefix| Keys {
        prefix,
        ..keys
    });
    let files = each(&files, &[("", "{body}"), timed], |keys, (stamp, signed)| Keys {
        stamp,
        signed,
        ..keys
    });
    let files = each(&files, &["hex", "base64"], |keys, encoding| Keys { encoding, ..keys });
    let (accepted, refused) = try_all(files.into_iter());
    assert!(accepted > 200 && refused > 200, "{accepted} accepted, {refused} refused");
}

#[test]
fn everything_that_is_signed_can_be_signed() {
    let stamps = ["", "item:t", "header:X-Time", "json:/time"].map(|from| match from {
        "" => "",
        from => {
            &*format!("[timestamp]\nfrom = \"{from}\"\nunit = \"s\"\ntolerance = \"5min\"").leak()
        }
    });
    let signed = [
        "{body}",
        "{timestamp}.{body}",
        "{id}.{body}",
        "{json:/a}",
        "{json:/a}.{json:/time}",
        "{json:/sig}",
        "{header:X-Signature}.{body}",
        "{form}",
        "{form:payload}",
        "{form:other}",
        "{timestamp}.{form:payload}",
        "{url}{form}",
        "{url}{form:payload}",
        "{url+form}",
        "{lines:a}",
        "{lines:a,sig}",
        "{timestamp}.{json:/a}",
        "{url}{body}",
        "{crc32:body}",
        "{method}.{body}",
        "{path}.{body}",
        "{headers-in:X-Names}.{body}",
        "{headers-in:X-Signature}.{body}",
        "{json-string:body}",
        "{{{json-string:body},{item:env},{timestamp}}",
        "{item:v1}.{body}",
        "{item:t}.{body}",
        "{item:a&b}.{body}",
    ];
    let formats = [
        "",
        "format = \"pairs\"\nseparator = \",\"\nlabel = \"v1\"",
        "format = \"pairs\"\nseparator = \"&\"\nlabel = \"v1\"",
        "repeatable = true",
    ];
    let events = ["", "form_field = \"payload\"", "each = \"json:/events\""];
    let files = each(&[PLAIN], &["hmac-sha256", "token", "jwt", "jwt-body"], |keys, algorithm| {
        Keys { algorithm, ..keys }
    });
    let files = each(&files, &CARRIERS, |keys, carrier| Keys { carrier, ..keys });
    let files = each(&files, &stamps, |keys, stamp| Keys { stamp, ..keys });
    let files = each(&files, &signed, |keys, signed| Keys { signed, ..keys });
    let files = each(&files, &events, |keys, event| Keys { event, ..keys });
    let files = each(&files, &formats, |keys, format| Keys { format, ..keys });
    let (accepted, refused) = try_all(files.into_iter());
    assert!(accepted > 200 && refused > 200, "{accepted} accepted, {refused} refused");
}
