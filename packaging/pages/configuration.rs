//! Generates `hooklatch.toml(5)` from `docs/configuration.md`, which describes every key, default and range
//! and which a test compares with the code.
//!
//! A table becomes a list: its first column is the term, the last one the description, and the columns between
//! are labelled with their heads.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::commands::verbatim;

/// The text of the manual page.
pub(crate) fn page(markdown: &str) -> Vec<u8> {
    let mut page = Page::default();
    let source = format!("hooklatch {}", env!("CARGO_PKG_VERSION"));
    page.roff.control("TH", ["hooklatch.toml", "5", "", source.as_str(), "Hooklatch"]);
    page.roff.control("SH", ["NAME"]);
    page.roff.text(vec![roman("hooklatch.toml - configuration of the webhook receiver Hooklatch")]);
    page.roff.control("SH", ["DESCRIPTION"]);
    Parser::new_ext(markdown, Options::ENABLE_TABLES).for_each(|event| page.take(event));
    page.roff.control("SH", ["SEE ALSO"]);
    page.roff.text(vec![bold("hooklatch"), roman("(1), "), bold("hooklatch-config"), roman("(1)")]);
    page.roff.to_roff().into_bytes()
}

#[derive(Default)]
struct Page {
    roff: Roff,
    /// The text of the open paragraph, heading or cell so far.
    inlines: Vec<Inline>,
    /// Whether a heading or a block of code is open, which is plain text.
    plain: Option<String>,
    /// The table's head, and the cells of the open row.
    head: Vec<String>,
    cells: Vec<Vec<Inline>>,
    /// Whether the next paragraph is the first of an item and so follows its bullet on the same line.
    in_item: bool,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::TableHead) => {
                self.plain = Some(String::new());
            }
            Event::Start(Tag::Table(_)) => self.head.clear(),
            Event::Start(Tag::Paragraph) if !self.in_item => {
                self.roff.control("PP", []);
            }
            Event::Start(Tag::Item) => {
                self.in_item = true;
                self.roff.control("IP", [r"\(bu", "2"]);
            }
            Event::Text(text) => match &mut self.plain {
                Some(plain) => plain.push_str(&text),
                None => self.inlines.push(roman(text.into_string())),
            },
            Event::Code(code) => match &mut self.plain {
                Some(plain) => plain.push_str(&code),
                None => self.inlines.push(bold(code.into_string())),
            },
            Event::SoftBreak | Event::HardBreak => self.inlines.push(roman(" ")),
            Event::End(end) => self.end(end),
            _ => {}
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::Heading(level) => {
                let title = self.plain.take().unwrap_or_default();
                // The first heading is the title of the document; the page has its name already.
                if level as usize > 1 {
                    self.roff
                        .control(if level as usize == 2 { "SH" } else { "SS" }, [title.as_str()]);
                }
            }
            TagEnd::CodeBlock => {
                let code = self.plain.take().unwrap_or_default();
                verbatim(&mut self.roff, code.trim_end());
            }
            TagEnd::Paragraph | TagEnd::Item if !self.inlines.is_empty() => {
                self.roff.text(std::mem::take(&mut self.inlines));
            }
            TagEnd::TableCell => match &mut self.plain {
                Some(plain) => self.head.push(std::mem::take(plain)),
                None => self.cells.push(std::mem::take(&mut self.inlines)),
            },
            TagEnd::TableHead => self.plain = None,
            TagEnd::TableRow => self.row(),
            _ => {}
        }
        if end == TagEnd::Item {
            self.in_item = false;
        }
    }

    fn row(&mut self) {
        let mut cells = std::mem::take(&mut self.cells);
        let said = cells.pop().unwrap_or_default();
        let mut cells = cells.into_iter().zip(&self.head);
        let Some((term, _)) = cells.next() else { return };
        self.roff.control("TP", []).text(term);
        let facts = cells.filter(|(cell, _)| !cell.is_empty());
        for (cell, head) in facts {
            let mut line = vec![italic(head.as_str()), roman(": ")];
            line.extend(cell);
            self.roff.text(line).control("br", []);
        }
        self.roff.text(said);
    }
}
