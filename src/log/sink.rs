//! Takes the lines to standard error or to the journal's socket: at once, or by a thread of its own.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tracing::Level;

use super::fields::{Fields, Line, Value};
use super::form::Form;

/// Where the journal listens (systemd-journald.service(8)).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Lines that wait for the thread: some 2 MiB of usual ones, and half a second of the busiest receiver.
const WAITING: usize = 8192;

/// Between two writes: whoever logs meanwhile need not wake the thread, which costs more than its line.
const PAUSE: Duration = Duration::from_millis(5);

/// Bytes of lines in one write, and one line more: what a pipe holds (pipe(7)).
const TOGETHER: usize = 64 * 1024;

/// How long a stop waits for the lines to be taken.
const FLUSH: Duration = Duration::from_secs(2);

/// Lines given up because nobody took them.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The one that [`super::start`] has opened.
static OPENED: OnceLock<Arc<Sink>> = OnceLock::new();

/// Where lines go.
pub(super) struct Sink {
    form: Form,
    target: Mutex<Target>,
    /// The thread that takes them there, once there is one.
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
    /// Answered when all before it is written.
    Flush(SyncSender<()>),
}

impl Sink {
    /// Opens what `form` is for. Without a journal to be reached its lines are JSON.
    pub(super) fn open(form: Form) -> Arc<Self> {
        let (form, target) = match form {
            Form::Journal => match journal() {
                Ok(socket) => (Form::Journal, Target::Journal(socket)),
                Err(_unreachable) => (Form::Json, Target::Stderr),
            },
            other => (other, Target::Stderr),
        };
        let sink = Sink { form, target: Mutex::new(target), queue: OnceLock::new() };
        Arc::clone(OPENED.get_or_init(|| Arc::new(sink)))
    }

    /// Writes a line, or gives it up where too many wait.
    pub(super) fn write(&self, line: &Line) {
        let bytes = self.form.bytes(line);
        match self.queue.get() {
            // There is nobody to tell of an error.
            None => drop(self.put(&bytes)),
            Some(queue) => match queue.try_send(Message::Line(bytes)) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    LOST.fetch_add(1, Ordering::Relaxed);
                }
            },
        }
    }

    /// Waits until `bytes` are taken.
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

    /// The thread's body: until every sender is gone. Lines that wait are written together: a line a
    /// delivery, each written by itself, would cost a busy receiver a tenth of its time.
    fn take(&self, messages: &Receiver<Message>) {
        let (mut told, mut lines) = (0, Vec::new());
        while let Ok(first) = messages.recv() {
            for message in std::iter::once(first).chain(messages.try_iter().take(WAITING)) {
                match message {
                    Message::Line(line) => lines.extend(line),
                    Message::Flush(done) => {
                        self.put_all(&mut lines);
                        let _ = done.send(());
                    }
                }
                // The journal takes one line a datagram.
                if self.form == Form::Journal || lines.len() >= TOGETHER {
                    self.put_all(&mut lines);
                }
            }
            self.put_all(&mut lines);
            std::thread::sleep(PAUSE);
            let lost = LOST.load(Ordering::Relaxed);
            if lost > told {
                // Where this one is lost too, the metric has them.
                drop(self.put(&self.form.bytes(&lines_lost(lost - told))));
                told = lost;
            }
        }
    }

    fn put_all(&self, lines: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        if self.put(lines).is_err() {
            let count = match self.form {
                Form::Journal => 1,
                _ => lines.iter().filter(|byte| **byte == b'\n').count(),
            };
            LOST.fetch_add(count as u64, Ordering::Relaxed);
        }
        lines.clear();
    }

    #[cfg(test)]
    pub(super) fn kept(form: Form) -> (Arc<Self>, Arc<Mutex<Vec<u8>>>) {
        let kept = Arc::new(Mutex::default());
        let target = Mutex::new(Target::Kept(Arc::clone(&kept)));
        (Arc::new(Sink { form, target, queue: OnceLock::new() }), kept)
    }
}

fn journal() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(JOURNAL)?;
    Ok(socket)
}

fn lines_lost(count: u64) -> Line {
    let fields = Fields(vec![("count", Value::Plain(count.to_string()))]);
    let message = "log lines were dropped: the log stalled".to_owned();
    Line { level: Level::WARN, target: module_path!(), message, fields }
}

/// Lines given up so far because nobody took them.
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Lines are taken away by a thread; dropped, it waits a moment for those that are left.
#[derive(Debug)]
pub struct Background(Option<SyncSender<Message>>);

/// From now on a thread takes the lines away, and whoever logs does not wait for it. For the process that
/// answers providers; to be called when its user is settled, since there is a thread then.
pub fn in_background() -> Background {
    let Some(sink) = OPENED.get() else { return Background(None) };
    let (queue, messages) = sync_channel(WAITING);
    let taker = Arc::clone(sink);
    let thread = std::thread::Builder::new().name("log".to_owned());
    if thread.spawn(move || taker.take(&messages)).is_err() {
        // Without a thread lines are written by whoever logs, as before.
        return Background(None);
    }
    Background(sink.queue.set(queue.clone()).is_ok().then_some(queue))
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(queue) = &self.0 else { return };
        let (done, is_done) = sync_channel(1);
        // A full queue is one that nobody takes from.
        if queue.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH);
        }
    }
}
