//! Compares the output of the command line with recorded files: help, errors, and the display of prepared
//! situations.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it recorded::` rewrites the files of `tests/recorded/`; read the diff
//! before you commit it.

mod examples;
mod plain;
mod situations;

use std::fs;
use std::path::Path;
use std::process::Output;

use clap::CommandFactory;
use hooklatch::cli::Cli;

use crate::support::Site;
use plain::plain;

/// Compares `found` with the recorded text, or records it with `UPDATE_GOLDEN`.
pub(crate) fn recorded(name: &str, found: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, found).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    match found == wanted {
        true => Ok(()),
        false => Err(format!("== {name}\n-- recorded\n{wanted}-- found\n{found}")),
    }
}

fn all_as_recorded(results: impl IntoIterator<Item = Result<(), String>>) {
    let different: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The output of a command, with its exit code.
fn transcript(args: &[&str], output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    let mut transcript = format!("$ hooklatch {}\n{}", args.join(" "), text(&output.stdout));
    for line in text(&output.stderr).lines() {
        transcript.push_str(&format!("! {line}\n"));
    }
    if code != 0 {
        transcript.push_str(&format!("exit {code}\n"));
    }
    transcript
}

/// The words of every command and subcommand.
fn commands() -> Vec<Vec<String>> {
    fn below(command: &clap::Command, words: &[String], found: &mut Vec<Vec<String>>) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let words: Vec<String> =
                words.iter().cloned().chain([sub.get_name().to_owned()]).collect();
            if sub.has_subcommands() {
                below(sub, &words, found);
            }
            if !sub.is_subcommand_required_set() {
                found.push(words);
            }
        }
    }
    let mut found = Vec::new();
    below(&Cli::command(), &[], &mut found);
    found
}

/// Runs `--help`; it prints the path of the configuration from the environment.
fn help(site: &Site, args: &[&str]) -> Output {
    site.command(args).env_remove("HOOKLATCH_CONFIG").output().unwrap()
}

#[test]
fn help_is_as_recorded() {
    let site = Site::new("");
    let all = commands().into_iter().map(|words| {
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        args.push("--help");
        recorded(&format!("help/{}.txt", words.join("-")), &transcript(&args, &help(&site, &args)))
    });
    let whole = recorded("help/hooklatch.txt", &transcript(&["--help"], &help(&site, &["--help"])));
    all_as_recorded(all.chain([whole]));
}

#[test]
fn every_example_in_help_runs() {
    let failures = examples::failures();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn errors_are_as_recorded() {
    let site = Site::new("");
    let job = "00000000-0000-7000-8000-000000000000";
    let missing = site.path("missing.toml");
    let missing = missing.to_str().unwrap();
    let nowhere = [
        vec!["events"],
        vec!["events", "--limit", "none"],
        vec!["jobs", "--state", "sleeping"],
        vec!["show", "evt_1"],
        vec!["serve", "--config", missing],
        vec!["config", "check", "--config", missing],
        vec!["verify", "--provider", "strip", "--secret", "literal:x"],
        vec!["resolve", job],
        vec!["nothing"],
    ];
    let mut all: Vec<_> = nowhere.iter().map(|args| transcript(args, &site.run(args))).collect();
    let receiver = site.start();
    let there = [
        vec!["show", "evt_1"],
        vec!["replay", "evt_1"],
        vec!["replay", "--job", job],
        vec!["resolve", job, "--failed"],
        vec!["cancel", job],
        vec!["drop", job],
        vec!["pause", "nobody"],
        vec!["resume", "nobody"],
        vec!["replay", "--handler", "nobody", "--since", "2h"],
        vec!["serve"],
    ];
    all.extend(there.iter().map(|args| transcript(args, &site.run(args))));
    drop(receiver);
    all_as_recorded([recorded("errors.txt", &plain(&all.join("\n"), &site))]);
}

/// The mistakes that a new user makes first.
#[test]
fn answers_to_a_new_users_mistakes_are_as_recorded() {
    let site = Site::new("");
    let good = fs::read_to_string(site.config()).unwrap();
    let handler = |line: &str| {
        format!("{good}[handlers.deploy]\nsource = \"github\"\nevents = [\"push\"]\n{line}\n")
    };
    let listen = |text: &str| good.replace("\"127.0.0.1:0\"", text);
    let cases = [
        ("listen = \":8080\"", listen("\":8080\"")),
        ("listen = \"8080\"", listen("\"8080\"")),
        ("listen = \"localhost:8080\"", listen("\"localhost:8080\"")),
        ("command = \"./ok.sh --now\"", handler("command = \"./ok.sh --now\"")),
        ("a string for a shell", handler("command = \"cd /srv && git pull\"")),
        ("a shell line in a list", handler("command = [\"cd /srv && git pull\"]")),
        ("~", handler("command = [\"~/ok.sh\"]")),
        (
            "a secret in env",
            handler("command = [\"/bin/sh\"]\nenv = { STRIPE_KEY = \"sk_live_1234\" }"),
        ),
        ("a folder that is missing", good.replace("\"store.db\"", "\"nowhere/store.db\"")),
        ("no such provider", good.replace("\"stripe\"\npath", "\"worldpay\"\npath")),
        ("backoff_base", good.replace("[limits]", "[limits]\nbackoff_base = \"10s\"")),
    ];
    let mut all = Vec::new();
    let check = |name: &str| {
        let output = site.command(&["config", "check"]).env("HOME", "/home/USER").output().unwrap();
        let text = transcript(&["config", "check"], &output);
        let kept = text.lines().filter(|line| {
            !line.contains("root")
                && !line.contains("chown -R USER FOLDER")
                && !line.contains("no handler reads")
        });
        format!("# {name}\n{}\n", kept.collect::<Vec<_>>().join("\n"))
    };
    for (name, text) in cases {
        site.write_config(text);
        all.push(check(name));
    }
    site.write_config(&good);
    for args in [&["init", "--source", "worldpay"][..], &["init", "--source", "strip"]] {
        all.push(transcript(args, &site.run(args)));
    }
    let here = |args: &[&str], variable: &str| {
        let mut command = site.command(args);
        command.env("HOOKLATCH_CONFIG", variable).current_dir(site.config().parent().unwrap());
        transcript(args, &command.output().unwrap())
    };
    all.push(format!("# an empty variable\n{}", here(&["events"], "")));
    all.push(format!("# no configuration\n{}", here(&["serve"], "/nowhere/hooklatch.toml")));
    fs::rename(site.config(), site.path("other.toml")).unwrap();
    all.push(format!("# none in this folder\n{}", here(&["serve"], "")));
    let other = site.path("other.toml");
    let args = ["config", "check", other.to_str().unwrap()];
    assert_eq!(site.run(&args).status.code(), Some(0));
    fs::rename(other, site.config()).unwrap();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    site.write_config(good.replace("127.0.0.1:0", &address));
    let taken = transcript(&["serve"], &site.run(&["serve"])).replace(&address, "127.0.0.1:PORT");
    let port = address.rsplit(':').next().unwrap();
    let said = taken.lines().filter(|line| !line.contains("WARN")).collect::<Vec<_>>().join("\n");
    all.push(format!("# the port is taken\n{}\n", said.replace(port, "PORT")));
    all_as_recorded([recorded("newcomers.txt", &plain(&all.join("\n"), &site))]);
}

/// Checks that no line is wider than the screen and that no word is broken: each word must also be in the
/// output to a pipe, or must be marked as cut.
fn fits(args: &[&str], chars: usize, on_screen: &Output, in_pipe: &Output) {
    let text = |output: &Output| {
        [&output.stdout[..], &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned())
    };
    let (on_screen, in_pipe) = (text(on_screen).concat(), text(in_pipe).concat());
    let known: std::collections::BTreeSet<&str> = in_pipe.split_whitespace().collect();
    for line in on_screen.lines() {
        let width = line.chars().count();
        // A word that is longer than the screen may be alone on a line.
        let fits = width <= chars || line.split_whitespace().count() == 1;
        assert!(fits, "{args:?}: {width} characters, not {chars}: {line}\n{on_screen}");
        for word in line.split_whitespace() {
            // Times are shorter on a screen, and some numbers differ from call to call.
            let varies = word.contains(|c: char| c.is_ascii_digit()) || word == "\\";
            let cut = word.strip_suffix('…').is_some_and(|cut| in_pipe.contains(cut));
            assert!(varies || cut || known.contains(word), "{args:?}: '{word}' is broken: {line}");
        }
    }
}

/// Runs every command that only reads, at 80 and 120 columns.
fn screens_fit(site: &Site) {
    let events = situations::IDS.iter().flat_map(|id| [vec!["show", id], vec!["explain", id]]);
    let whole = situations::WHOLE.iter().filter(|command| **command != "status");
    let more = [
        vec!["held"],
        vec!["dead"],
        vec!["pause"],
        vec!["events", "--secrets"],
        vec!["events", "--rejected"],
        vec!["quarantine", "verify"],
        vec!["config", "show"],
        vec!["doctor"],
        vec!["reload"],
        vec!["replay", "--state", "dead", "--dry-run"],
        vec!["replay", "succeeded"],
    ];
    for args in events.chain(whole.map(|command| vec![*command])).chain(more) {
        for chars in [80, 120] {
            let on_screen = site.command(&args).env("COLUMNS", chars.to_string()).output().unwrap();
            fits(&args, chars, &on_screen, &site.run(&args));
        }
    }
}

#[test]
fn help_fits_the_screen() {
    let site = Site::new("");
    for mut words in commands().into_iter().chain([Vec::new()]) {
        words.push("--help".to_owned());
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let pipe = help(&site, &args);
        fits(&args, 80, &pipe, &pipe);
        for chars in [80, 120] {
            let screen = site
                .command(&args)
                .env_remove("HOOKLATCH_CONFIG")
                .env("COLUMNS", chars.to_string())
                .output()
                .unwrap();
            fits(&args, chars, &screen, &pipe);
        }
    }
}

#[test]
fn the_width_of_a_terminal_is_used() {
    let site = Site::new("");
    let receiver = site.start();
    receiver.github("delivery", "push", "{}");
    let program = env!("CARGO_BIN_EXE_hooklatch");
    let mut shown = std::process::Command::new("script");
    shown.args(["-qec", &format!("stty cols 52; {program} events"), "/dev/null"]);
    let output = shown.env("HOOKLATCH_CONFIG", site.config()).env("TZ", "UTC").output().unwrap();
    let text = anstream::adapter::strip_str(&String::from_utf8(output.stdout).unwrap()).to_string();
    let rows: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert_eq!(rows.iter().map(|row| row.chars().count()).max(), Some(52), "{text}");
}

#[test]
fn prepared_situations_are_displayed_as_recorded() {
    let stage = situations::stage();
    let site = &stage.site;
    let shown = situations::IDS.iter().map(|id| {
        let all = situations::COMMANDS.iter().map(|command| {
            let args = [*command, id];
            transcript(&args, &site.run(&args))
        });
        let all: Vec<String> = all.collect();
        recorded(&format!("situations/{id}.txt"), &plain(&all.join("\n"), site))
    });
    let shown: Vec<_> = shown.collect();
    screens_fit(site);
    let whole = situations::WHOLE.iter().map(|command| {
        let args = [*command];
        let text = plain(&transcript(&args, &site.run(&args)), site);
        recorded(&format!("situations/{command}.txt"), &text)
    });
    let whole: Vec<_> = whole.collect();
    let refused = stage.refused().into_iter().map(|args| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        transcript(&args, &site.run(&args))
    });
    let refused: Vec<_> = refused.collect();
    let refused = recorded("refused.txt", &plain(&refused.join("\n"), site));
    drop(stage);
    all_as_recorded(shown.into_iter().chain(whole).chain([refused]));
}
