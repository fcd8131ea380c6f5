//! One attacker: a thread on a fixed core, with all connections of an attack.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::attacks::{Attack, Manner};

/// Moves this thread to the core of attacker and sink: the last one, which every machine has.
pub(crate) fn take_own_core() {
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    let mut own = CpuSet::new();
    own.set(cores - 1);
    sched_setaffinity(None, &own).unwrap();
}

/// The longest wait for a connection or for a step.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running attack.
pub(crate) struct Attacker {
    thread: JoinHandle<f64>,
}

impl Attacker {
    /// Attacks `target` for `length`.
    pub(crate) fn start(attack: Attack, target: SocketAddr, length: Duration) -> Self {
        Attacker { thread: std::thread::spawn(move || run(attack, target, length)) }
    }

    /// Waits for the end of the attack, and returns its steps per second.
    pub(crate) fn end(self) -> f64 {
        self.thread.join().unwrap()
    }
}

fn run(attack: Attack, target: SocketAddr, length: Duration) -> f64 {
    take_own_core();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let set = LocalSet::new();
    let (attack, steps) = (Rc::new(attack), Rc::new(Cell::new(0u64)));
    set.block_on(&runtime, async {
        let start = Instant::now();
        for number in 0..attack.connections {
            // The connections begin at different times within a step's interval, so that the rate is even.
            let first = start + attack.pause * number / attack.connections;
            let (attack, steps) = (Rc::clone(&attack), Rc::clone(&steps));
            tokio::task::spawn_local(
                async move { connection(&attack, target, first, &steps).await },
            );
        }
        sleep(length).await;
    });
    steps.get() as f64 / length.as_secs_f64()
}

/// One connection of the attack, which is opened again whenever it ends.
async fn connection(attack: &Attack, target: SocketAddr, first: Instant, steps: &Cell<u64>) {
    let mut ticks = interval_at(first, attack.pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut stream = None;
    loop {
        ticks.tick().await;
        let stepped = timeout(PATIENCE, step(attack, target, &mut stream)).await;
        steps.set(steps.get() + 1);
        let well = matches!(stepped, Ok(Ok(())));
        if !well || attack.manner == Manner::Closes {
            stream = None;
        }
    }
}

async fn step(
    attack: &Attack,
    target: SocketAddr,
    stream: &mut Option<TcpStream>,
) -> io::Result<()> {
    let stream = match stream {
        Some(stream) => stream,
        none => {
            let made = none.insert(TcpStream::connect(target).await?);
            made.write_all(&attack.opening).await?;
            made
        }
    };
    stream.write_all(&attack.step).await?;
    if attack.manner != Manner::Deaf {
        hear(stream)?;
    }
    Ok(())
}

/// Discards the answers so far; fails if the other side has closed.
fn hear(stream: &TcpStream) -> io::Result<()> {
    let mut answers = [0; 4096];
    loop {
        match stream.try_read(&mut answers) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
