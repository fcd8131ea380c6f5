//! Finds the end of a request's head, so that the HTTP server gets one head at a time, and none over its bounds.
//!
//! A blank line found too early costs a round of actix's dispatcher; one that is missed would pass on two requests at
//! once.

use crate::limits::HEAD_LINES;

/// The result of [`Head::scan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Took {
    /// This many bytes of an incomplete head.
    Part(usize),
    /// The head is complete and has this many bytes.
    Whole(usize),
    OverBound,
}

/// Finds the end of a head in the bytes of a connection.
#[derive(Debug)]
pub(crate) struct Head {
    most: usize,
    seen: usize,
    /// That have ended, the request line among them.
    lines: usize,
    position: Position,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    /// The place before the first line; line ends here are skipped (RFC 9112, section 2.2).
    Before,
    WithinLine,
    AfterLine,
}

impl Head {
    /// `most` bytes include line ends before the head.
    pub(crate) fn new(most: usize) -> Self {
        Head { most, seen: 0, lines: 0, position: Position::Before }
    }

    /// `bytes` begin with the head and grow with each call. Each byte is examined once. After `Whole` the caller
    /// removes the head's bytes.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Took {
        let mut is_whole = false;
        while !is_whole && self.seen < bytes.len() {
            (self.position, is_whole) = match (bytes[self.seen], self.position) {
                (b'\n', Position::AfterLine) => (Position::Before, true),
                (b'\n', Position::WithinLine) => {
                    self.lines += 1;
                    (Position::AfterLine, false)
                }
                (b'\r' | b'\n', as_before) => (as_before, false),
                _ => (Position::WithinLine, false),
            };
            self.seen += 1;
        }
        if self.seen > self.most || self.lines > HEAD_LINES + 1 {
            return Took::OverBound;
        }
        if !is_whole {
            return Took::Part(self.seen);
        }
        self.lines = 0;
        Took::Whole(std::mem::take(&mut self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_over_its_bound_is_refused_however_it_is_split() {
        let text = b"\r\nGET / HTTP/1.1\r\nA: b\r\n\r\n";
        for step in 1..=text.len() {
            for (most, whole) in [(text.len(), true), (text.len() - 1, false)] {
                let mut head = Head::new(most);
                let cuts = (step..text.len()).step_by(step).chain([text.len()]);
                let last = cuts.map(|cut| head.scan(&text[..cut])).last();
                let wanted = if whole { Took::Whole(text.len()) } else { Took::OverBound };
                assert_eq!(last, Some(wanted), "in steps of {step}");
            }
        }
    }

    #[test]
    fn a_head_has_so_many_lines_after_its_first() {
        for (lines, is_over) in [(HEAD_LINES, false), (HEAD_LINES + 1, true)] {
            let text = format!("\r\nGET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(lines));
            let mut head = Head::new(text.len());
            for _ in 0..2 {
                let wanted = if is_over { Took::OverBound } else { Took::Whole(text.len()) };
                assert_eq!(head.scan(text.as_bytes()), wanted, "{lines} lines");
            }
        }
    }

    #[test]
    fn a_blank_line_ends_a_head_however_it_is_split() {
        let text = b"\r\nGET / HTTP/1.1\r\nA: b\r\n\r\nGET /2 HTTP/1.1\n\nrest";
        let wanted = ["\r\nGET / HTTP/1.1\r\nA: b\r\n\r\n", "GET /2 HTTP/1.1\n\n"];
        for step in 1..=text.len() {
            let (mut head, mut heads, mut begin, mut end) = (Head::new(100), Vec::new(), 0, 0);
            while end < text.len() {
                end = text.len().min(end + step);
                while let Took::Whole(bytes) = head.scan(&text[begin..end]) {
                    heads.push(String::from_utf8_lossy(&text[begin..begin + bytes]).into_owned());
                    begin += bytes;
                }
            }
            assert_eq!(heads, wanted, "in steps of {step}");
            assert_eq!(&text[begin..], b"rest");
        }
    }
}
