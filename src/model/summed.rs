//! Lines with a sum before them, by which a line that has changed in a file is found: `~SUM TEXT`, where SUM is the
//! CRC-32 of TEXT as eight digits.

/// A line with its sum and its end.
pub(crate) fn line(text: &str) -> String {
    format!("~{} {text}\n", sum(text))
}

/// The text of a line, which is given without its end. `None` if it is not as it was written.
pub(crate) fn text(line: &str) -> Option<&str> {
    let (found, text) = line.strip_prefix('~')?.split_once(' ')?;
    (found == sum(text)).then_some(text)
}

fn sum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}
