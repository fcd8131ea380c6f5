//! The commands that a runner may start, as it has read them from its configuration.
//!
//! A Start names a handler and the digest of its configuration, and the digest decides which command runs.
//! What must stay true: after a Load, the commands that the receiver goes by can be started as well as those
//! that were read for the Load. So a reload that another part refuses changes nothing here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::CommandSettings;
use super::message::Refusal;
use crate::model::{Digest, Name};

/// A command that this runner may run.
#[derive(Debug, Clone)]
pub struct Configured {
    pub name: Name,
    /// The digest of its configuration as it is written, which receiver and runner compute alike.
    pub digest: Digest,
    pub settings: CommandSettings,
}

/// Reads the configuration again. Blocks. An `Err` says why it cannot, for the log and the receiver.
pub type Reload = Arc<dyn Fn() -> Result<CommandList, String> + Send + Sync>;

/// The commands of the configuration.
#[derive(Debug)]
pub struct CommandList {
    pub commands: Vec<Configured>,
    /// Set if a limit that applies from the start on has changed: why a Load is refused.
    pub needs_restart: Option<String>,
}

/// The commands of each load that a Start may name.
#[derive(Debug)]
pub(super) struct Commands {
    /// The newest first.
    loads: Vec<CommandLoad>,
}

#[derive(Debug)]
struct CommandLoad {
    /// The Load's number; 0 for the commands read before the connection's first Load.
    number: u64,
    commands: BTreeMap<Name, Arc<Configured>>,
}

impl Commands {
    /// These commands and no others.
    pub(super) fn new(commands: Vec<Configured>) -> Self {
        let mut all = Commands { loads: Vec::new() };
        all.load(0, 0, commands);
        all
    }

    /// Keeps every command for a new connection, because the configuration cannot be read: they are the load in use
    /// until the connection's first Load.
    pub(super) fn retain_for_new_connection(&mut self) {
        for load in &mut self.loads {
            load.number = 0;
        }
    }

    /// Adds the commands of a load, and removes those of all loads but `in_use`.
    pub(super) fn load(&mut self, number: u64, in_use: u64, commands: Vec<Configured>) {
        let commands = commands.into_iter().map(|one| (one.name.clone(), Arc::new(one))).collect();
        self.loads.retain(|load| load.number == in_use);
        self.loads.insert(0, CommandLoad { number, commands });
    }

    /// The command of this handler with this digest. If two loads have it, the secrets are those of the newer load.
    pub(super) fn find(&self, handler: &Name, digest: &Digest) -> Result<Arc<Configured>, Refusal> {
        let mut refusal = Refusal::UnknownHandler;
        for command in self.loads.iter().filter_map(|load| load.commands.get(handler)) {
            if command.digest == *digest {
                return Ok(Arc::clone(command));
            }
            refusal = Refusal::OtherDigest;
        }
        Err(refusal)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn command(name: &str, digest: u8) -> Configured {
        let settings = CommandSettings {
            argv: vec![digest.to_string()],
            cwd: None,
            home: "/".into(),
            env: Vec::new(),
            timeout: std::time::Duration::MAX,
            grace: std::time::Duration::MAX,
            output_bytes: (0, 0),
            answer_bytes: None,
            stdin_memory_bytes: 0,
            values: None,
        };
        Configured { name: name.parse().unwrap(), digest: Digest([digest; 32]), settings }
    }

    fn find(commands: &Commands, name: &str, digest: u8) -> Result<(), Refusal> {
        let found = commands.find(&name.parse().unwrap(), &Digest([digest; 32]))?;
        assert_eq!(found.settings.argv, [digest.to_string()]);
        Ok(())
    }

    #[test]
    fn the_commands_in_use_outlast_every_load_that_is_not_put_in_use() {
        let mut commands = Commands::new(vec![command("a", 1), command("gone", 1)]);
        for number in 1..=3 {
            let digest = 10 + number as u8;
            commands.load(number, 0, vec![command("a", digest)]);
            assert_eq!(find(&commands, "a", 1), Ok(()), "in use");
            assert_eq!(find(&commands, "gone", 1), Ok(()), "in use");
            assert_eq!(find(&commands, "a", digest), Ok(()));
            assert_eq!(find(&commands, "a", digest - 1), Err(Refusal::OtherDigest));
        }
        // Load 3 is put in use.
        commands.load(4, 3, vec![command("b", 4)]);
        assert_eq!(find(&commands, "a", 13), Ok(()));
        assert_eq!(find(&commands, "a", 1), Err(Refusal::OtherDigest));
        assert_eq!(find(&commands, "gone", 1), Err(Refusal::UnknownHandler));
        assert_eq!(find(&commands, "b", 4), Ok(()));
    }

    #[test]
    fn commands_kept_for_a_new_connection_outlast_its_first_load() {
        let mut commands = Commands::new(vec![command("a", 1)]);
        commands.load(5, 0, vec![command("a", 2)]);
        commands.retain_for_new_connection();
        commands.load(1, 0, vec![command("a", 3)]);
        for digest in 1..=3 {
            assert_eq!(find(&commands, "a", digest), Ok(()), "{digest}");
        }
    }

    #[test]
    fn of_two_loads_with_one_digest_the_newer_one_counts() {
        let mut commands = Commands::new(vec![command("a", 1)]);
        let mut renewed = command("a", 1);
        renewed.settings.env = vec![("TOKEN".to_owned(), "renewed".to_owned())];
        commands.load(1, 0, vec![renewed.clone()]);
        let found = commands.find(&renewed.name, &renewed.digest).unwrap();
        assert_eq!(found.settings, renewed.settings);
    }
}
