//! Measures the time from the 2xx to the handler's first instruction, on an idle receiver.
//!
//! The handler is this program: it first reads the clock, and then writes the time into a named pipe. All
//! processes share the monotonic clock.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::time::{ClockId, clock_gettime};

use super::accepts::Fresh;
use super::backlog::Backlog;
use super::load::quantile;
use super::requests::Kind;
use super::table::{Bounds, Good, Table};

/// The handler's first argument; the second is the pipe's path.
const TELL: &str = "tell-first-instruction";

/// The events of a round.
const EVENTS: usize = 200;

/// The pause before each event and each plain spawn, so that the work of the last one is done and all
/// threads sleep.
const REST: Duration = Duration::from_millis(10);

/// `main` calls it first. If this process is the handler, writes the time and returns true.
pub(crate) fn ran_as_handler() -> bool {
    let now = now();
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|word| word != TELL) {
        return false;
    }
    let mut pipe = OpenOptions::new().write(true).open(args.next().unwrap()).unwrap();
    pipe.write_all(&nanos(now).to_ne_bytes()).unwrap();
    true
}

pub(crate) fn measure(table: &Table) {
    let name = "from 2xx to the handler's first instruction, idle, p50";
    if !table.wants(name) {
        return;
    }
    let pipes = tempfile::tempdir().unwrap();
    let path = pipes.path().join("first");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Opened for writing too, so that opening does not wait for a handler, and reading does not end with one.
    let mut pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let program = std::env::current_exe().unwrap();
    let backlog = Backlog::of(&format!("command = [{program:?}, {TELL:?}, {path:?}]"));
    let fresh = Fresh::default();
    let mut round = || {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for request in fresh.take(Kind::GitHub, (EVENTS / table.effort.divide).max(20)) {
            sleep(REST);
            bare.push(spawned(&program, &path, &mut pipe));
            sleep(REST);
            ours.push(delivered(&backlog, &request, &mut pipe));
        }
        (quantile(&bare, 0.5), quantile(&ours, 0.5))
    };
    let pairs: Vec<(f64, f64)> = (0..table.effort.rounds).map(|_| round()).collect();
    table.pairs(name, Bounds { good: Good::Low, floor: 4.0, aim: 3.0 }, "ms", &pairs);
}

/// The time from just before a plain spawn of the handler to its first instruction.
fn spawned(program: &Path, path: &Path, pipe: &mut File) -> Duration {
    let mut command = Command::new(program);
    command.arg(TELL).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = now();
    let mut child = command.spawn().unwrap();
    let first = read(pipe);
    assert!(child.wait().unwrap().success());
    first.saturating_sub(begun)
}

/// The time from reading the 2xx of a delivery to its handler's first instruction; 0 if the handler was
/// first.
fn delivered(backlog: &Backlog, request: &[u8], pipe: &mut File) -> Duration {
    let goal = backlog.succeeded() + 1;
    let answered = post(backlog.receiver.address, request);
    let first = read(pipe);
    backlog.wait(goal);
    first.saturating_sub(answered)
}

/// Delivers `request`, and returns the time at which the head of a 200 was read.
fn post(address: SocketAddr, request: &[u8]) -> Duration {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).unwrap();
    let answered = now();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"));
    answered
}

/// Reads the time that the next handler writes.
fn read(pipe: &mut File) -> Duration {
    let mut nanos = [0; 8];
    pipe.read_exact(&mut nanos).unwrap();
    Duration::from_nanos(u64::from_ne_bytes(nanos))
}

/// The time since the machine was started.
fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}
