//! One output of an attempt while it is followed: the new part at each look, cut into lines.

use std::mem;

use crate::store::OutputExcerpt;

/// A longer line is printed in pieces of this many bytes, which is what a usual pipe takes in one write
/// (PIPE_BUF, pipe(7)). So a program that never ends a line cannot fill the memory.
const LINE_BYTES: usize = 4096;

/// A part of the output since the last look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// The number of bytes that were not kept long enough to be seen.
    Missed(u64),
}

/// How many bytes of an output were seen.
#[derive(Debug, Default)]
pub(super) struct Seen(u64);

impl Seen {
    /// The new parts of an output that now holds `captured`, in order. If it holds less than was seen, there are
    /// none.
    pub(super) fn news(&mut self, captured: &OutputExcerpt) -> Vec<News> {
        let OutputExcerpt { head, tail, total } = captured;
        let tail_begins = total.saturating_sub(tail.len() as u64);
        let mut news = Vec::new();
        for (begins, part) in [(0, head), (tail_begins, tail)] {
            let ends = begins + part.len() as u64;
            self.skip_to(begins, &mut news);
            if ends > self.0 {
                let known = usize::try_from(self.0 - begins).unwrap_or(usize::MAX);
                match news.last_mut() {
                    Some(News::Bytes(bytes)) => bytes.extend_from_slice(&part[known..]),
                    _ => news.push(News::Bytes(part[known..].to_vec())),
                }
                self.0 = ends;
            }
        }
        self.skip_to(*total, &mut news);
        news
    }

    fn skip_to(&mut self, place: u64, news: &mut Vec<News>) {
        if place > self.0 {
            news.push(News::Missed(place - self.0));
            self.0 = place;
        }
    }
}

/// Cuts output into lines.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// The lines that are complete now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.0.extend_from_slice(bytes);
        let (mut lines, mut left) = (Vec::new(), self.0.as_slice());
        loop {
            let end = left.iter().take(LINE_BYTES).position(|byte| *byte == b'\n');
            let (line, next) = match end {
                Some(end) => (end, end + 1),
                None if left.len() >= LINE_BYTES => (LINE_BYTES, LINE_BYTES),
                None => break,
            };
            lines.push(String::from_utf8_lossy(&left[..line]).into_owned());
            left = &left[next..];
        }
        self.0 = left.to_vec();
        lines
    }

    /// The text after the last line end: its program may wait for an answer, or have ended.
    pub(super) fn rest(&mut self) -> Option<String> {
        let rest = mem::take(&mut self.0);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Blob;

    /// What is kept of `all`, as the runner keeps it.
    fn kept(all: &[u8], head: usize, tail: usize) -> OutputExcerpt {
        let (head, rest) = all.split_at(all.len().min(head));
        let tail = &rest[rest.len().saturating_sub(tail)..];
        OutputExcerpt {
            head: Blob(head.to_vec()),
            tail: Blob(tail.to_vec()),
            total: all.len() as u64,
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_shown_once_or_counted_once(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            head in 0usize..40,
            tail in 0usize..40,
        ) {
            let (mut seen, mut all, mut at) = (Seen::default(), Vec::new(), 0);
            for chunk in chunks {
                all.extend(&chunk);
                let now = kept(&all, head, tail);
                for news in seen.news(&now) {
                    match news {
                        News::Bytes(bytes) => {
                            prop_assert_eq!(&all[at..at + bytes.len()], &bytes[..]);
                            at += bytes.len();
                        }
                        News::Missed(bytes) => at += bytes as usize,
                    }
                }
                prop_assert_eq!(at, all.len());
                prop_assert_eq!(seen.news(&now), Vec::new());
            }
        }
    }

    #[test]
    fn nothing_that_is_kept_goes_unseen() {
        let mut seen = Seen::default();
        let now = kept(b"0123456789", 2, 3);
        assert_eq!(Seen::default().news(&kept(b"01234", 2, 3)), [News::Bytes(b"01234".to_vec())]);
        let (head, tail) = (News::Bytes(b"01".to_vec()), News::Bytes(b"789".to_vec()));
        assert_eq!(seen.news(&now), [head, News::Missed(5), tail]);
        assert_eq!(seen.news(&kept(b"0123456789ab", 2, 3)), [News::Bytes(b"ab".to_vec())]);
        assert_eq!(seen.news(&OutputExcerpt::default()), [], "an output that is gone");
    }

    #[test]
    fn lines_come_whole_and_a_rest_when_it_is_asked_for() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\n\nthr"), ["two", ""]);
        assert_eq!((lines.rest(), lines.rest()), (Some("thr".to_owned()), None));
        assert_eq!(lines.push(b"ee\n"), ["ee"]);
        let long = vec![b'x'; 2 * LINE_BYTES + 1];
        assert_eq!(lines.push(&long).len(), 2);
        assert_eq!(lines.rest().as_deref(), Some("x"));
    }
}
