//! What the words of a command are to the programs that it names: which of them a shell or an interpreter would run.
//!
//! Must stay true: a word that is taken for an argument is never run as a program's text by the programs below.

/// What a word of a command is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Argument,
    /// It belongs to a program that starts another: the other one, or how that is started.
    Wrapped,
    /// The text that this program runs.
    Text(String),
}

/// Programs that start another, and their options with an argument of its own.
const WRAPPERS: &[(&str, &str)] = &[
    ("env", "-u -C --unset --chdir"),
    (
        "sudo",
        "-u -g -p -C -h -r -t -T -U -D -R --user --group --prompt --host --role --type --chdir --chroot",
    ),
    ("doas", "-u -C"),
    ("nice", "-n --adjustment"),
    ("timeout", "-k -s --kill-after --signal"),
    ("nohup", ""),
    ("setsid", ""),
    ("ionice", "-c -n -p --class --classdata"),
    ("stdbuf", "-i -o -e --input --output --error"),
    ("busybox", ""),
];

/// Programs that run a text: their names, the letters of the options before it, and their other options with an
/// argument of its own.
const INTERPRETERS: &[(&str, &str, &str)] = &[
    (
        "sh bash dash ash zsh ksh mksh fish csh tcsh su runuser",
        "cC",
        "-o +o -O +O --rcfile --init-file",
    ),
    ("python pypy", "c", "-W -X"),
    ("perl", "eE", "-I -M"),
    ("ruby", "e", "-I -r -C -E"),
    ("node nodejs bun deno", "ep", "-r -C --require --import --loader"),
    ("php", "rBRE", "-c -d -z"),
    ("lua luajit", "e", "-l"),
    ("Rscript", "e", ""),
    ("sed", "e", "-l -f"),
    ("awk gawk mawk", "e", "-v -F -f -i -l --assign --include --field-separator"),
    ("psql", "c", "-d -h -p -U"),
    ("mysql mariadb", "e", "-u -h -P -D"),
];

/// Whether the word is one of a list.
fn is_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Long options before a text.
const LONG: &str = "--command --session-command --init-command --eval --print --expression --execute --run \
    --split-string --source --process-code --process-begin --process-end";

/// Whether a text follows this long option, which some programs let one abbreviate.
fn brings_text(option: &str) -> bool {
    LONG.split_whitespace()
        .any(|one| one == option || (option.len() > 4 && one.starts_with(option)))
}

/// The role of each word.
pub(super) fn roles(words: &[&str]) -> Vec<Role> {
    let mut roles = vec![Role::Argument; words.len()];
    let mut at = 0;
    while let Some((_, with_argument)) =
        words.get(at).and_then(|word| WRAPPERS.iter().find(|(name, _)| *name == program(word)))
    {
        let begin = at + 1;
        at = begin;
        while let Some(word) = words.get(at) {
            let is_option = word.starts_with('-') || word.contains('=');
            let is_number =
                word.starts_with(|c: char| c.is_ascii_digit() || c == '.') || *word == "inf";
            if !is_option && !is_number {
                break;
            }
            at += if is_of(with_argument, word) { 2 } else { 1 };
        }
        // The program too.
        roles.iter_mut().take(at + 1).skip(begin).for_each(|role| *role = Role::Wrapped);
    }
    // Any other program may start what its arguments say: docker, xargs, flock, a script with "$@".
    for (nth, word) in words.iter().enumerate().skip(at) {
        texts(&words[nth + 1..], &program(word), nth == at, &mut roles[nth + 1..]);
    }
    roles
}

/// Finds the text that an interpreter runs among the words behind it. `is_first`: no other program starts it.
fn texts(words: &[&str], program: &str, is_first: bool, roles: &mut [Role]) {
    let known = INTERPRETERS.iter().find(|(names, ..)| is_of(names, program));
    // It joins all words behind it into a script.
    if is_of("pwsh powershell", program) {
        roles.iter_mut().for_each(|role| *role = Role::Text(program.to_owned()));
    }
    let Some((_, letters, with_argument)) = known else { return };
    // These take their options behind their arguments too.
    let anywhere = matches!(program, "su" | "runuser" | "psql" | "mysql" | "mariadb" | "sed");
    let is_shell = *letters == "cC";
    // The first argument is the text of these, unless an option brings one.
    let by_position =
        is_first && matches!(program, "sed" | "awk" | "gawk" | "mawk") && !words.contains(&"-f");
    // A long option that is not known may take the next word.
    let (mut at, mut pending, mut unsure) = (0, by_position, false);
    while let Some(word) = words.get(at) {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let is_long = word.starts_with("--");
        let is_option = (word.len() > 1 && word.starts_with(['-', '+']))
            || (program == "deno" && *word == "eval");
        if !is_option {
            if pending {
                roles[at] = Role::Text(program.to_owned());
                pending = false;
                if is_shell && !anywhere {
                    return;
                }
            } else if !anywhere && !std::mem::take(&mut unsure) {
                return;
            }
        } else if *word == "--" && !pending {
            return;
        } else if is_of(with_argument, word) || (is_shell && !is_long && word.contains(['o', 'O']))
        {
            pending |= word.starts_with('-') && has_letter(word, letters);
            at += 1;
        } else if (is_long && brings_text(option)) || (program == "deno" && *word == "eval") {
            pending = value.is_empty();
            roles[at] = Role::Text(program.to_owned());
        } else if !is_long && word.starts_with('-') && has_letter(word, letters) {
            // A text may stand in the same word.
            pending = true;
            roles[at] = Role::Text(program.to_owned());
        } else {
            unsure = is_long && value.is_empty();
        }
        at += 1;
    }
}

/// Whether one of the letters is among those that begin an option, before anything that is no letter.
fn has_letter(option: &str, letters: &str) -> bool {
    let cluster = option[1..].chars().take_while(char::is_ascii_alphanumeric);
    cluster.into_iter().any(|c| letters.contains(c))
}

/// The name of a program, without its folder and version.
fn program(word: &str) -> String {
    let name = word.rsplit('/').next().unwrap_or(word);
    let end = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    name.trim_end_matches(end).to_owned()
}

/// Whether the command hands its arguments to a shell on another machine.
pub(super) fn is_remote(words: &[&str]) -> bool {
    words.iter().any(|word| program(word) == "ssh")
}

/// How values reach a text that a program runs: for a shell the command with the values as its arguments.
pub(super) fn mended(words: &[&str], program: &str, names: &[&str]) -> String {
    let text = |word: &&str| names.iter().any(|name| word.contains(&format!("{{{name}}}")));
    let is_shell = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"].contains(&program);
    let (Some(at), true) = (words.iter().position(text), is_shell) else {
        let variable = names.first().copied().unwrap_or_default();
        return format!("let it read the variable {variable} from its environment");
    };
    let mut fixed: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if at + 1 == fixed.len() {
        fixed.push(program.to_owned());
    }
    for name in names {
        let number = fixed.len() - at - 1;
        for written in [format!("\"{{{name}}}\""), format!("'{{{name}}}'"), format!("{{{name}}}")] {
            fixed[at] = fixed[at].replace(&written, &format!("\"${number}\""));
        }
        fixed.push(format!("{{{name}}}"));
    }
    format!("write {fixed:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roles as letters: an argument, a wrapped word, a program's text.
    fn letters(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let letter = |role: &Role| match role {
            Role::Argument => 'a',
            Role::Wrapped => 'w',
            Role::Text(_) => 't',
        };
        roles(&words).iter().skip(1).map(letter).collect()
    }

    #[test]
    fn each_word_that_a_program_runs_is_its_text() {
        for (line, wanted) in [
            ("deploy -c X -e X", "aaaa"),
            ("sh -c X sh X", "ttaa"),
            ("/bin/bash -lc X", "tt"),
            ("bash -eo pipefail -c X X", "aatta"),
            ("bash -o pipefail -ec X", "aatt"),
            ("bash --norc -c -e X X", "atata"),
            ("sh deploy.sh -c X", "aaa"),
            ("sh -- -c X", "aaa"),
            ("sh -cX X", "tt"),
            ("python3.11 -u -c X X", "atta"),
            ("python -W ignore -c X", "aatt"),
            ("python3 deploy.py -c X", "aaa"),
            ("perl -I lib -ne X X", "aatta"),
            ("perl -MPOSIX -eX X", "att"),
            ("ruby -e X -e X", "tttt"),
            ("node --eval=X X", "ta"),
            ("node --eval X X", "tta"),
            ("node -r x -p X", "aatt"),
            ("php -r X -- X", "ttaa"),
            ("su deploy -c X", "att"),
            ("sed -n X X", "ata"),
            ("sed -e X X -e X", "ttatt"),
            ("awk X X", "ta"),
            ("awk -f X X", "aaa"),
            ("env A=X sh -c X", "wwtt"),
            ("env -u A -i sh -c X", "wwwwtt"),
            ("env -S X", "ww"),
            ("sudo -u X nice -n 5 timeout 5s sh -c X sh X", "wwwwwwwwttaa"),
            ("sudo deploy X", "wa"),
            ("nice X", "w"),
            ("busybox sh -c X", "wtt"),
            ("docker exec -i box sh -c X", "aaaatt"),
            ("sh -c X sh python3 -c X", "ttaatt"),
            ("deploy --with sed X", "aaa"),
            ("bash -oc pipefail X X", "aata"),
            ("pwsh -Command X X", "ttt"),
            ("deno eval X", "tt"),
            ("gawk -i inplace X X", "aata"),
            ("gawk --source X X", "tta"),
            ("su deploy --comm X", "att"),
            ("fish -C X", "tt"),
            ("node --input-type module -e X", "aatt"),
            ("timeout .5 X", "ww"),
        ] {
            assert_eq!(letters(line), wanted, "{line}");
        }
    }
}
