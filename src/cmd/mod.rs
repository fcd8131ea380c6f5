//! The edge: one file per subcommand. Each turns its arguments into a call of the layers below and prints the
//! answer: data to standard output, everything else to standard error.

mod arrivals;
mod audit;
mod backup;
mod bulk;
mod cancel;
pub mod config_check;
mod config_show;
mod confirm;
mod delivered;
mod demo;
mod doctor;
mod drill;
mod drop;
mod events;
mod explain;
mod failure;
mod follow;
mod ids;
mod import;
mod init;
mod input;
mod jobs;
mod keys;
pub mod kit;
mod node;
mod of_unit;
mod orphans;
mod output;
mod owner;
mod pause;
mod progress;
mod providers;
mod quarantine;
mod random;
mod register;
mod reload;
mod replay;
mod resolve;
mod restore;
mod runner;
mod runtime;
mod send;
mod serve;
mod settle_advice;
mod show;
mod signals;
mod status;
mod store;
mod store_move;
mod subscription;
mod try_handler;
mod ui;
mod unseen;
pub(crate) mod verify;

use clap::FromArgMatches;

use crate::cli::{Cli, Command, ConfigCommand, Import, NodeCommand, StoreCommand};
use crate::exit::{Exit, Failure};
use crate::model::State;
use crate::runner::{hold_signals, release_signals};

/// Parses the command line, runs the command, prints its failure, and says what to exit with.
pub fn main() -> Exit {
    // First: a signal has its default effect until then.
    hold_signals();
    crate::panics::install();
    #[cfg(debug_assertions)]
    if let Ok(text) = std::env::var(crate::crash::VARIABLE) {
        crate::crash::arm(&text);
    }
    #[cfg(debug_assertions)]
    if std::env::var_os(crate::crash::MIGRATE).is_some() {
        crate::crash::add_migration();
    }
    let matches = crate::cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // These two release them when they catch them.
    if !matches!(cli.command, Command::Serve(_) | Command::Runner(_)) {
        release_signals();
    }
    match run(cli.command) {
        Ok(exit) => exit,
        // The reader has read enough: `hooklatch events | head`.
        Err(failure) if failure.reader_left => Exit::Ok,
        Err(failure) => {
            report(&failure);
            failure.exit
        }
    }
}

fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Runner(args) => runner::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Events(args) if args.follow => arrivals::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Show(args) if args.follow => follow::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Resolve(args) => resolve::run(&args),
        Command::Cancel(args) => cancel::run(&args),
        Command::Drop(args) => drop::run(&args),
        Command::Pause(args) => pause::pause(&args),
        Command::Resume(args) => pause::resume(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Import(Import::Adnanh(args)) => import::run(&args),
        Command::Providers(args) => providers::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Try(args) => try_handler::run(&args),
        Command::Config(ConfigCommand::Show(args)) => config_show::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Ui(args) => ui::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Config(ConfigCommand::Check(args)) => config_check::run_with_store(&args),
        Command::Version => {
            output::line(format_args!("hooklatch {}", env!("CARGO_PKG_VERSION")))?;
            Ok(Exit::Ok)
        }
        Command::Held(args) => jobs::stopped(&args, State::Held),
        Command::Dead(args) => jobs::stopped(&args, State::Dead),
        Command::Audit(args) => audit::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Node(NodeCommand::List(args)) => node::list(&args),
        Command::Node(NodeCommand::Lost(args)) => node::lost(&args),
        Command::Quarantine(args) => quarantine::run(&args),
        Command::Confirm(args) => subscription::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Register(args) => register::run(&args),
        Command::Store(StoreCommand::Move(args)) => store_move::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
    }
}

/// The one place that prints a failure. A closed standard error leaves only the exit code.
fn report(failure: &Failure) {
    output::said("error", anstyle::AnsiColor::Red.on_default().bold(), &failure.message);
    if let Some(help) = &failure.help {
        output::said("help", anstyle::Style::new(), help);
    }
}
