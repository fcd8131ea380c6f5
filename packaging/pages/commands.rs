//! Generates `hooklatch(1)` and a manual page per subcommand from the definition of the command line.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

/// The file name and the text of each page.
pub(crate) fn pages(command: Command) -> Vec<(String, Vec<u8>)> {
    fn below(command: &Command, found: &mut Vec<(String, Vec<u8>)>) {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        found.push((name.clone(), page(command, &name)));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            below(sub, found);
        }
    }
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut found = Vec::new();
    below(&command, &mut found);
    found
}

fn page(command: &Command, name: &str) -> Vec<u8> {
    // The text after the options is formatted as separate sections, because `Man` would join its lines.
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let source = format!("hooklatch {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name).source(source).manual("Hooklatch");
    let mut text = Vec::new();
    let result = (|| {
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        if command.get_arguments().any(|argument| !argument.is_hide_set()) {
            man.render_options_section(&mut text)?;
        }
        if command.has_subcommands() {
            heading("SUBCOMMANDS").to_writer(&mut text)?;
            subcommands(command).to_writer(&mut text)?;
        }
        sections(&after_help).to_writer(&mut text)?;
        see_also(name).to_writer(&mut text)
    })();
    result
        .map_or_else(|error: std::io::Error| unreachable!("writing to memory: {error}"), |()| text)
}

fn heading(name: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [name]);
    roff
}

fn subcommands(command: &Command) -> Roff {
    let mut roff = Roff::new();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = sub.get_display_name().unwrap_or(sub.get_name()).to_owned();
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        roff.control("TP", []).text(vec![bold(name), roman("(1)")]).text(vec![roman(about)]);
    }
    roff
}

/// Formats the text after the options: paragraphs, and blocks under a line that ends with a colon, which keep
/// their lines.
fn sections(after_help: &str) -> Roff {
    let mut roff = Roff::new();
    let mut described = false;
    for block in after_help.split("\n\n").filter(|block| !block.trim().is_empty()) {
        match block.split_once('\n') {
            Some((title, lines)) if title.ends_with(':') && lines.starts_with("  ") => {
                roff.control("SH", [title.trim_end_matches(':').to_uppercase().as_str()]);
                verbatim(&mut roff, lines);
            }
            _ => {
                match described {
                    false => roff.control("SH", ["NOTES"]),
                    true => roff.control("PP", []),
                };
                described = true;
                roff.text(vec![roman(block)]);
            }
        }
    }
    roff
}

/// Adds lines unchanged, indented.
pub(crate) fn verbatim(roff: &mut Roff, lines: &str) {
    roff.control("PP", []).control("RS", ["4"]).control("nf", []);
    let lines = lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
    for line in lines {
        // A line without text would end the paragraph.
        let inline: Vec<Inline> = vec![roman(if line.is_empty() { " " } else { line })];
        roff.text(inline);
    }
    roff.control("fi", []).control("RE", []);
}

fn see_also(name: &str) -> Roff {
    let mut roff = heading("SEE ALSO");
    let mut others = vec![bold("hooklatch.toml"), roman("(5)")];
    if name != "hooklatch" {
        others.splice(0..0, [bold("hooklatch"), roman("(1), ")]);
    }
    roff.text(others);
    roff
}
