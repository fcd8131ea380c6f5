//! A handler's whole answer to a waiting caller: a status, headers and a body.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Blob, Headers};

/// An answer as it is stored and sent: a repeated request gets the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Form", try_from = "Form")]
pub struct Answer {
    /// An HTTP status, 200 to 599.
    pub status: u16,
    /// Its header lines, without those that belong to one connection.
    pub headers: Headers,
    pub body: Bytes,
}

/// Headers of one message on one connection (RFC 9110, section 7.6.1, and the framing of RFC 9112, section 6), and
/// headers that the receiver adds to every stored answer.
const NOT_KEPT: &str = "connection content-length date idempotency-result keep-alive proxy-connection te trailer \
    transfer-encoding upgrade via";

/// Most bytes of the header lines that a command prints: as many as usual HTTP clients read.
const BLOCK_BYTES: usize = 64 * 1024;

/// The media type of a command's output that names none.
const PLAIN: &str = "text/plain; charset=utf-8";

/// An answer in JSON: no byte of it is lost.
#[derive(Serialize, Deserialize)]
struct Form {
    status: u16,
    headers: Vec<(String, Blob)>,
    body: Blob,
}

impl From<Answer> for Form {
    fn from(answer: Answer) -> Form {
        let headers = answer.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), Blob(value.to_vec())));
        let body = Blob(answer.body.to_vec());
        Form { status: answer.status, headers: headers.collect(), body }
    }
}

impl TryFrom<Form> for Answer {
    type Error = String;

    fn try_from(form: Form) -> Result<Answer, String> {
        let mut headers = Headers::new();
        for (name, value) in form.headers {
            if !is_header_name(&name) || value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
            {
                return Err(format!("'{name}' is not a header line"));
            }
            headers.push(name, value.0);
        }
        Answer::new(form.status, &headers, Bytes::from(form.body.0))
            .ok_or_else(|| format!("{} is not a status of an answer", form.status))
    }
}

impl Answer {
    /// The statuses that an answer may have: final ones (RFC 9110, section 15).
    pub const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

    /// Whether it says that its request may be done later, and is not done now: any 5xx, and 408, 425 and 429
    /// (RFC 9110, section 15.5.9; RFC 8470; RFC 6585).
    pub fn is_error(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..)
    }

    /// An answer of this status, or `None` if that is not a final one. Headers of one connection are left out, also
    /// those that `Connection` names.
    pub fn new(status: u16, headers: &Headers, body: Bytes) -> Option<Answer> {
        let options: Vec<_> =
            headers.all("connection").flat_map(|value| value.split(|&b| b == b',')).collect();
        let kept = |name: &str| {
            let same = |other: &&[u8]| other.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
            !NOT_KEPT.split(' ').any(|other| other.eq_ignore_ascii_case(name))
                && !options.iter().any(same)
        };
        let mut own = Headers::new();
        for (name, value) in headers.iter().filter(|(name, _)| kept(name)) {
            own.push(name, value);
        }
        Answer::STATUSES.contains(&status).then_some(Answer { status, headers: own, body })
    }

    /// What a command printed, as an answer: the body, behind an optional block of header lines.
    ///
    /// There is a block where the first line is a `Status: 201` or a `Content-Type: …`, as in CGI
    /// (RFC 3875, section 6.3); it ends with the first empty line. Without a `Status` line the status is
    /// `status`. An `Err` says, for people, why it can be no answer.
    pub fn printed(output: &Bytes, status: u16) -> Result<Answer, String> {
        let mut headers = Headers::new();
        let begins = |name: &str| {
            output.get(..name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes()))
        };
        let has_block = begins("status:") || begins("content-type:");
        let (mut status, mut at) = (status, 0);
        let within = &output[..output.len().min(BLOCK_BYTES)];
        for number in (1..).take_while(|_| has_block) {
            let rest = &within[at..];
            let end = rest.iter().position(|&byte| byte == b'\n');
            let end = end.ok_or("its header lines do not end with an empty line within 64 KiB")?;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            at += end + 1;
            if line.is_empty() {
                break;
            }
            // By its number: it may be as long as the output.
            let wrong = |how: &str| format!("line {number} of its output {how}");
            let (name, value) = header_line(line).map_err(wrong)?;
            match name.eq_ignore_ascii_case("status") {
                true => {
                    let read = read_status(value);
                    status = read.ok_or_else(|| wrong("has no status of an answer, 200 to 599"))?;
                }
                false => headers.push(name, value),
            }
        }
        if headers.all("content-type").next().is_none() {
            headers.push("Content-Type", PLAIN);
        }
        Answer::new(status, &headers, output.slice(at..))
            .ok_or_else(|| format!("{status} is not a status of an answer"))
    }
}

/// Name and value.
fn header_line(line: &[u8]) -> Result<(&str, &str), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "is not UTF-8")?;
    let parts = line.split_once(':').filter(|(name, _)| is_header_name(name));
    let (name, value) = parts.ok_or("is not a header line")?;
    match value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        true => Err("has a control character"),
        false => Ok((name, value.trim())),
    }
}

/// `201`, or `201 Created`.
fn read_status(value: &str) -> Option<u16> {
    let code = value.split_whitespace().next().filter(|code| code.len() == 3)?;
    code.parse().ok().filter(|code| Answer::STATUSES.contains(code))
}

/// Whether a text is an HTTP field name (a `token` of RFC 9110, section 5.6.2).
pub(crate) fn is_header_name(text: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn printed(output: &str) -> Result<(u16, String, String), String> {
        let answer = Answer::printed(&Bytes::copy_from_slice(output.as_bytes()), 200)?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ok((answer.status, text(answer.headers.to_wire()), text(answer.body.to_vec())))
    }

    #[test]
    fn what_a_command_prints_is_the_body_behind_an_optional_block() {
        let plain = "Content-Type: text/plain; charset=utf-8\r\n";
        for (output, status, headers, body) in [
            ("", 200, plain, ""),
            ("paid\n", 200, plain, "paid\n"),
            // Only what begins as a block is one.
            ("note: paid\n\nyes", 200, plain, "note: paid\n\nyes"),
            ("Status: 402\n\nno money", 402, plain, "no money"),
            ("status: 201 Created\r\n\r\n\n{}", 201, plain, "\n{}"),
            (
                "Content-Type: application/json\nLocation: /charges/1\n\n{\"a\":1}",
                200,
                "Content-Type: application/json\r\nLocation: /charges/1\r\n",
                "{\"a\":1}",
            ),
            (
                "Status: 204\nConnection: close, x-hop\nContent-Length: 7\nX-Hop: 1\n\n",
                204,
                plain,
                "",
            ),
        ] {
            assert_eq!(printed(output), Ok((status, headers.into(), body.into())), "{output:?}");
        }
    }

    #[test]
    fn an_answer_survives_json_and_one_of_no_final_status_does_not() {
        let mut headers = Headers::new();
        headers.push("X-A", b"\xff".as_slice());
        headers.push("X-A", "b");
        let answer = Answer::new(402, &headers, Bytes::from_static(b"\0\xfe")).unwrap();
        let json = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), answer);
        for (good, bad) in [("402", "102"), ("X-A", "X A"), (r#""b""#, r#""b\r\nX: y""#)] {
            assert!(serde_json::from_str::<Answer>(&json.replace(good, bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_block_that_is_none_is_no_answer() {
        for output in [
            "Status: 200",
            "Status: 200\nX: y\n",
            "Status: 99\n\n",
            "Status: 600\n\n",
            "Status: 0200\n\n",
            "Status: ok\n\n",
            "Status:\n\n",
            "Status: 200\nno line\n\n",
            "Status: 200\nA b: c\n\n",
            "Status: 200\nA: \u{1}b\n\n",
        ] {
            assert!(printed(output).is_err(), "{output:?}");
        }
        assert!(Answer::printed(&Bytes::from_static(b"Status: 200\n\xff: a\n\n"), 200).is_err());
        assert_eq!(Answer::new(101, &Headers::new(), Bytes::new()), None);
    }
}
