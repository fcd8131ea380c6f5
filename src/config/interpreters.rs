//! Which words of a command a shell or an interpreter would run, or would take for the program to start.
//!
//! Must stay true: a word that is a [`Role::Argument`] is never run as a text or started as a program by the programs
//! in the tables below. Where their options are ambiguous, the word counts as what is run.

/// What a word of a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role<'w> {
    Argument,
    /// It says which program or script is started, or how.
    Program,
    /// The text that this program runs.
    Text(&'w str),
}

/// Programs that start another one: the letters of their options that do not take the next word as their argument, and
/// how many operands stand before the other program.
const STARTERS: &[(&str, &str, usize)] = &[
    (FIND_ACTIONS, "", 0),
    ("busybox firejail nice numactl prlimit run0 runuser screen setpriv stdbuf", "", 0),
    ("catatonit dbus-run-session eatmydata linux proxychains tini", "", 0),
    ("chronic dumb-init fakeroot nohup pkexec setsid", "cw", 0),
    ("chroot faketime gosu setarch setuidgid su-exec", "", 1),
    ("chrt", "abdfiorvR", 1),
    ("doas", "Lns", 0),
    ("env", "0iv", 0),
    ("flock", "eFnosuvx", 1),
    ("ionice", "t", 0),
    ("nsenter unshare", "aCcfFimnpruTU", 0),
    ("strace", "cCdDfFiknqrtTvwxyYzZ", 0),
    ("sudo", "AbBeEHiKklnNPsSvV", 0),
    ("systemd-run", "dGPqrSt", 0),
    ("taskset", "ac", 1),
    ("time", "apqvV", 0),
    ("timeout", "fpv", 1),
    ("xargs", "0oprtx", 0),
];

/// Actions of find, which start a program at any position.
const FIND_ACTIONS: &str = "-exec -execdir -ok -okdir";

/// Programs that may run any word behind them.
const JOINERS: &str =
    "bun bwrap capsh csh deno lua luajit parallel powershell pwsh script su tcsh tmux watch xterm";

const SHELLS: &str = "sh bash bash-static dash ash zsh ksh mksh rbash yash";

/// Programs that run a text: the letters of their options that bring it, and of those that do not take the next word as
/// their argument. A shell's option says that the first operand is the text.
const INTERPRETERS: &[(&str, &str, &str)] = &[
    (SHELLS, "c", "abcefhiklmnprstuvxBCDEHPV"),
    ("awk gawk mawk", "eEf", "bcCdDghIkLMnNoOpPrsStV"),
    ("elixir erl expect groovy guile julia nu octave R racket tclsh xonsh", "ceE", ""),
    ("fish", "cC", "ihlNnPpv"),
    ("mariadb mysql", "e", ""),
    ("node nodejs", "ep", "chiv"),
    ("perl", "eE", "0acfilnpsStTuUvwWX"),
    ("php", "BEfFrR", "aeilmnqsvw"),
    ("psql", "cf", ""),
    ("pypy python", "cm", "bBdEhiIOPqsSuvVx"),
    ("Rscript", "e", ""),
    ("ruby", "e", "acdlnpsSvw"),
    ("sed", "ef", "Einrsuz"),
    ("sg", "c", ""),
];

/// Long options that bring a text. A program may let one shorten them.
const LONG: &str = "command session-command init-command eval print expression execute exec run file source \
    process-code process-begin process-end";

/// What stands before a text that a program runs, in programs that no table has: options of one letter, and words that are
/// options or commands of a program.
const RUNS_OPTIONS: &str = "-c -e -x -ex";
const RUNS_WORDS: &str = "command eval exec execute run";

/// Programs, without their versions, whose arguments are a language: the options whose second word behind them is data all
/// the same, why values do not belong there, and what helps.
pub(super) const LANGUAGES: &[(&str, &str, &str, &str)] = &[
    (
        "ssh mosh pssh",
        "",
        "ssh joins its arguments to one text, and a shell over there runs it",
        "let a script over there read the event from standard input, or make sure by match that no value has a space or a shell's special character",
    ),
    (
        "sqlite",
        "",
        "sqlite3 runs the SQL and the commands in its arguments",
        "let a script read the variable, or make sure by match that no value has a space, a quote, ';' or '.'",
    ),
    (
        "duckdb",
        "",
        "duckdb runs the SQL and the commands in its arguments",
        "let a script read the variable, or make sure by match that no value has a space, a quote, ';' or '.'",
    ),
    (
        "make gmake",
        "",
        "make runs the commands in NAME=$(shell COMMAND)",
        "write \"$$NAME\" in the rule for the variable of the environment, or make sure by match that no value has '=' or '$'",
    ),
    (
        "jq gojq jaq",
        "--arg --argjson --rawfile --slurpfile",
        "jq runs the first word that is no option as a program, which reads each variable of the environment",
        "write --arg NAME and the value as two words of their own, and $NAME in the program",
    ),
    (
        "m4",
        "",
        "m4 expands the macros in its definitions and files: esyscmd runs a command",
        "let a script read the variable, or make sure by match that no value is the name of a macro",
    ),
];

/// How a program may read a word.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Option,
    /// A word behind an option that may take it as its argument.
    OptionArgument,
    Operand,
}

/// The role of each word.
pub(super) fn roles<'w>(words: &[&'w str]) -> Vec<Role<'w>> {
    let mut roles = vec![Role::Argument; words.len()];
    let mut started = 0;
    for (at, word) in words.iter().enumerate() {
        let name = program(word);
        let is_started = at == started;
        let (behind, roles) = (&words[at + 1..], &mut roles[at + 1..]);
        if is_started || is_of(FIND_ACTIONS, word) {
            let count = words_to_program(name, behind);
            roles[..count].fill(Role::Program);
            started = at + count;
        }
        // Without -u it does what su does.
        let is_su = name == "runuser" && behind.first() != Some(&"-u");
        if is_su || is_of(JOINERS, name) {
            roles.fill(Role::Text(name));
        }
        // Also where no known program starts it: docker, or a script with "$@", may do so.
        mark_texts(name, behind, is_started, roles);
    }
    roles
}

/// How many words behind a starter say which program it starts, and how: the last one is the program.
fn words_to_program(name: &str, behind: &[&str]) -> usize {
    let known = STARTERS.iter().find(|(names, ..)| is_of(names, name));
    let Some((_, flags, operands)) = known else { return 0 };
    // NAME=VALUE sets a variable.
    let is_operand = |(word, kind): (&&str, Kind)| kind == Kind::Operand && !word.contains('=');
    let words = behind.iter().zip(kinds(behind, flags)).enumerate();
    let mut found = words.filter(|(_, word)| is_operand(*word));
    found.nth(*operands).map_or(behind.len(), |(nth, _)| nth + 1)
}

/// Marks what an interpreter runs of the words behind it. If it may be only an argument of another program, its first
/// operand counts as an argument too.
fn mark_texts<'w>(name: &'w str, behind: &[&str], is_started: bool, roles: &mut [Role<'w>]) {
    let known = INTERPRETERS.iter().find(|(names, ..)| is_of(names, name));
    let Some((_, letters, flags)) = known else { return };
    let text = Role::Text(name);
    let first = match name {
        "awk" | "gawk" | "mawk" | "sed" => text,
        "mariadb" | "mysql" | "psql" | "sg" => Role::Argument,
        _ => Role::Program,
    };
    let mut operand = if is_started { first } else { Role::Argument };
    let mut option = operand;
    for ((word, kind), role) in behind.iter().zip(kinds(behind, flags)).zip(roles) {
        if kind == Kind::Option {
            option = operand;
            if brings_text(word, letters) {
                option = text;
                operand = if is_of(SHELLS, name) { text } else { Role::Argument };
            }
        }
        let found = if kind == Kind::Operand { operand } else { option };
        if found != Role::Argument {
            *role = found;
        }
        if kind == Kind::Operand {
            operand = Role::Argument;
            // All words behind a script are its arguments.
            if first == Role::Program {
                return;
            }
        }
    }
}

/// How a program may read its words, if its options of the letters `flags` do not take the next word.
fn kinds(words: &[&str], flags: &str) -> impl Iterator<Item = Kind> {
    let (mut has_options, mut may_take) = (true, false);
    words.iter().map(move |word| {
        if has_options && word.starts_with(['-', '+']) {
            has_options = *word != "--";
            may_take = has_options && may_take_next(word, flags);
            Kind::Option
        } else if std::mem::take(&mut may_take) {
            Kind::OptionArgument
        } else {
            Kind::Operand
        }
    })
}

fn may_take_next(option: &str, flags: &str) -> bool {
    if option.starts_with("--") {
        return !option.contains('=');
    }
    // A number at the end is the argument: -n5.
    let has_number = option.ends_with(|c: char| c.is_ascii_digit());
    !has_number && option.chars().skip(1).any(|letter| !flags.contains(letter))
}

/// Whether a text follows this option, or stands in the same word.
fn brings_text(option: &str, letters: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or(long);
        return !name.is_empty() && LONG.split(' ').any(|known| known.starts_with(name));
    }
    let cluster = option.split(|c: char| !c.is_ascii_alphanumeric()).nth(1).unwrap_or_default();
    option.starts_with('-') && cluster.contains(|letter| letters.contains(letter))
}

fn is_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// The word by which the program may be told to run a value in the last of these words: that word, up to its value, or the
/// one before it.
pub(super) fn runs_value<'w>(words: &[&'w str]) -> Option<&'w str> {
    let (last, before) = words.split_last()?;
    let own = last.split('{').next().unwrap_or(last).trim_end_matches('=');
    let runs =
        |word: &&str| is_of(RUNS_OPTIONS, word) || is_of(RUNS_WORDS, word.trim_start_matches('-'));
    [Some(own), before.last().copied()].into_iter().flatten().find(runs)
}

/// Whether the word behind these is data by one of these options.
pub(super) fn is_data(options: &str, before: &[&str]) -> bool {
    let option = before.len().checked_sub(2).and_then(|at| before.get(at));
    option.is_some_and(|option| options.split_whitespace().any(|one| one == *option))
}

/// The name of a program, without its folder and version.
fn program(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    // Not versions of scripts called run and m.
    if is_of("run0 m4", name) {
        return name;
    }
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Whether one of the words is a program of this list.
pub(super) fn names(list: &str, words: &[&str]) -> bool {
    words.iter().any(|word| is_of(list, program(word)))
}

/// How the values `names` reach the text at `at` that a program runs: for a shell the command with the values as its
/// arguments.
pub(super) fn fix(words: &[&str], at: usize, program: &str, names: &[&str]) -> String {
    if words[at].starts_with('-') || !is_of(SHELLS, program) {
        let variable = names.first().copied().unwrap_or_default();
        return format!("let it read the variable {variable} from its environment");
    }
    let mut fixed: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if at + 1 == fixed.len() {
        fixed.push(program.to_owned());
    }
    for name in names {
        let parameter = match fixed.len() - at - 1 {
            number @ 0..=9 => format!("\"${number}\""),
            number => format!("\"${{{number}}}\""),
        };
        let value = format!("{{{name}}}");
        for written in [format!("\"{value}\""), format!("'{value}'"), value.clone()] {
            fixed[at] = fixed[at].replace(&written, &parameter);
        }
        fixed.push(value);
    }
    format!("write {fixed:?}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The roles as letters: an argument, what chooses a program, a text.
    fn letters(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let letter = |role: &Role<'_>| match role {
            Role::Argument => 'a',
            Role::Program => 'p',
            Role::Text(_) => 't',
        };
        roles(&words).iter().skip(1).map(letter).collect()
    }

    #[test]
    fn each_word_that_a_program_runs_is_its_text() {
        for (line, wanted) in [
            ("deploy -c X -e X", "aaaa"),
            ("sh -c X sh X", "ttaa"),
            ("sh X", "p"),
            ("/bin/bash -lc X", "tt"),
            ("bash -eo pipefail -c X X", "pptta"),
            ("bash -o pipefail -ec X", "pptt"),
            ("bash --norc -c -e X X", "pttta"),
            ("bash -co pipefail X X X", "tttaa"),
            ("bash -x deploy.sh X", "ppa"),
            ("bash --login deploy.sh X", "ppp"),
            ("bash --login -- deploy.sh X", "pppa"),
            ("bash --rcfile X -c X sh X", "ppttaa"),
            ("sh deploy.sh -c X", "paa"),
            ("sh -- -c X", "ppa"),
            ("sh -cX X", "tt"),
            ("python3.11 -u -c X X", "ptta"),
            ("python -W ignore -c X", "pptt"),
            ("python3 deploy.py -c X", "paa"),
            ("python3 -m X X", "tta"),
            ("python - X", "pp"),
            ("perl -I lib -ne X X", "pptta"),
            ("perl -MPOSIX -eX X", "ptt"),
            ("perl -0pe X X", "tta"),
            ("perl -M X X", "ppp"),
            ("ruby -e X -e X", "tttt"),
            ("node --eval=X X", "ta"),
            ("node --eval X X", "tta"),
            ("node -r x -p X", "pptt"),
            ("php -r X -- X", "ttaa"),
            ("su deploy -c X", "ttt"),
            ("su X", "t"),
            ("sed -n X X", "tta"),
            ("sed -e X X -e X", "ttatt"),
            ("sed --e X X", "tta"),
            ("sed -n -f X X", "ttta"),
            ("awk X X", "ta"),
            ("awk -f X X", "tta"),
            ("awk -F: X X", "ttt"),
            ("awk -vA=X X", "tt"),
            ("env A=X sh -c X", "pptt"),
            ("env -u A -i sh -c X", "pppptt"),
            ("env -S X", "pp"),
            ("env -S sh X", "ppp"),
            ("env - X", "pp"),
            ("sudo -u X nice -n 5 timeout 5s sh -c X sh X", "ppppppppttaa"),
            ("sudo deploy X", "pa"),
            ("sudo -nu deploy X", "ppp"),
            ("sudo --user deploy X", "ppp"),
            ("sudo -ZZ deploy X", "ppp"),
            ("sudo -ZZ -- deploy X", "pppa"),
            ("nice X", "p"),
            ("nice -n5 deploy X", "ppa"),
            ("busybox sh -c X", "ptt"),
            ("docker exec -i box sh -c X", "aaaatt"),
            ("docker exec box sh deploy.sh -c X", "aaaaaa"),
            ("kubectl get node X", "aaa"),
            ("sh -c X sh python3 -c X", "ttaatt"),
            ("deploy --with sed X", "aaa"),
            ("bash -oc pipefail X X", "ttta"),
            ("pwsh -Command X X", "ttt"),
            ("docker exec box pwsh -Command X X", "aaattt"),
            ("deno eval X", "tt"),
            ("gawk -i inplace X X", "ttta"),
            ("gawk --source X X", "tta"),
            ("su deploy --comm X", "ttt"),
            ("fish -C X", "tt"),
            ("tcsh -c X X", "ttt"),
            ("fish -C X -c X X", "tttta"),
            ("lua -e X X", "ttt"),
            ("node --input-type module -e X", "pptt"),
            ("psql -d X -tAc X", "aatt"),
            ("timeout .5 X", "pp"),
            ("timeout -k 5 10 deploy X", "ppppa"),
            ("flock X", "p"),
            ("flock -n /run/lock X", "ppp"),
            ("flock -n /run/lock deploy X", "pppa"),
            ("flock /run/lock -c X", "ppp"),
            ("chroot / X", "pp"),
            ("chroot / deploy X", "ppa"),
            ("xargs X", "p"),
            ("xargs -0 -n1 deploy X", "pppa"),
            ("xargs -I {} sh -c X", "ppptt"),
            ("systemd-run --user X", "pp"),
            ("systemd-run --user --pipe -- deploy X", "ppppa"),
            ("systemd-run --pipe deploy X", "ppp"),
            ("runuser -u deploy -- X", "pppp"),
            ("runuser -u deploy -- deploy X", "ppppa"),
            ("runuser deploy -c X", "ttt"),
            ("runuser deploy X", "tt"),
            ("unshare -r X", "pp"),
            ("unshare -r deploy X", "ppa"),
            ("chrt -f 10 X", "ppp"),
            ("chrt 10 deploy X", "ppa"),
            ("taskset -c 0-3 X", "ppp"),
            ("taskset -c 0-3 deploy X", "pppa"),
            ("strace -f -o log X", "pppp"),
            ("strace -f -o log deploy X", "ppppa"),
            ("watch -n 5 deploy X", "tttt"),
            ("find . -name X -exec X X ;", "aaaapaa"),
            ("find . -exec env X ;", "aappa"),
            ("find . -exec rm {} + -exec sh -c X ;", "aapaaaptta"),
            ("find -exec", "a"),
            ("nice", ""),
            ("run0 deploy X", "pa"),
            ("setarch linux64 X", "pp"),
            ("faketime -f 2020 X", "ppp"),
            ("run X", "a"),
            ("linux64 X", "p"),
            ("screen -dm deploy X", "ppp"),
            ("tini -- X", "pp"),
            ("proxychains4 deploy X", "pa"),
            ("rbash -c X", "tt"),
            ("bash-static -c X", "tt"),
            ("sg group -c X", "att"),
            ("tmux new-session X", "tt"),
            ("capsh -- -c X", "ttt"),
            ("julia -e X X", "tta"),
            ("erl -noshell -eval X", "ttt"),
            ("octave --eval X", "tt"),
            ("guile deploy.scm X", "pa"),
            ("bwrap --bind / / X", "tttt"),
        ] {
            assert_eq!(letters(line), wanted, "{line}");
        }
    }

    #[test]
    fn a_value_behind_a_word_that_runs_it_is_found_in_any_program() {
        for (line, wanted) in [
            ("frob -c {X}", Some("-c")),
            ("frob -e{X}", Some("-e")),
            ("git rebase -x {X}", Some("-x")),
            ("gdb -ex {X}", Some("-ex")),
            ("redis-cli eval {X}", Some("eval")),
            ("frob --eval={X}", Some("--eval")),
            ("nix-shell --run {X}", Some("--run")),
            ("docker run -e BRANCH={X}", Some("-e")),
            ("deploy --branch {X}", None),
            ("deploy -c fixed {X}", None),
            ("deploy --executor={X}", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(runs_value(&words[1..]), wanted, "{line}");
        }
        // The name of the program itself says nothing.
        assert_eq!(runs_value(&["{X}"]), None);
    }

    #[test]
    fn a_value_is_data_two_words_behind_an_option_that_says_so() {
        let options = |name: &str| {
            let found = LANGUAGES.iter().find(|(all, ..)| names(all, &[name]));
            found.map(|(_, options, ..)| *options)
        };
        for (line, data) in [
            ("jq --arg id {X}", true),
            ("/usr/bin/jq-1.7 -r --argjson id {X}", true),
            ("jq {X}", false),
            ("jq -r {X}", false),
            ("jq --arg {X}", false),
            ("jq --arg id 1 {X}", false),
            ("m4 -D {X}", false),
            ("m4  {X}", false),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let (_, before) = words.split_last().unwrap();
            assert_eq!(is_data(options(words[0]).unwrap(), before), data, "{line}");
        }
        assert_eq!(options("m"), None, "no version of m4");
    }

    #[test]
    fn the_tenth_value_of_a_shell_is_written_in_braces() {
        let names = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"];
        let text: String = names.iter().map(|name| format!("{{{name}}} ")).collect();
        let fix = fix(&["sh", "-c", &text], 2, "sh", &names);
        assert!(fix.contains(r#"\"$9\" \"${10}\" "#), "{fix}");
    }
}
