//! Reads `[handlers.NAME.values]`, and checks where the values stand in a command.

use serde::{Serialize, Serializer};

use crate::document::{Fault, Section, Size, Value, did_you_mean, nearest};
use crate::limits::{Unit, VALUE_BYTES, VALUE_MOST_BYTES, VALUE_PATTERN_TEXT_BYTES, VALUES_COUNT};
use crate::model::Shape;
use crate::payload::{Pattern, Place};
use crate::values::{Template, Unknown, ValueRule, is_value_name};

use super::interpreters::{self, Role};
use super::read::size;

/// A handler's values, each with its position.
pub(crate) type Rules = Vec<Value<ValueRule>>;

/// Variables that programs obey without being asked to, or that have a fixed meaning for commands; `*` ends a
/// family. Those of sudo's own list, and of the tools that commands often are.
const OBEYED: &str = "PATH HOME SHELL USER LOGNAME PWD OLDPWD IFS CDPATH ENV BASH_ENV BASHOPTS SHELLOPTS GLOBIGNORE PS0 \
    PS1 PS2 PS3 PS4 PROMPT_COMMAND FPATH NULLCMD READNULLCMD ZDOTDIR TMPPREFIX TMPDIR TZ TERM* COLORTERM \
    LANG LANGUAGE LC_* LINGUAS LD_* _RLD* LDR_* DYLD_* SHLIB_PATH LIBPATH AUTHSTATE GCONV_PATH MALLOC_* \
    GLIBC_TUNABLES LOCALDOMAIN RES_OPTIONS HOSTALIASES NLSPATH PATH_LOCALE KRB5* VAR_ACE USR_ACE DLC_ACE \
    PERL5* PERLLIB PERLIO* PYTHON* RUBY* GEM_* BUNDLE_* NODE_* NPM_* npm_* LUA_* PHPRC PHP_INI_SCAN_DIR \
    JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH MAVEN_* GRADLE_* MAKEFLAGS GIT_* SSH_* \
    EDITOR VISUAL PAGER MANPAGER BROWSER LESS* CURL_* WGETRC SSL_* OPENSSL_* HTTP_PROXY HTTPS_PROXY \
    ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy XDG_* DOCKER_* KUBECONFIG ANSIBLE_* \
    AWS_* PG* GNUMAKEFLAGS MAKEFILES TAR_OPTIONS RSYNC_* GOFLAGS RUSTC* RUSTFLAGS CARGO_* SVN_SSH HG* SUDO_* \
    SYSTEMD_* COMPOSE_* PIP_* TF_* ERL_* CORECLR_* DOTNET_* R_* AWKPATH AWKLIBPATH PERL_* TMP TEMP \
    VIMINIT EXINIT MAKEOVERRIDES MFLAGS CVS_RSH FZF_DEFAULT_COMMAND RIPGREP_CONFIG_PATH DELTA_PAGER GTK_MODULES \
    QT_PLUGIN_PATH JULIA_LOAD_PATH CONFIG_SITE CC JAVA_OPTS";

/// Variables of a family in [`OBEYED`] that no program obeys.
const HARMLESS: [&str; 3] = ["GIT_BRANCH", "GIT_COMMIT", "GIT_TAG"];

/// The values of a handler; empty without the table. Problems go to the section's.
pub(crate) fn read(section: &Section<'_>) -> Rules {
    let Some(table) = section.section("values") else { return Vec::new() };
    let mut rules = Vec::new();
    for (name, written) in table.members() {
        let at = written.at();
        let rule = if written.get().is_str() {
            written.parse(|from: String| place(&from)).map(|from| rule(&name, from.value))
        } else {
            written.section().and_then(|keys| read_rule(&name, keys))
        };
        match bad_name(&name) {
            Some(fault) => table.report(&at, fault),
            None => rules.extend(rule.map(|value| Value { value, at })),
        }
    }
    if let Some(Value { at, .. }) = rules.get(VALUES_COUNT) {
        table.report(at, format!("a handler has {VALUES_COUNT} values at most"));
    }
    rules
}

fn rule(name: &str, from: Option<Place>) -> ValueRule {
    ValueRule {
        name: name.to_owned(),
        from,
        shape: None,
        pattern: None,
        strip: String::new(),
        max_bytes: size(VALUE_BYTES),
        otherwise: None,
        optional: false,
    }
}

fn read_rule(name: &str, keys: Section<'_>) -> Option<ValueRule> {
    keys.demand("from", "add from = \"/POINTER\", where the value stands in the event");
    let from = keys.parse("from", |from: String| place(&from));
    let shape = keys.parse("is", |text: String| shape(&text));
    let pattern = keys.parse("match", |text: String| Pattern::whole(&text));
    let strip = keys.value::<String>("strip");
    let max = keys.parse("max", |Size(bytes)| match bytes {
        1..=VALUE_MOST_BYTES => Ok(size(bytes)),
        _ => Err(format!("a value may have 1 B to {}", Unit::Bytes.show(VALUE_MOST_BYTES))),
    });
    let otherwise = keys.parse("else", |text: String| match text.contains('\0') {
        true => Err("it has a NUL character"),
        false => Ok(text),
    });
    let optional = keys.get::<bool>("optional");
    if let (Some(_), Some(Value { value: true, at })) = (&otherwise, &optional) {
        keys.reject(at, "'else' stands in for nothing already", "remove one of the two");
    }
    if let (Some(Value { value: Shape::Json, at }), Some(from)) = (&shape, &from)
        && !matches!(from.value, None | Some(Place::Json(_)))
    {
        let help = "leave it out, or choose another";
        keys.reject(at, "json is only for a value of a JSON body", help);
    }
    if let (Some(_), Some(max)) = (&pattern, &max)
        && max.value > VALUE_PATTERN_TEXT_BYTES
    {
        let most = Unit::Bytes.show(VALUE_PATTERN_TEXT_BYTES as u64);
        let help = "lower it, or leave match out";
        keys.reject(&max.at, format!("match looks at {most} at most"), help);
    }
    keys.finish();
    let rule = rule(name, from?.value);
    Some(ValueRule {
        shape: shape.map(|shape| shape.value),
        pattern: pattern.map(|pattern| pattern.value),
        strip: strip.unwrap_or_default(),
        max_bytes: max.map_or(rule.max_bytes, |max| max.value),
        otherwise: otherwise.map(|text| text.value),
        optional: optional.is_some_and(|optional| optional.value),
        ..rule
    })
}

/// A place of one value; `None` for the whole body.
fn place(text: &str) -> Result<Option<Place>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    let place = Place::parse(text)?;
    if place.wildcards() > 0 {
        let help = "name the element, as in \"/commits/0/id\", or take the whole list as json";
        return Err(Fault::new("'*' may stand for several values", help));
    }
    Ok(Some(place))
}

fn shape(text: &str) -> Result<Shape, Fault> {
    text.parse().map_err(|_| {
        let help = did_you_mean(text, Shape::ALL.iter().map(|shape| shape.as_str()), "the shapes");
        Fault::new(format!("'{text}' is not a shape"), help)
    })
}

fn bad_name(name: &str) -> Option<Fault> {
    let fits = |known: &str| crate::pattern::Pattern::new(known, false).matches(name);
    if !is_value_name(name) {
        let help = "1 to 64 of A-Z, a-z, 0-9 and '_', not starting with a digit";
        Some(Fault::new(format!("'{name}' is not a value's name"), help))
    } else if name.starts_with("HOOKLATCH_") {
        Some(Fault::new(format!("{name} is hooklatch's own"), "choose another name"))
    } else if OBEYED.split(' ').any(fits) && !HARMLESS.contains(&name) {
        let message =
            format!("programs obey the variable {name}, and the sender of the event would set it");
        Some(Fault::new(message, "choose another name"))
    } else {
        None
    }
}

/// The arguments of a command with values, behind its program. `argv` is as written. Problems go to the section's.
pub(super) fn arguments(
    section: &Section<'_>,
    argv: &[Value<String>],
    rules: &Rules,
) -> Vec<Template> {
    let words: Vec<&str> = argv.iter().map(|word| word.value.as_str()).collect();
    let roles = interpreters::roles(&words);
    let mut templates = Vec::new();
    for (nth, (Value { value: word, at }, role)) in argv.iter().zip(roles).enumerate().skip(1) {
        match parse(word, rules) {
            Ok(template) => {
                if let Some(fault) = misplaced(&template, role, &words, nth, rules) {
                    section.report(at, fault);
                }
                templates.push(template);
            }
            Err(fault) => section.report(at, fault),
        }
    }
    templates
}

/// Splits a text at its values.
pub(super) fn parse(text: &str, rules: &Rules) -> Result<Template, Fault> {
    // Without values a brace is a brace.
    if rules.is_empty() {
        return Ok(Template::plain(text));
    }
    let names = || rules.iter().map(|rule| rule.value.name.as_str());
    Template::parse(text, |name| names().any(|known| known == name)).map_err(|unknown| {
        let Unknown(name) = &unknown;
        let help = match nearest(name, names()) {
            Some(near) => format!("did you mean '{{{near}}}'?"),
            None => format!("the values are: {}", names().collect::<Vec<_>>().join(", ")),
        };
        Fault::new(unknown.to_string(), help)
    })
}

/// Why the values of the `nth` word may not stand there.
fn misplaced(
    template: &Template,
    role: Role<'_>,
    words: &[&str],
    nth: usize,
    rules: &Rules,
) -> Option<Fault> {
    let names: Vec<&str> = template.names().collect();
    let name = names.first()?;
    let is_vague = |name: &&&str| {
        let rule = rules.iter().map(|rule| &rule.value).find(|rule| rule.name == **name);
        rule.is_none_or(|rule| rule.pattern.is_none() && !rule.shape.is_some_and(Shape::is_narrow))
    };
    let (message, help) = match role {
        Role::Program => (
            format!("{{{name}}} would decide what is run, or how"),
            "write values behind the program; where an option stands before the program, put -- between them".to_owned(),
        ),
        Role::Text(program) => (
            format!("{{{name}}} would become a part of the text that {program} runs"),
            interpreters::fix(words, nth, program, &names),
        ),
        Role::Argument => {
            let name = names.iter().find(is_vague)?;
            (
                format!("{{{name}}} stands in an argument, and nothing says what it may be"),
                format!("add is = \"word\", \"ref\", \"sha\", \"int\", \"url\" or \"line\", or match, to {name}"),
            )
        }
    };
    Some(Fault::new(message, help))
}

/// Writes the rules as a table by name.
pub(super) fn serialize<S: Serializer>(rules: &Rules, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rules.iter().map(|rule| (&rule.value.name, &rule.value)))
}

/// The values as they are written, for the digest of a command.
pub(super) fn written(rules: &Rules) -> impl Serialize {
    rules.iter().map(|rule| (rule.value.name.clone(), rule.value.clone())).collect::<Vec<_>>()
}
