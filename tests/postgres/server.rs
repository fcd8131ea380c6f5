//! A PostgreSQL server of the test's own: its data in a temporary folder, a Unix socket and a loopback port. Its
//! flushes are real calls.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio_postgres::{Client, NoTls, Row};

use super::needs;

/// The longest wait for an event: far longer than a slow machine takes, so that only a fault reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The ordinary role that the product connects as, and its password.
pub(crate) const ROLE: &str = "app";
pub(crate) const PASSWORD: &str = "not-to-be-shown";

/// A program of the server: in the folder that `HOOKLATCH_POSTGRES` names, else of the newest version of Debian's.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("HOOKLATCH_POSTGRES") {
        let program = fs::canonicalize(folder).ok()?.join(name);
        return program.exists().then_some(program);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.map(|version| version.unwrap().path().join("bin").join(name));
    programs.filter(|path| path.exists()).max()
}

/// Whether a server can run here. If not, it is noted as a need of this test.
#[allow(dead_code, reason = "the program `postgres` has `skip_all`")]
pub(crate) fn is_installed() -> bool {
    let is_installed = installed("postgres").is_some();
    if !is_installed {
        needs::missing(NEED.0, NEED.1);
    }
    is_installed
}

/// The need of each test that starts a server, and how to get it.
const NEED: (&str, &str) = ("PostgreSQL", "apt install postgresql");

fn program(name: &str) -> PathBuf {
    installed(name).unwrap_or_else(|| skip_all())
}

/// Ends the test program `postgres`, of which each test needs a server. The other programs call [`is_installed`] first.
fn skip_all() -> ! {
    needs::missing_for_all(NEED.0, NEED.1);
    std::process::exit(0);
}

/// The user that the server runs as, which must not be root: `postgres`, or `nobody` where there is none.
pub(crate) fn user() -> Option<(u32, u32)> {
    let named = |name| nix::unistd::User::from_name(name).ok().flatten();
    rustix::process::geteuid().is_root().then(|| {
        let user = named("postgres").or_else(|| named("nobody")).expect("a user who is not root");
        (user.uid.as_raw(), user.gid.as_raw())
    })
}

fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    if let Some((uid, gid)) = user() {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// The server's version, as `15.18`.
fn version() -> String {
    let output = command("postgres").arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // Debian's own version follows in brackets.
    said.split_whitespace().nth(2).unwrap().to_owned()
}

/// The data of a new server, made once for each version and kept with the build.
fn template() -> &'static Path {
    // A panic in the initializer would poison it, and later tests would not name the need.
    program("postgres");
    static TEMPLATE: LazyLock<PathBuf> = LazyLock::new(|| {
        let version = version();
        // Cargo names its folder to test programs of their own only, and not to that of the library.
        let program = std::env::current_exe().unwrap();
        let folder = program.ancestors().nth(3).unwrap().join("tmp");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("postgres-{version}"));
        if !path.exists() {
            Server::make_template(&path);
        }
        path
    });
    &TEMPLATE
}

/// One that nobody listens on, below the range from which the kernel takes ports for connections: a server that is not
/// started yet, or is started again, must find its port free.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 120).unwrap() * 100;
    let ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let mut ports = ports.map(|nth| 20_000 + first.wrapping_add(nth) % 12_000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Opens a handle of a process; `None` if it has ended.
fn handle(pid: &str) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.parse().unwrap())?, PidfdFlags::empty()).ok()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

pub(crate) struct Server {
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    /// `-c` options of every start.
    options: Vec<String>,
    process: Option<Child>,
}

impl Server {
    /// A running server with the role [`ROLE`], which owns the database `app`.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let mut server = Self::empty(options);
        server.fill();
        server.launch();
        server
    }

    /// A running server as of [`Server::start`], on another disk, which has all of it before it runs.
    pub(crate) fn start_on(disk: &Path, options: &[&str]) -> Self {
        let mut server = Self::empty_in(tempfile::tempdir_in(disk).unwrap(), options);
        server.fill();
        run(Command::new("sync").arg("--file-system").arg(disk));
        server.launch();
        server
    }

    /// A copy takes a tenth of the time that initdb does.
    fn fill(&self) {
        run(Command::new("cp").arg("-a").arg(template()).arg(self.data()));
    }

    /// A running server as of [`Server::start`], with a new system identifier: copies of the template share one.
    pub(crate) fn made() -> Self {
        let mut server = Self::empty(&[]);
        run(command("initdb")
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"])
            .args(["--no-locale", "--pgdata"])
            .arg(server.data()));
        server.launch();
        for sql in [
            format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"),
            format!("CREATE DATABASE app OWNER {ROLE}"),
        ] {
            run(command("psql")
                .args(["--username=postgres", "--port", &server.port.to_string(), "--host"])
                .arg(server.folder())
                .args(["--command", &sql]));
        }
        server
    }

    /// Makes the data of a new server at `path`, which appears when it is complete.
    fn make_template(path: &Path) {
        let mut server = Self::made();
        server.signal(Signal::INT);
        let made = path.with_extension(std::process::id().to_string());
        run(Command::new("cp").arg("-a").arg(server.data()).arg(&made));
        // Another test program may have been faster.
        if fs::rename(&made, path).is_err() {
            fs::remove_dir_all(&made).unwrap();
        }
    }

    /// A server without data, at a free port.
    pub(crate) fn empty(options: &[&str]) -> Self {
        // In memory where that is possible: a busy disk makes each flush a second long.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self::empty_in(folder, options)
    }

    fn empty_in(folder: tempfile::TempDir, options: &[&str]) -> Self {
        if let Some((uid, gid)) = user() {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let port = free_port();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Server { folder, port, options, process: None }
    }

    /// The folder of the Unix socket and of files for the server.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the server's user.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = user() {
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
        path
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the postmaster and waits until it takes connections. A shell stands between: it ends the server when
    /// its input ends, so no server outlives the test program, however that ends. Where no line came, nothing else
    /// deletes the folder.
    pub(crate) fn launch(&mut self) {
        let mut shell = Command::new("/bin/sh");
        if let Some((uid, gid)) = user() {
            shell.uid(uid).gid(gid);
        }
        let script = r#"folder=$1 server=$2; shift 2; "$server" "$@" </dev/null &
            read -r _ && is_kept=yes; kill -QUIT $!; wait $!; [ "$is_kept" ] || rm -rf "$folder""#;
        shell.args(["-c", script, "sh"]).arg(self.folder()).arg(program("postgres"));
        shell.arg("-D").arg(self.data()).arg("-k").arg(self.folder());
        shell.args(["-p", &self.port.to_string(), "-h", "127.0.0.1"]);
        // Small: several servers run at once.
        shell.args(["-c", "shared_buffers=16MB", "-c", "max_connections=30"]);
        shell.args(["-c", "max_wal_senders=4", "-c", "wal_keep_size=64MB"]);
        for option in &self.options {
            shell.args(["-c", option]);
        }
        shell.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = shell.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        self.process = Some(process);
        let mut said = String::new();
        let until = Instant::now() + PATIENCE;
        loop {
            let line = log.recv_timeout(until - Instant::now());
            let line = line.unwrap_or_else(|_| panic!("the server does not start:\n{said}"));
            said.push_str(&line);
            said.push('\n');
            if line.contains("ready to accept") {
                break;
            }
        }
    }

    /// The postmaster's process id.
    fn pid(&self) -> String {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        file.lines().next().unwrap().to_owned()
    }

    /// Ends the server at once, as a crash does: nothing is written down.
    pub(crate) fn crash(&mut self) {
        self.signal(Signal::QUIT);
    }

    /// Sends a signal to the postmaster, and waits for its end.
    fn signal(&mut self, signal: Signal) {
        let postmaster = handle(&self.pid()).unwrap();
        pidfd_send_signal(&postmaster, signal).unwrap();
        poll(&mut [PollFd::new(&postmaster, PollFlags::IN)], None).unwrap();
        self.stop();
    }

    /// Ends all processes of the server around the moment in which `cut` takes its disk. Before it they are stopped,
    /// so that nothing is answered after it: a flush that it meets may report success.
    pub(crate) fn lose_power(&mut self, cut: impl FnOnce()) {
        let pid = self.pid();
        let mut processes = vec![handle(&pid).unwrap()];
        pidfd_send_signal(&processes[0], Signal::STOP).unwrap();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        for child in children.split_whitespace().filter_map(handle) {
            pidfd_send_signal(&child, Signal::STOP).unwrap();
            processes.push(child);
        }
        cut();
        // The postmaster is last, because it must not reap the others before their signals.
        for process in processes.iter().rev() {
            pidfd_send_signal(process, Signal::KILL).unwrap();
        }
        for process in &processes {
            poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
        }
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // The shell may have ended by itself.
            let _ = process.stdin.take().unwrap().write_all(b"\n");
            process.wait().unwrap();
        }
    }

    /// A client of the superuser.
    pub(crate) async fn admin(&self) -> Client {
        self.client("postgres", "postgres").await
    }

    /// A client of the driver, with none of the product's settings.
    pub(crate) async fn client(&self, user: &str, database: &str) -> Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.folder()).port(self.port).user(user).dbname(database);
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Whether the data has checksums, which initdb makes by itself from version 18 on.
    pub(crate) async fn has_checksums(&self) -> bool {
        let query = "SELECT current_setting('data_checksums') = 'on'";
        self.admin().await.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Makes the server read its files again, and waits until it has.
    pub(crate) async fn reload(&self) {
        let admin = self.admin().await;
        let before = admin.query_one("SELECT pg_conf_load_time()::text", &[]).await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let before: String = before.get(0);
        self.wait_for(&format!("SELECT 1 WHERE pg_conf_load_time()::text <> '{before}'")).await;
    }

    /// Sets a setting of the whole server, and waits until it is in force for new transactions.
    pub(crate) async fn set(&self, name: &str, value: &str) {
        let admin = self.admin().await;
        admin.batch_execute(&format!("ALTER SYSTEM SET {name} = '{value}'")).await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        self.wait_for(&format!("SELECT 1 WHERE current_setting('{name}') = '{value}'")).await;
        // The checkpointer tells the backends whether to wait for a standby. It reads the settings before it
        // begins a checkpoint.
        admin.batch_execute("CHECKPOINT").await.unwrap();
        // The sender of each standby releases who waits for it, by the settings that it has read itself. It shows the
        // place of its standby among them.
        self.wait_for(
            "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_stat_replication WHERE \
             (sync_priority > 0) <> (application_name = current_setting('synchronous_standby_names')))",
        )
        .await;
    }

    /// Waits until a query of the superuser returns a row, and returns it. The server has no event for most of what
    /// it shows in its views.
    pub(crate) async fn wait_for(&self, query: &str) -> Row {
        let admin = self.admin().await;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(row) = admin.query_opt(query, &[]).await.unwrap() {
                return row;
            }
            assert!(Instant::now() < until, "in vain: {query}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The process id of the backend that waits for a standby.
    pub(crate) async fn waiting(&self) -> i32 {
        let query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        self.wait_for(query).await.get(0)
    }

    /// A standby that streams from this server under `name`.
    pub(crate) fn standby(&self, name: &str) -> Server {
        self.standby_in(Self::empty(&[]), name)
    }

    /// Makes of a server without data a standby that streams from this server under `name`.
    pub(crate) fn standby_in(&self, mut standby: Server, name: &str) -> Server {
        run(command("pg_basebackup")
            .args(["--username=postgres", "--write-recovery-conf", "--no-sync"])
            .args(["--checkpoint=fast", "--port", &self.port.to_string(), "--host"])
            .arg(self.folder())
            .arg("--pgdata")
            .arg(standby.data()));
        standby.options.push("fsync=on".to_owned());
        standby.options.push(format!(
            "primary_conninfo=host={} port={} user=postgres application_name={name}",
            self.folder().display(),
            self.port
        ));
        standby.launch();
        standby
    }

    /// A copy of the running server's data, which starts as after a crash.
    pub(crate) fn snapshot(&self) -> PathBuf {
        let copy = self.folder().join("snapshot");
        run(command("pg_basebackup")
            .args(["--username=postgres", "--no-sync", "--checkpoint=fast", "--wal-method=stream"])
            .args(["--port", &self.port.to_string(), "--host"])
            .arg(self.folder())
            .arg("--pgdata")
            .arg(&copy));
        copy
    }

    /// Ends the server, and starts it with this data.
    pub(crate) fn put_back(&mut self, copy: &Path) {
        self.signal(Signal::INT);
        fs::remove_dir_all(self.data()).unwrap();
        fs::rename(copy, self.data()).unwrap();
        self.launch();
    }

    /// Restores this data to the point in time of the copy: the server begins a new timeline there.
    pub(crate) fn put_back_to_a_point(&mut self, copy: &Path) {
        let settings = "restore_command = 'false'\nrecovery_target = 'immediate'\n\
            recovery_target_action = 'promote'\n";
        let mut file =
            OpenOptions::new().append(true).open(copy.join("postgresql.auto.conf")).unwrap();
        file.write_all(settings.as_bytes()).unwrap();
        fs::write(copy.join("recovery.signal"), "").unwrap();
        self.put_back(copy);
    }

    /// Loads a dump of the database `app` into another server.
    pub(crate) fn copy_to(&self, other: &Server) {
        let file = self.folder().join("dump.sql");
        for (name, server) in [("pg_dump", self), ("psql", other)] {
            run(command(name)
                .args(["--username=postgres", "--dbname=app", "--port", &server.port.to_string()])
                .arg("--host")
                .arg(server.folder())
                .arg("--file")
                .arg(&file));
        }
    }

    /// Makes a standby take writes.
    pub(crate) async fn promote(&self) {
        let row = self.admin().await.query_one("SELECT pg_promote()", &[]).await.unwrap();
        assert!(row.get::<_, bool>(0), "not promoted");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
