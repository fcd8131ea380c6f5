//! Each path, heading, command, flag, configuration key, metric and test that the documents or the help of a command
//! name exists. The names are read from where the product declares them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use clap::{Arg, Command};
use hooklatch::model::NoticeType;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::{configuration_doc, metrics};

/// Flags that the documents name without their program, and the program.
const FLAGS_OF_OTHERS: &[(&str, &str)] = &[
    ("lib", "cargo test"),
    ("test", "cargo test"),
    ("profile", "cargo bench"),
    ("arg", "jq"),
    ("upload-pack", "git"),
    ("eval", "an interpreter, in an example"),
    ("branch", "a handler's command, in an example"),
];

/// What commands make in the repository, as `.gitignore` lists it.
static MADE: LazyLock<Vec<String>> = LazyLock::new(|| {
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    ignored.lines().map(|line| line.trim_start_matches('/').to_owned()).collect()
});

/// Every other file of the repository.
static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut files = Vec::new();
    walk(root(), &mut files);
    files
});

static COMMAND: LazyLock<Command> = LazyLock::new(|| {
    let mut command = hooklatch::cli::command().disable_help_subcommand(true);
    command.build();
    command
});

static KEYS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(configuration_doc::keys);

/// Every document but the list of changes, which names what once was, and the help of every command.
static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let names = FILES.iter().filter(|name| name.ends_with(".md") && *name != "CHANGELOG.md");
    let text = |name: &String| fs::read_to_string(root().join(name)).unwrap();
    let mut pages: Vec<_> = names.map(|name| Page::read(name, &text(name))).collect();
    add_help("hooklatch", &COMMAND, &mut pages);
    pages
});

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if name == ".git" || MADE.contains(&name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(name);
        }
    }
}

/// A text, and what in it may be a name.
#[derive(Default)]
struct Page {
    /// Its path, or the command whose help it is.
    name: String,
    /// The code within sentences.
    inline: Vec<String>,
    /// The lines of its blocks of code.
    lines: Vec<String>,
    links: Vec<String>,
    headings: BTreeSet<String>,
}

impl Page {
    fn read(name: &str, text: &str) -> Self {
        let mut page = Page { name: name.to_owned(), ..Page::default() };
        let mut open = String::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::CodeBlock(_) | Tag::Heading { .. }) => open.clear(),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Text(text) => open.push_str(&text),
                Event::Code(code) => {
                    open.push_str(&code);
                    page.inline.push(bare(&code));
                }
                Event::End(TagEnd::Heading(_)) => {
                    page.headings.insert(anchor(&open));
                }
                Event::End(TagEnd::CodeBlock) => {
                    page.lines.extend(open.replace("\\\n", " ").lines().map(bare));
                }
                _ => {}
            }
        }
        page
    }

    fn code(&self) -> impl Iterator<Item = &String> {
        self.inline.iter().chain(&self.lines)
    }
}

/// A command without its prompt and `sudo`.
fn bare(line: &str) -> String {
    line.trim().trim_start_matches("$ ").trim_start_matches("sudo ").to_owned()
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Adds the help of a command and of those below it. Its indented lines are examples; any other word may be a name.
fn add_help(name: &str, command: &Command, pages: &mut Vec<Page>) {
    let own = [command.get_about(), command.get_long_about(), command.get_after_help()];
    let of_flags = command.get_arguments().flat_map(|arg| [arg.get_help(), arg.get_long_help()]);
    let texts = own.into_iter().chain(of_flags).flatten().map(ToString::to_string);
    let text = texts.collect::<Vec<_>>().join("\n");
    let (lines, prose): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("  "));
    let words = prose.into_iter().flat_map(str::split_whitespace);
    pages.push(Page {
        name: format!("{name} --help"),
        inline: words.map(|word| word.trim_matches('`').to_owned()).collect(),
        lines: lines.into_iter().map(bare).collect(),
        ..Page::default()
    });
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add_help(&format!("{name} {}", sub.get_name()), sub, pages);
    }
}

/// Checks the names of one kind in every page; each comes with whether it exists.
fn check(names: impl Fn(&Page) -> Vec<(String, bool)>) {
    let mut count = 0;
    let mut wrong = String::new();
    for page in PAGES.iter() {
        for (name, exists) in names(page) {
            count += 1;
            if !exists {
                wrong += &format!("\n{}: {name}", page.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 20, "only {count} names are found");
}

#[test]
fn every_path_in_a_document_exists() {
    let folders: BTreeSet<_> =
        FILES.iter().filter_map(|file| Some(file.split_once('/')?.0)).collect();
    let is_path = |word: &str| match word.split_once('*') {
        Some((start, _)) => FILES.iter().any(|file| file.starts_with(start)),
        None => root().join(word).exists() || MADE.iter().any(|made| word.starts_with(made)),
    };
    let is_file = |word: &str| FILES.iter().any(|file| file.rsplit('/').next() == Some(word));
    let exists = |word: &str| match word.split_once('/') {
        Some((folder, _)) => folders.contains(folder).then(|| is_path(word)),
        None => (word.ends_with(".rs") || word.ends_with(".md")).then(|| is_file(word)),
    };
    check(|page| {
        // The arguments of `hooklatch` are files of the operator.
        let code = page.code().filter(|code| !code.starts_with("hooklatch "));
        let words = code.flat_map(|code| code.split_whitespace());
        let words = words.map(|word| word.trim_end_matches(['.', ',', ';', ':', ')']));
        words.filter_map(|word| Some((word.to_owned(), exists(word)?))).collect()
    });
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    check(|page| {
        let own = root().join(&page.name);
        let leads = |link: &str| {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { own.clone() } else { own.with_file_name(file) };
            let headings = || Page::read(file, &fs::read_to_string(&target).unwrap()).headings;
            target.exists() && (heading.is_empty() || headings().contains(heading))
        };
        let links = page.links.iter().filter(|link| !link.contains("://"));
        links.map(|link| (link.clone(), leads(link))).collect()
    });
}

/// The name of the flag with which `code` begins.
fn flag(code: &str) -> Option<&str> {
    let name = code.strip_prefix("--").filter(|name| name.starts_with(char::is_alphabetic))?;
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()
}

fn has_flag(command: &Command, name: &str) -> bool {
    let mut flags = command.get_arguments().filter_map(Arg::get_long_and_visible_aliases);
    flags.any(|names| names.contains(&name))
}

fn any_has_flag(command: &Command, name: &str) -> bool {
    has_flag(command, name) || command.get_subcommands().any(|sub| any_has_flag(sub, name))
}

/// Whether the commands and flags of `line` exist; it begins behind `hooklatch`.
fn is_command(line: &str) -> bool {
    let ends = ["#", "|", "&&", ">", "--"];
    let mut words = line.split_whitespace().take_while(|word| !ends.contains(word)).peekable();
    let mut command = &*COMMAND;
    while let Some(word) = words.peek()
        && let Some(sub) = command.find_subcommand(word)
    {
        command = sub;
        words.next();
    }
    if let Some(word) = words.peek()
        && command.is_subcommand_required_set()
        && word.bytes().all(|b| b.is_ascii_lowercase())
    {
        return false;
    }
    words.filter_map(flag).all(|name| has_flag(command, name))
}

#[test]
fn every_command_and_flag_in_a_document_exists() {
    let exists = |code: &str| match (flag(code), code.split_once(' ').unwrap_or((code, ""))) {
        (Some(name), _) => {
            let is_other = FLAGS_OF_OTHERS.iter().any(|(other, _)| *other == name);
            Some(is_other || any_has_flag(&COMMAND, name))
        }
        (None, ("hooklatch", line)) => Some(is_command(line)),
        (None, (first, _)) => COMMAND.find_subcommand(first).map(|_| is_command(code)),
    };
    check(|page| {
        let lines = page.lines.iter().filter(|line| line.starts_with("hooklatch "));
        let code = page.inline.iter().chain(lines);
        code.filter_map(|code| Some((code.clone(), exists(code)?))).collect()
    });
}

/// Whether the configuration has this dotted key; `None` for another word.
fn is_key(word: &str) -> Option<bool> {
    let parts: Vec<&str> = word.split('.').collect();
    let (table, key) = match parts[..] {
        [] | [_] | ["sources" | "handlers", _] | [.., "rs" | "md"] => return None,
        [table @ ("sources" | "handlers"), _, key, ..] => (table, key),
        ["dashboard", "proxy", key] => ("dashboard.proxy", key),
        [table, key, ..] => (table, key),
    };
    let keys = KEYS.get(table)?;
    if NoticeType::ALL.iter().any(|notice| notice.as_str() == word) {
        return None;
    }
    Some(match key.strip_suffix('*') {
        Some(start) => keys.iter().any(|key| key.starts_with(start)),
        None => keys.contains(key),
    })
}

#[test]
fn every_configuration_key_in_a_document_exists() {
    check(|page| {
        let is_end = |c: char| !c.is_ascii_alphanumeric() && !"_.*".contains(c);
        let words = page.inline.iter().flat_map(|code| code.split(is_end));
        let words = words.map(|word| word.trim_matches('.'));
        words.filter_map(|word| Some((word.to_owned(), is_key(word)?))).collect()
    });
}

#[test]
fn every_metric_in_a_document_exists() {
    let is_name = |word: &&str| {
        let name = word.strip_prefix("hooklatch_").unwrap_or_default();
        !name.is_empty() && !name.contains(|c: char| c.is_ascii_uppercase())
    };
    check(|page| {
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let words = page.code().flat_map(|code| code.split(is_end)).filter(is_name);
        words.map(|word| (word.to_owned(), metrics::exists(word))).collect()
    });
}

#[test]
fn every_test_in_the_document_on_attacks_exists() {
    let mut tests = BTreeSet::new();
    for file in FILES.iter().filter(|file| file.ends_with(".rs")) {
        let source = fs::read_to_string(root().join(file)).unwrap();
        let marked = source.split("test]\n").skip(1);
        let names = marked.filter_map(|rest| rest.split_once("fn ")?.1.split('(').next());
        tests.extend(names.map(str::to_owned));
    }
    // Three words or more; some keys and metrics have as many.
    let is_name = |code: &&String| {
        code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && code.matches('_').count() >= 2
            && !code.starts_with("hooklatch_")
            && KEYS.values().all(|keys| !keys.contains(*code))
    };
    check(|page| {
        let inline = page.inline.iter().filter(|_| page.name == "docs/hardening.md");
        inline.filter(is_name).map(|name| (name.clone(), tests.contains(name))).collect()
    });
}
