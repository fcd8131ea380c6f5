//! `hooklatch reload`: makes the running receiver and its runners load the configuration again.

use crate::admin::{Reload, Reloaded};
use crate::cli;
use crate::config;
use crate::exit::{Exit, Failure};

use super::output::{self, words_of};
use super::runtime::block_on;
use super::store;

/// Asks the receiver, waits until the configuration is in force, and prints the changes.
pub(super) fn run(args: &cli::Reload) -> Result<Exit, Failure> {
    // The receiver reads the configuration itself and reports its problems. This finds only its socket.
    let options = &args.options;
    let config = config::load_in_part(options.config())?;
    let reloaded = block_on(async {
        let kept = "a running one keeps its storage.path until it is restarted";
        match store::receiver(&config, &format!("{} ({kept})", options.suffix())).await {
            Ok(client) => Ok(client.by(store::by(&args.note)).call(&Reload {}).await?),
            // Configuration mistakes come first: with them no receiver would start.
            Err(failure) => Err(store::need_whole(&config).err().unwrap_or(failure)),
        }
    })??;
    output::either(&options.format, &reloaded, || show(&reloaded))
}

fn show(reloaded: &Reloaded) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut row = |what: &str, name: &str, change: &str| {
        let name = words_of("NAME", name);
        rows.push(vec![words_of("WHAT", what), name, words_of("CHANGE", change)]);
    };
    for (kind, names) in [("source", &reloaded.sources), ("handler", &reloaded.handlers)] {
        for (name, what) in names.all() {
            row(kind, name.as_str(), what);
        }
    }
    for (handler, jobs) in &reloaded.orphaned {
        let jobs = output::count(*jobs, "unfinished job");
        row("jobs", handler.as_str(), &format!("{jobs}: held, handler gone (hooklatch held)"));
    }
    for limit in &reloaded.limits {
        row("limit", &limit.key, &format!("{} → {}", limit.from, limit.to));
    }
    for secret in &reloaded.secrets {
        let read = match (&secret.stays, secret.changed) {
            (Some(why), _) => format!("reloaded; {why}"),
            (None, Some(true)) => "reloaded, changed".to_owned(),
            (None, Some(false)) => "reloaded, unchanged".to_owned(),
            (None, None) => "read by its runner".to_owned(),
        };
        row("secret", &format!("{} of {}", secret.reference, secret.of), &read);
    }
    for runner in reloaded.runners.iter().filter(|runner| !runner.loaded) {
        row("runner", runner.name.as_str(), "not connected: reads its commands when it comes");
    }
    output::line(format_args!("{} is in force", output::escape(&reloaded.file)))?;
    output::listing(rows, false, "nothing has changed")
}
