//! Measures running stored jobs of a command, compared with a plain loop that spawns and waits.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::accepts::Fresh;
use super::backlog::{ABREAST, Backlog};
use super::requests::Kind;
use super::table::{Bounds, Good, Table};

/// The jobs of one round: three seconds at 2,000 per second.
const JOBS: usize = 6_000;

pub(crate) fn measure(table: &Table) {
    let name = "stored ready jobs run per second, /bin/true, 8 at once";
    if !table.wants(name) {
        return;
    }
    let (fresh, jobs) = (Fresh::default(), JOBS / table.effort.divide);
    let backlog = Backlog::of(r#"command = ["/bin/true"]"#);
    let bounds = Bounds { good: Good::High, floor: 0.55, aim: 0.85 };
    let measured = || backlog.rate(&fresh.take(Kind::GitHub, jobs));
    table.compare(name, bounds, "/s", || bare(jobs), measured);
}

/// Spawns commands and waits for them, in several threads. Returns the commands per second.
fn bare(count: usize) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..ABREAST {
            scope.spawn(|| {
                for _ in 0..count / ABREAST {
                    let mut command = Command::new("/bin/true");
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    assert!(command.status().unwrap().success());
                }
            });
        }
    });
    (count / ABREAST * ABREAST) as f64 / begun.elapsed().as_secs_f64()
}
