//! The plain bytes of a body that its sender compressed with gzip or deflate.
//!
//! Must stay true: the body's own bytes decide, because a signature covers them and not `Content-Encoding`, which an
//! attacker can take away to give a captured delivery another id. A body that cannot be inflated within its bound has no
//! value. Nothing is inflated before its delivery is proven.

use std::borrow::Cow;
use std::io::{self, Read};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::unclear::Unclear;

/// Whether a body begins as gzip (RFC 1952) or zlib (RFC 1950, which HTTP calls deflate) does.
pub(crate) fn is_compressed(body: &[u8]) -> bool {
    is_gzip(body) || is_zlib(body)
}

fn is_gzip(body: &[u8]) -> bool {
    body.starts_with(&[0x1F, 0x8B])
}

/// The headers of zlib's levels. `x^`, the one that is text too, is left out: no library makes it by default.
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [0x78, 0x01 | 0x9C | 0xDA, ..])
}

/// The body, inflated if it is compressed, to at most `most_bytes`.
///
/// It is inflated twice: a buffer that grows while it is filled takes up to three times its bytes.
pub(crate) fn plain(body: &[u8], most_bytes: u64) -> Result<Cow<'_, [u8]>, Unclear> {
    if is_gzip(body) {
        let bytes = measure(MultiGzDecoder::new(body), most_bytes)?;
        return read(MultiGzDecoder::new(body), bytes).map(Cow::Owned);
    }
    if is_zlib(body) {
        // What follows the stream is left over, and another reader may take it for a part of the body.
        let mut rest = body;
        let bytes = measure(ZlibDecoder::new(&mut rest), most_bytes)?;
        if !rest.is_empty() {
            return Err(Unclear::Compressed);
        }
        return read(ZlibDecoder::new(body), bytes).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(body))
}

fn read(mut decoder: impl Read, bytes: usize) -> Result<Vec<u8>, Unclear> {
    let mut plain = Vec::with_capacity(bytes);
    decoder.read_to_end(&mut plain).map_err(|_| Unclear::Compressed)?;
    Ok(plain)
}

fn measure(decoder: impl Read, most_bytes: u64) -> Result<usize, Unclear> {
    let mut bounded = decoder.take(most_bytes.saturating_add(1));
    let bytes = io::copy(&mut bounded, &mut io::sink()).map_err(|_| Unclear::Compressed)?;
    let fits = usize::try_from(bytes).ok().filter(|_| bytes <= most_bytes);
    fits.ok_or(Unclear::TooLarge)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_compressed_body_is_read_up_to_its_bound() {
        let text = br#"{"a":1}"#;
        for body in [gzip(text), zlib(text), text.to_vec()] {
            assert_eq!(plain(&body, 7).unwrap(), &text[..]);
        }
        for body in [gzip(text), zlib(text)] {
            assert_eq!(plain(&body, 6), Err(Unclear::TooLarge));
        }
        let two = [gzip(b"{\"a\""), gzip(b":1}")].concat();
        assert_eq!(plain(&two, 7).unwrap(), &text[..], "RFC 1952: members are one text");
        // A megabyte of zeros in a kilobyte.
        let bomb = gzip(&vec![0; 1 << 20]);
        assert!(bomb.len() < 2048);
        assert_eq!(plain(&bomb, (1 << 20) - 1), Err(Unclear::TooLarge));
        assert_eq!(plain(&bomb, 1 << 20).unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_damaged_or_lengthened_compressed_body_is_not_read() {
        for good in [gzip(b"{\"a\":1}"), zlib(b"{\"a\":1}")] {
            for end in 2..good.len() {
                assert_eq!(plain(&good[..end], 100), Err(Unclear::Compressed), "{end}");
            }
            let longer = [&good[..], b"x"].concat();
            assert_eq!(plain(&longer, 100), Err(Unclear::Compressed));
            let mut changed = good.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert_eq!(plain(&changed, 100), Err(Unclear::Compressed));
        }
        for text in ["", "x^=1", "x", "{}"] {
            assert_eq!(plain(text.as_bytes(), 100).unwrap(), text.as_bytes());
        }
    }
}
