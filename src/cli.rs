//! The command line as data: what can be typed, its help and its examples. Nothing here acts.

mod look;
mod operator;
mod options;
mod providers;
mod quarantine;
mod setup;
mod since;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::model::{EventId, Name, RunnerName, State};

pub use look::{Audit, Explain, Jobs, Part, Stopped};
pub use operator::{
    Backup, Cancel, Drop, NodeLost, Pause, Reload, Replay, Resolve, Restore, Resume, StoreMove,
};
pub use options::{ConfigFile, Filter, Format, Listing, Note, Options};
pub use providers::{Providers, ProvidersCommand, ProvidersShow, ProvidersTest};
pub use quarantine::{AcceptAgain, DropKept, Kept, Quarantine, QuarantineCommand, VerifyAgain};
pub use setup::{Confirm, Doctor, Import, ImportAdnanh, Init, Keys, Register, Send, Try};
pub use since::{BadSince, Since};

/// Receives webhooks, stores each event once, runs each handler once per event.
#[derive(Debug, Parser)]
#[command(name = "hooklatch", version, max_term_width = 80, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0   done; the answer, where there is one, is yes
  1   the answer is no, or something waits for a person
  2   the command line is wrong
  65  the job's state does not allow this
  66  no such event, job, handler or input
  69  the store or the receiver cannot be used now; events are not accepted
  74  a file or socket could not be read or written
  78  the configuration is wrong

Start with:
  hooklatch demo";

/// The first page of help lists the commands by what they are for.
const GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["serve", "runner", "reload"]),
    ("Look", &["status", "ui", "events", "show", "explain", "jobs", "held", "dead", "audit"]),
    ("Act", &["replay", "resolve", "cancel", "drop", "pause", "resume"]),
    (
        "Set up",
        &["init", "import", "providers", "register", "config", "try", "send", "verify", "doctor"],
    ),
    ("Care", &["quarantine", "keys", "confirm", "node", "store", "backup", "restore"]),
    ("Try", &["demo", "drill"]),
];

/// The command line with its grouped first page.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let mut list = String::new();
    for (group, names) in GROUPS {
        list.push_str(&format!("{group}:\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            list.push_str(&format!("  {name:<12}{about}\n"));
        }
        list.push('\n');
    }
    command.before_help(list.trim_end().to_owned()).help_template(
        "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    )
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Receive webhooks and run handlers until a signal ends it
    #[command(after_help = "\
SIGTERM and SIGINT stop it gracefully; a second one shortens the wait. SIGHUP reloads the configuration, as \
`hooklatch reload` does, and the log says what came of it.

Example:
  hooklatch serve --config /etc/hooklatch/hooklatch.toml")]
    Serve(Serve),

    /// Run a receiver's commands; they outlive its restarts
    #[command(after_help = "\
Only this process executes commands; `serve` asks it over a Unix socket, in the folder STORE.runner beside \
the store. Start it yourself only as a service of its own, perhaps as another user: where none runs, \
`serve` launches one, which leaves when it is idle. With --folder it is one of several, for `serve --runners`: \
it runs the handlers with its name as their `runner`, and no others. There is one runner of a name to a store. \
Of the configuration it reads its handlers' commands and the secrets in their `env`, again whenever a \
receiver connects.

SIGTERM lets the commands that run end and their results be fetched; a second one ends them. SIGUSR2 makes \
it execute its program again, as after an upgrade, and what runs goes on. Killed, it leaves the outcome of \
what ran unknown.

Examples:
  hooklatch runner --config /etc/hooklatch/hooklatch.toml
  hooklatch runner --name deploy --folder /run/hooklatch-runner/deploy")]
    Runner(Runner),

    /// See it work on this machine, with real deliveries and handlers
    #[command(after_help = "\
It works in a new folder, with a receiver, a store and handlers of its own, which it deletes at its end if all \
is as promised; nothing that you have configured is touched. It sends six kinds of delivery, waits for their handlers, and compares what was \
answered, stored and run with what is promised. Exits with 0 if all is as promised, else with 1.

Examples:
  hooklatch demo
  hooklatch demo --stay")]
    Demo(Demo),

    /// Kill a receiver under load, and account for every event
    #[command(after_help = "\
It works in a new folder, with a receiver, a store and handlers of its own; nothing that you have \
configured is touched. Clients deliver signed events and repeat each until it is answered 2xx; the \
receiver gets SIGKILL at random moments and is started again; the handlers write down what they do. In \
the end the three are compared. Exits with 1 if a promise was broken, and then keeps the folder.

Examples:
  hooklatch drill
  hooklatch drill --kills 200 --folder /var/lib/hooklatch/drill")]
    Drill(Drill),

    /// List accepted events, newest first; --follow: as they arrive
    #[command(after_help = "\
A type matches exactly, or with * for any run of characters. --state means events with a job in that \
state. With --follow, prints the newest events and then each one as it is accepted, until a signal ends \
it; over a restart of the receiver it waits. With --json each line is then an object. `hooklatch show ID` \
finds an event by its id, or by the sender's own id where the event has a derived one.

Examples:
  hooklatch events --source stripe --limit 20
  hooklatch events --type 'pull_request.*' --since 2h --state dead
  hooklatch events --follow")]
    Events(Events),

    /// Show one event: its jobs, attempts and output; --follow: live
    #[command(after_help = "\
With --follow, prints what the event's running attempts have printed and what they print from now on, \
until they end. Only the beginning and the end of each output are kept: what goes by faster than that is \
counted, not shown. With --json each line is an object.

Examples:
  hooklatch show evt_1DemoPaid00000001
  hooklatch show evt_1DemoPaid00000001 --follow")]
    Show(Show),

    /// List jobs, newest first
    #[command(after_help = "\
States: ready, running, waiting, held, succeeded, dead, dropped. A type is meant exactly, or with * for any \
run of characters. --since counts from when the job was created. # is the number of the last attempt.

Examples:
  hooklatch jobs --state running
  hooklatch jobs --handler fulfil --since 2026-01-31 --reason attempts-exhausted")]
    Jobs(Jobs),

    /// Run jobs again: held or dead ones, a named one, or missing ones
    #[command(after_help = "\
A job keeps its idempotency key (HOOKLATCH_JOB), so a handler that checks the key may \
ignore the replay. With --new-key the job gets a new key, and such a handler does its work again, even \
if it was done before; `show` keeps the old key.

With --state: all held (or dead) jobs that match the filters. It counts them and asks first; --yes answers \
for programs. Suspected replays and reused ids stay held unless --reason names them.

With --since, a handler that was added or changed gets the jobs it lacks: one for each stored event \
that it wants now and has no job for. Run `hooklatch reload` first, so that the receiver knows the \
handler. A suspected replay or reused id is created as held.

Examples:
  hooklatch replay evt_1DemoPaid00000001
  hooklatch replay --job 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b
  hooklatch replay --job 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b --new-key
  hooklatch replay --state dead --handler fulfil --dry-run
  hooklatch replay --handler fulfil --since 2h --dry-run")]
    Replay(Replay),

    /// Settle a held job: say whether its work is done
    #[command(after_help = "\
For a job whose outcome is unknown, once you have checked. With --succeeded it counts as done; with \
--failed it is a dead letter. `hooklatch replay --job JOB` runs it again instead.

Where a caller waits for the answer (reply = \"handler\"), --succeeded needs one: a body, behind header lines \
where it begins with `Status: 201` or `Content-Type: ...` and they end with an empty line.

Examples:
  hooklatch resolve 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b --succeeded
  hooklatch resolve 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b --succeeded \\
    --answer answer.txt")]
    Resolve(Resolve),

    /// Cancel a running job: its command ends, the job is held
    #[command(after_help = "\
The command's process group gets SIGTERM and, after the handler's `grace`, SIGKILL. One that ends with \
status 0 has succeeded; any other is held as cancelled, and runs again only by `replay`. Waits until the \
command has ended. A forward cannot be cancelled: its request is out.

Example:
  hooklatch cancel 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b")]
    Cancel(Cancel),

    /// Drop one job or many; they never run again
    #[command(after_help = "\
A running job cannot be dropped: cancel it first. A dropped one cannot be replayed, and no longer keeps its event's \
payload from being deleted when that is old enough.

With --state: all held (or dead) jobs that match the filters. It counts them and asks first; --yes answers \
for programs.

Examples:
  hooklatch drop 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b
  hooklatch drop --state held --reason suspected-replay --dry-run")]
    Drop(Drop),

    /// Pause a handler: its jobs wait, over restarts too
    #[command(after_help = "\
Events are accepted and their jobs made as before; what runs already goes on. A forward's give_up_after \
counts on. Without HANDLER, lists the paused ones.

Examples:
  hooklatch pause fulfil
  hooklatch pause")]
    Pause(Pause),

    /// Resume a paused handler
    #[command(after_help = "\
Example:
  hooklatch resume fulfil")]
    Resume(Resume),

    /// Check a captured request offline: is its signature good
    #[command(after_help = "\
The body is read from standard input, byte for byte.

Example:
  hooklatch verify --provider github --secret env:GITHUB_SECRET \\
    --header \"X-GitHub-Event: push\" \\
    --header \"X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\" \\
    --header \"X-Hub-Signature-256: sha256=…\" < body.json")]
    Verify(Verify),

    /// Show how everything stands, and the command to run next
    #[command(after_help = "\
For monitors: exits with 0 where all is well, with 1 where something waits for a person (held or dead \
jobs, commands that cannot run), and with 69 where events are not accepted. Refused deliveries and \
requests to unknown paths are shown and do not change the exit code, since anyone can send them.

Examples:
  hooklatch status
  hooklatch status --json")]
    Status(Options),

    /// Open the dashboard in a browser of this machine
    #[command(after_help = "\
Prints a link that works once, within two minutes; Enter prints another. The dashboard is for this user, \
listens on 127.0.0.1 alone, and asks the running receiver over its admin socket. It ends at Ctrl-C, after --for, \
or after half an hour without a visitor. From another machine, forward the port and open the same link there:

  ssh -L 8484:127.0.0.1:8484 HOST

Examples:
  hooklatch ui
  hooklatch ui --view --port 0")]
    Ui(Ui),

    /// Explain one event: who wants it, and what happens next
    #[command(after_help = "\
Handlers are described by the current configuration.

Example:
  hooklatch explain evt_1DemoPaid00000001")]
    Explain(Explain),

    /// Check the configuration, or show what is in force
    #[command(subcommand)]
    Config(ConfigCommand),

    /// List what waits for a person, and what settles it
    #[command(after_help = "\
Examples:
  hooklatch held
  hooklatch held --handler fulfil --reason unknown-outcome")]
    Held(Stopped),

    /// List dead letters: why, and what settles them
    #[command(after_help = "\
Examples:
  hooklatch dead
  hooklatch dead --handler fulfil --since 2h")]
    Dead(Stopped),

    /// List who has changed what, newest first
    #[command(after_help = "\
Verbs: replay, make-missing, resolve, drop, cancel, pause, resume, quarantine-accept, quarantine-drop, reload, node-lost. \
WHO is the user of the command, as the kernel says, and the name that it gave: under sudo that of the person. `asked` stands \
before a cancel, a reload or a quarantine-drop, whose end has a row of its own. Commands take the reason with --note. \
Rows are kept as long as storage.keep_ids says, at most 100,000.

Examples:
  hooklatch audit --since 3d
  hooklatch audit --verb replay --json")]
    Audit(Audit),

    /// Write a source's configuration and secret
    #[command(after_help = "\
Writes conf.d/NAME.toml and secrets/NAME (0600) next to the main configuration, which it creates if there \
is none. It also prints what to fill in at the provider. Existing files are never changed: if there is \
one, it is named, and nothing is written. Where the provider \
makes the secret, the file is empty until you put it in. A generated secret is shown on a terminal only, or \
with --show-secret.

Examples:
  hooklatch init --source github
  hooklatch init --source shop --provider stripe --path /shop \\
    --public-url https://hooks.example.org")]
    Init(Init),

    /// Move the hooks of another program here
    #[command(
        subcommand,
        after_help = "\
Example:
  hooklatch import adnanh hooks.json --out hooklatch"
    )]
    Import(Import),

    /// List the providers that a source can name; show or test one
    #[command(after_help = "\
ID says whether the signature covers the event's id, or that the id is the body's digest; RE-SENDS is how \
long the provider sends an event again. Files in providers/ are listed too. Exits with 1 if none matches.

Examples:
  hooklatch providers
  hooklatch providers git
  hooklatch providers show gitlab")]
    Providers(Providers),

    /// Show what a handler would do with an event; nothing runs
    #[command(after_help = "\
Prints whether the handler wants the event, each line of its `when` with what it reads, the group and the \
values, and what would run: arguments and variables, or the request of a forward. Secrets are stars. \
Nothing is run, stored or sent, and no receiver is needed but for --event.

Exits with 0 if it would run, with 1 if not, and with 65 where that cannot be decided.

Examples:
  hooklatch try fulfil --event evt_1DemoPaid00000001
  hooklatch try fulfil --source github --type push --body push.json
  hooklatch show evt_1DemoPaid00000001 --body | \\
    hooklatch try fulfil --source stripe --body -")]
    Try(Try),

    /// Sign a test delivery as the provider would, and post it
    #[command(after_help = "\
It is a real delivery: the event is stored, and its handlers run. The body has
the form that the provider documents, with a new id and time; --body sends your
own. The secret is the source's; where this user cannot read it, the running
receiver signs.

It waits for the handlers and prints what each one printed. Exits with 0 if
every handler that wants the event succeeded (with --no-wait: if the answer is
200; with --forge and --stale: if it is 401), with 1 if not, and with 69 if
nothing answers.

--url takes the provider's way: name, TLS certificate, proxy and path. Without
a path it gets the source's. It trusts this machine's certificate authorities,
or those in the file that SSL_CERT_FILE names.

Examples:
  hooklatch send github push
  hooklatch send github push --body push.json --wait 5min
  hooklatch send github push --url https://hooks.example.org/hooks/github
  hooklatch send stripe invoice.paid --duplicate
  hooklatch send github push --forge")]
    Send(Send),

    /// Check this machine for what would break a promise
    #[command(after_help = "\
Looks at the clock, the store's disk (what a flush costs, space, network file systems), what the users of \
receiver and runner may read and run, their units and control groups, and TLS. Each finding \
comes with its fix. It changes nothing and contacts no machine but the database's of storage.url; as root it sees most. Exits with 1 where something is bad.

With --deep it also reads every stored payload (headers, body, and what else a handler is given of the event), through \
the receiver where one runs, and names those that are not what was accepted: their jobs never run.

Examples:
  hooklatch doctor
  hooklatch doctor --json
  hooklatch doctor --deep")]
    Doctor(Doctor),

    /// Move the store from its file to PostgreSQL
    #[command(subcommand)]
    Store(StoreCommand),

    /// List the machines on one PostgreSQL, or declare one lost
    #[command(subcommand)]
    Node(NodeCommand),

    /// List refused deliveries; verify them again, accept them
    #[command(after_help = "\
They are kept for some days, within limits (limits.quarantine_*): those without a signature are listed without \
their bodies, which nothing could prove. The event id is what the sender claims.

Examples:
  hooklatch quarantine
  hooklatch quarantine --source github --reason bad_signature --since 2h
  hooklatch quarantine verify")]
    Quarantine(Quarantine),

    /// Confirm a provider's subscription of this receiver
    #[command(after_help = "\
For Amazon SNS, which first sends an event that names a URL, and sends nothing more until somebody has requested \
it. The receiver follows no URL of a delivery. This command takes the newest such event of the source, which was \
verified when it was stored and names the source's `sender`, shows that and the URL, asks, and requests it; only at \
the hosts of the provider's file.

Example:
  hooklatch confirm alerts")]
    Confirm(Confirm),

    /// Fetch the public keys that a provider publishes
    #[command(after_help = "\
For providers that sign with a key published at a URL (Amazon SNS, Google Pub/Sub, PayPal). The receiver fetches \
nothing: until the key is in the file that the source's secret names, deliveries are refused and quarantined. This \
command asks only the hosts of the provider's file, over TLS, writes the keys, and makes a running receiver load \
them. Where each delivery names its key, the URLs are those of deliveries that a running receiver has in quarantine; one \
that fails is skipped, and a key is kept only if one of those deliveries verifies with it. Run it again, from a timer, \
before the provider changes its keys.

Examples:
  hooklatch keys alerts
  hooklatch keys alerts --url https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123.pem")]
    Keys(Keys),

    /// Apply the changed configuration without dropping a request
    #[command(after_help = "\
The whole configuration is checked first, secrets included. If anything is wrong with it, or needs a restart, or \
a runner cannot load it, nothing changes, and every problem is reported here and in the log. Otherwise it returns \
once sources, handlers, secrets and limits are in force. Requests and attempts that are under way end as they \
began. SIGHUP to `serve` does the same.

Exits with 78 if the configuration is wrong or needs a restart, and with 69 if no receiver runs or it is stopping.

Example:
  hooklatch reload")]
    Reload(Reload),

    /// Take the secret that a provider sends when its endpoint is set up
    #[command(after_help = "\
Some providers send the secret themselves, unsigned, with the first request to a new endpoint (Asana, Notion). It is \
taken only while this command waits, for one secret, only if the source has none, and only at the URL that the command \
prints: that has a random word which nobody else knows. It is written to the file of \
the source's `secrets`, which must not exist yet; then the receiver loads it, and only then the provider gets its \
answer. If the provider reports an error, remove the file and repeat.

Exits with 65 if the file is there already, with 2 if the provider sends no secret, and with 69 if none came in time \
or no receiver runs.

Example:
  hooklatch register asana --wait 5min")]
    Register(Register),

    /// Copy the store into a new file, and check the copy
    #[command(after_help = "\
The copy is made beside the store, which takes as much space again, then sent to this command, checked \
page by page, and given its name; nothing is ever overwritten. Payloads are in it: keep it as safe as the \
store. `hooklatch restore` says what a backup cannot know.

Example:
  hooklatch backup /var/backups/hooklatch-2026-01-31.db")]
    Backup(Backup),

    /// Print the version
    #[command(hide = true)]
    Version,

    /// Make a backup the store again; unfinished jobs are held
    #[command(after_help = "\
A backup knows nothing of what came after it was made: those events are forgotten, and run again when they \
are sent again. What it had not finished may have run since, so it waits for a person (`hooklatch held \
--reason restored`). The restored store has a new identity, and tells of the gap in `status`. A runner that \
still has attempts of the old store takes none of the new one.

Examples:
  hooklatch restore /var/backups/hooklatch-2026-01-31.db
  hooklatch restore /var/lib/hooklatch/hooklatch.db.before-NNNN --replace")]
    Restore(Restore),
}

/// `hooklatch serve`
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub file: ConfigFile,
    /// What to log: error, warn, info, debug, trace, or a filter such as hooklatch::http=debug
    #[arg(long, value_name = "FILTER", env = "HOOKLATCH_LOG", default_value = "info")]
    pub log: String,
    /// Reach each runner by its socket DIR/NAME.socket, and launch none: for runners that are services
    #[arg(long, value_name = "DIR")]
    pub runners: Option<PathBuf>,
}

/// `hooklatch runner`
#[derive(Debug, Args)]
pub struct Runner {
    #[command(flatten)]
    pub file: ConfigFile,
    /// The database of the receiver that is served, where it is not storage.path
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Leave when unused for limits.runner_idle_millis: for a runner without a service manager
    #[arg(long)]
    pub leave_when_idle: bool,
    /// Be a session of one's own, and close standard output once listening: for `serve`
    #[arg(long, hide = true)]
    pub detached: bool,
    /// What to log: error, warn, info, debug, trace, or a filter such as hooklatch::runner=debug
    #[arg(long, value_name = "FILTER", env = "HOOKLATCH_LOG", default_value = "info")]
    pub log: String,
    /// Run the commands of the handlers that name this runner
    #[arg(long, value_name = "NAME", default_value_t, requires = "folder")]
    pub name: RunnerName,
    /// Work in this folder, and listen at NAME.socket in it: for `serve --runners`
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub folder: Option<PathBuf>,
}

/// `hooklatch demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep serving after the ledger, until a signal
    #[arg(long, conflicts_with = "json")]
    pub stay: bool,
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch ui`
#[derive(Debug, Args)]
pub struct Ui {
    /// Serve as [dashboard] of the configuration says, without a link and without an end: for a service manager
    #[arg(long, conflicts_with_all = ["port", "view", "time"])]
    pub configured: bool,
    /// The port on 127.0.0.1; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8484)]
    pub port: u16,
    /// Only look: nothing can be changed, over the reading socket
    #[arg(long)]
    pub view: bool,
    /// End after so long
    #[arg(long = "for", value_name = "DURATION", default_value = "8h", value_parser = humantime::parse_duration)]
    pub time: Duration,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch drill`
#[derive(Debug, Args)]
pub struct Drill {
    /// How often the receiver is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub kills: u16,
    /// Kill the runner now and then too: what it ran is then unknown, and must be held
    #[arg(long)]
    pub runner_kills: bool,
    /// Work in this folder, new or empty, on the disk that is to be tried; it is kept
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Repeat the choices of the run that printed this seed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run so many nodes over one PostgreSQL, and kill one of them each time
    #[arg(long, value_name = "N", requires = "url", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub nodes: Option<u8>,
    /// Their database, which must be empty: postgresql://USER@HOST/DATABASE
    #[arg(long, value_name = "URL", requires = "nodes")]
    pub url: Option<String>,
    /// Where its password is: file:/path or env:NAME
    #[arg(long, value_name = "REFERENCE", requires = "url")]
    pub password_from: Option<String>,
    /// As `storage.require_synchronous_standby`
    #[arg(long, requires = "url")]
    pub require_synchronous_standby: bool,
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch events`
#[derive(Debug, Args)]
pub struct Events {
    /// Only events of this source
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    /// Only events of this type, exactly or with * for any run of characters
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Only events that arrived since then: 2h, 3d, a date, or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only events with a job in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<State>,
    /// Only events with a job of this handler; with --state, one that is in that state
    #[arg(long, value_name = "NAME")]
    pub handler: Option<Name>,
    /// Print each event as it is accepted, until a signal ends it
    #[arg(long, conflicts_with_all = ["state", "rejected", "secrets"])]
    pub follow: bool,
    /// List deliveries that failed verification instead, as `hooklatch quarantine` does
    #[arg(long, conflicts_with_all = ["event_type", "handler", "state"])]
    pub rejected: bool,
    /// List when each secret last matched instead: an old one that is silent may be retired
    #[arg(long, conflicts_with_all = ["event_type", "handler", "rejected", "source", "since", "state"])]
    pub secrets: bool,
    #[command(flatten)]
    pub listing: Listing,
}

/// `hooklatch show`
#[derive(Debug, Args)]
pub struct Show {
    /// The event or one job of it: its id, or as many characters of its beginning as no other has
    #[arg(value_name = "EVENT|JOB", value_parser = options::event)]
    pub event: EventId,
    /// The source, where several have an event of this id
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    /// Print the raw body, byte for byte, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub body: bool,
    /// Print what its running attempts print, until they end
    #[arg(long, conflicts_with = "body")]
    pub follow: bool,
    /// With --follow, only this job of it
    #[arg(long, value_name = "JOB", requires = "follow", value_parser = options::job)]
    pub job: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// The provider: an embedded name, or a provider file
    #[arg(long, value_name = "PROVIDER")]
    pub provider: String,
    /// A secret: env:NAME, file:PATH or literal:TEXT (for tests); any may match
    #[arg(long = "secret", value_name = "REF")]
    pub secrets: Vec<String>,
    /// The time to judge it at, in seconds since 1970; now where not given
    #[arg(long, value_name = "UNIX", allow_negative_numbers = true)]
    pub at: Option<i64>,
    /// The request's method
    #[arg(long, value_name = "METHOD", default_value = "POST")]
    pub method: String,
    /// The public URL, for schemes that sign it
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The source's `sender`, for providers that sign for all their customers
    #[arg(long, value_name = "TEXT")]
    pub sender: Option<String>,
    /// One header line; repeat as the request does
    #[arg(long = "header", value_name = "Name: value")]
    pub headers: Vec<String>,
}

/// `hooklatch config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration and every secret, and report all problems at once
    #[command(after_help = "\
What `credential:NAME` refers to is looked for where the units have it from, secrets/NAME and, for the \
commands, runner-secrets/NAME beside the configuration.

Example:
  hooklatch config check /etc/hooklatch/hooklatch.toml")]
    Check(ConfigCheck),

    /// Show what is in force: sources, handlers, and every limit with its default, range and reason
    #[command(after_help = "\
Secrets are stars; where each is read from is shown. Of a command's variables, those that refer to a secret or \
are named like one are stars too.

Example:
  hooklatch config show --config /etc/hooklatch/hooklatch.toml")]
    Show(Options),
}

/// `hooklatch config check`
#[derive(Debug, Args)]
pub struct ConfigCheck {
    /// The configuration file, as with --config
    #[arg(value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Only what this process needs, where the two run as different users
    #[arg(long = "for", value_name = "PROCESS", value_enum)]
    pub part: Option<Part>,
    /// With --for runner, the one of this name
    #[arg(long, value_name = "NAME", default_value_t, requires = "part")]
    pub name: RunnerName,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch node …`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List the nodes: what runs there, and whether they are connected
    #[command(after_help = "\
Asks the database that storage.url names; no receiver is needed. SEEN is when the node last looked at the database, \
which decides nothing: a node that is silent may still run its jobs.

Example:
  hooklatch node list")]
    List(Options),

    /// Say that nothing of a node runs any more, so that its jobs go on
    #[command(after_help = "\
Lists what runs there, and asks. Each of its attempts is then unknown: a job whose handler has on_unknown = \"rerun\" \
runs again on another node, any other is held. Say it only once the machine is off, or its receiver and its runners \
are stopped: where the node is alive, a job that runs again runs twice at once. A node that comes back is active \
again. Asks the database that storage.url names; no receiver is needed.

Examples:
  hooklatch node lost b
  hooklatch node lost b --yes")]
    Lost(NodeLost),
}

/// `hooklatch store …`
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Move the store from its file to an empty database
    #[command(after_help = "\
Stop the receiver first; its runners may run on. Everything moves, with its numbers and times, in one transaction that \
is compared with the file; attempts under way stay this machine's. Then the file opens no more: name the database as \
storage.url, and start the receiver. A move that was cut off is finished by the same command.

Example:
  hooklatch store move --to postgresql://hooklatch@db.example.org/hooklatch \\
    --password-from file:/etc/hooklatch/secrets/pg")]
    Move(StoreMove),
}
