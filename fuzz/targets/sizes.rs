//! Requests with one part of a chosen size, because the limits of an HTTP decoder are near powers of two.
//!
//! Every request of a head's part is within twice the default of `limits.head_bytes`. Beyond it nothing more can be
//! learned of this program: it answers as just over the bound, without passing a byte on. What the decoder alone does
//! with a name of a header that is longer still is not for a test: it may end the process that calls it.

/// The part of a request that can be too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Method,
    Url,
    Version,
    HeaderName,
    HeaderValue,
    HeaderLines,
    LineEndsBefore,
    ChunkSize,
    ChunkExtension,
    TrailerName,
    TrailerValue,
    TrailerLines,
}

pub(crate) const PARTS: [Part; 12] = [
    Part::Method,
    Part::Url,
    Part::Version,
    Part::HeaderName,
    Part::HeaderValue,
    Part::HeaderLines,
    Part::LineEndsBefore,
    Part::ChunkSize,
    Part::ChunkExtension,
    Part::TrailerName,
    Part::TrailerValue,
    Part::TrailerLines,
];

/// The sizes one below, at and one above each power of two from 4 KiB to 32 KiB, and the highest `limits.head_bytes`.
pub(crate) fn sizes() -> impl Iterator<Item = usize> + Clone {
    [4, 8, 16, 32, 60].into_iter().flat_map(|kib| [kib * 1024 - 1, kib * 1024, kib * 1024 + 1])
}

/// A line of a head with many of them.
const LINE: &str = "a: b\r\n";

impl Part {
    /// A POST in which this part has `size` bytes, in lines as many as fit.
    pub(crate) fn request(self, size: usize) -> Vec<u8> {
        let long = "a".repeat(size);
        let head = "POST / HTTP/1.1\r\nHost: x\r\n";
        let chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        let text = match self {
            Part::Method => format!("{long} / HTTP/1.1\r\nHost: x\r\n\r\n"),
            Part::Url => format!("POST /{} HTTP/1.1\r\nHost: x\r\n\r\n", &long[1..]),
            Part::Version => format!("POST / HTTP/1.{}\r\nHost: x\r\n\r\n", "1".repeat(size)),
            Part::HeaderName => format!("{head}{long}: b\r\n\r\n"),
            Part::HeaderValue => format!("{head}a: {long}\r\n\r\n"),
            Part::HeaderLines => format!("{head}{}\r\n", LINE.repeat(size / LINE.len())),
            Part::LineEndsBefore => format!("{}{head}\r\n", "\r\n".repeat(size / 2)),
            Part::ChunkSize => format!("{chunks}{}1\r\nx\r\n0\r\n\r\n", "0".repeat(size - 1)),
            Part::ChunkExtension => format!("{chunks}1;{long}\r\nx\r\n0\r\n\r\n"),
            Part::TrailerName => format!("{chunks}0\r\n{long}: b\r\n\r\n"),
            Part::TrailerValue => format!("{chunks}0\r\na: {long}\r\n\r\n"),
            Part::TrailerLines => format!("{chunks}0\r\n{}\r\n", LINE.repeat(size / LINE.len())),
        };
        text.into_bytes()
    }
}
