//! Writes the lines to standard error or to the journal's socket: at once, or in a background thread.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tracing::Level;

use crate::limits::LOG_QUEUE_LINES;

use super::fields::{Fields, Line};
use super::format::Format;

/// Where the journal listens (systemd-journald.service(8)).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The thread's pause between two writes. A line queued meanwhile does not have to wake the thread, which would
/// cost more than the line.
const PAUSE: Duration = Duration::from_millis(5);

/// The thread writes once it has this many bytes: the capacity of a pipe (pipe(7)).
const TOGETHER: usize = 64 * 1024;

/// How long a stop waits until the queued lines are written.
const FLUSH: Duration = Duration::from_secs(2);

/// Lines that were dropped because the log stalled.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The writer that [`super::start`] opened.
static OPENED: OnceLock<Arc<Writer>> = OnceLock::new();

pub(super) struct Writer {
    format: Format,
    target: Mutex<Target>,
    /// The queue of the background thread, once that runs.
    queue: OnceLock<SyncSender<Message>>,
}

enum Target {
    Stderr,
    Journal(UnixDatagram),
    #[cfg(test)]
    Kept(Arc<Mutex<Vec<u8>>>),
}

enum Message {
    Line(Vec<u8>),
    /// Acknowledged when all earlier lines are written.
    Flush(SyncSender<()>),
}

impl Writer {
    /// If the journal cannot be reached, its lines are JSON on standard error.
    pub(super) fn open(format: Format) -> Arc<Self> {
        let (format, target) = match format {
            Format::Journal => match journal() {
                Ok(socket) => (Format::Journal, Target::Journal(socket)),
                Err(_unreachable) => (Format::Json, Target::Stderr),
            },
            other => (other, Target::Stderr),
        };
        let writer = Writer { format, target: Mutex::new(target), queue: OnceLock::new() };
        Arc::clone(OPENED.get_or_init(|| Arc::new(writer)))
    }

    /// Writes a line, or drops it if the queue is full.
    pub(super) fn write(&self, line: &Line) {
        let bytes = self.format.bytes(line);
        match self.queue.get() {
            // An error of the log has nowhere to be reported.
            None => drop(self.put(&bytes)),
            Some(queue) => {
                if queue.try_send(Message::Line(bytes)).is_err() {
                    LOST.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Blocks until `bytes` are written.
    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        match &*target {
            Target::Stderr => std::io::stderr().lock().write_all(bytes),
            Target::Journal(socket) => socket.send(bytes).map(drop),
            #[cfg(test)]
            Target::Kept(kept) => {
                kept.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
            }
        }
    }

    /// Runs in the background thread until every sender is dropped. It writes queued lines together: one write for
    /// each delivery would cost a busy receiver a tenth of its time.
    fn run(&self, messages: &Receiver<Message>) {
        let mut reported = 0;
        let mut lines = Vec::new();
        while let Ok(first) = messages.recv() {
            for message in std::iter::once(first).chain(messages.try_iter().take(LOG_QUEUE_LINES)) {
                match message {
                    Message::Line(line) => lines.extend(line),
                    Message::Flush(done) => {
                        self.put_all(&mut lines);
                        let _ = done.send(());
                    }
                }
                // Each datagram to the journal is one line.
                if self.format == Format::Journal || lines.len() >= TOGETHER {
                    self.put_all(&mut lines);
                }
            }
            self.put_all(&mut lines);
            std::thread::sleep(PAUSE);
            let lost = LOST.load(Ordering::Relaxed);
            if lost > reported {
                // If this line is lost too, the metric still counts them.
                drop(self.put(&self.format.bytes(&lines_lost(lost - reported))));
                reported = lost;
            }
        }
    }

    fn put_all(&self, lines: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        if self.put(lines).is_err() {
            let count = match self.format {
                Format::Journal => 1,
                _ => lines.iter().filter(|byte| **byte == b'\n').count(),
            };
            LOST.fetch_add(count as u64, Ordering::Relaxed);
        }
        lines.clear();
    }

    #[cfg(test)]
    pub(super) fn kept(format: Format) -> (Arc<Self>, Arc<Mutex<Vec<u8>>>) {
        let kept = Arc::new(Mutex::default());
        let target = Mutex::new(Target::Kept(Arc::clone(&kept)));
        (Arc::new(Writer { format, target, queue: OnceLock::new() }), kept)
    }
}

fn journal() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(JOURNAL)?;
    Ok(socket)
}

fn lines_lost(count: u64) -> Line {
    let fields = Fields(vec![("count", count.into())]);
    let message = "log lines were dropped: the log stalled".to_owned();
    Line { level: Level::WARN, target: module_path!(), message, fields }
}

/// How many lines were dropped since the start because the log stalled.
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Handle of the background thread. Dropping it waits up to 2 s for the queued lines.
#[derive(Debug)]
pub struct Background(Option<SyncSender<Message>>);

/// Writes in a background thread from now on, so that the threads that log never wait. For the process that
/// answers providers. Call it after the process has changed its user, because it starts a thread.
pub fn in_background() -> Background {
    let Some(writer) = OPENED.get() else { return Background(None) };
    let (queue, messages) = sync_channel(LOG_QUEUE_LINES);
    let background = Arc::clone(writer);
    let thread = std::thread::Builder::new().name("log".to_owned());
    if thread.spawn(move || background.run(&messages)).is_err() {
        // Without a thread, the threads that log write their lines, as before.
        return Background(None);
    }
    Background(writer.queue.set(queue.clone()).is_ok().then_some(queue))
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(queue) = &self.0 else { return };
        let (done, is_done) = sync_channel(1);
        // A full queue means that the log stalls.
        if queue.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH);
        }
    }
}
