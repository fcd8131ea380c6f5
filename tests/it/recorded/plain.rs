//! Replaces the parts of an output that differ between runs: times, ids, ports, folders and durations.

use crate::support::Site;

/// The text with all changing parts replaced.
pub(crate) fn plain(text: &str, site: &Site) -> String {
    let folder = site.config().parent().unwrap().to_str().unwrap().to_owned();
    let text = text.replace(&folder, "DIR");
    let text = text.replace(concat!("version ", env!("CARGO_PKG_VERSION")), "version VERSION");
    let mut seen = Vec::new();
    let lines = text.lines().map(|line| match line.split_once("signature") {
        // The name contains the time of the run.
        Some((before, rest)) if rest.contains('=') && line.starts_with("header") => {
            plain_line(&format!("{before}signature…"), &mut seen)
        }
        _ => plain_line(line, &mut seen),
    });
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

fn plain_line(line: &str, seen: &mut Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        // A changing part always begins at the beginning of a word.
        let starts = !out.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let found = starts.then(|| changing(&out, rest, seen)).flatten();
        match found {
            Some((length, word)) => {
                out.push_str(&word);
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    // The width of a column may depend on a changing part.
    collapse(&out)
}

/// A changing part at the beginning of `text`: its length and its replacement.
fn changing(before: &str, text: &str, seen: &mut Vec<String>) -> Option<(usize, String)> {
    if let Some(uuid) =
        text.get(..36).filter(|text| is_like(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"))
    {
        let known = seen.iter().position(|one| one == uuid);
        let number = known.unwrap_or_else(|| {
            seen.push(uuid.to_owned());
            seen.len() - 1
        });
        return Some((36, format!("ID-{}", number + 1)));
    }
    if text.get(..10).is_some_and(|text| is_like(text, "dddd-dd-dd")) {
        let more = text[10..].find(|c: char| !(c.is_ascii_digit() || "T :.+-Z".contains(c)));
        let all = &text[..10 + more.unwrap_or(text.len() - 10)];
        return Some((all.trim_end().len(), "TIME".to_owned()));
    }
    let digits =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(text.len());
    if digits == 0 {
        return None;
    }
    if before.ends_with("pid ") {
        return Some((digits, "PID".to_owned()));
    }
    let unit = text[digits..].trim_start();
    let spaces = text[digits..].len() - unit.len();
    let units = ["ms", "s", "m", "min", "h", "d", "KiB", "MiB", "GiB", "B"];
    let word = unit.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap();
    if spaces <= 1 && units.contains(&word) {
        return Some((digits + spaces + word.len(), "SOME".to_owned()));
    }
    None
}

/// Whether the beginning of `text` matches `shape`, in which `x` stands for a hexadecimal digit and `d` for
/// a decimal one.
fn is_like(text: &str, shape: &str) -> bool {
    text.bytes().zip(shape.bytes()).all(|(found, wanted)| match wanted {
        b'x' => found.is_ascii_hexdigit(),
        b'd' => found.is_ascii_digit(),
        other => found == other,
    })
}

/// Replaces runs of spaces inside a line by two spaces.
fn collapse(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut out = line[..indent].to_owned();
    let mut spaces = 0;
    for c in line[indent..].chars() {
        if c == ' ' {
            spaces += 1;
            continue;
        }
        out.push_str(&"  "[..spaces.min(2)]);
        spaces = 0;
        out.push(c);
    }
    out
}
