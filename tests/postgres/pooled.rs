//! A pooler in front of the server: Debian's PgBouncer, in each of its modes.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use hooklatch::clock::Clock;
use hooklatch::model::{OnUnknown, Outcome};
use hooklatch::retry::Next;
use hooklatch::store::postgres::{ConnectError, Connection};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::cluster::Cluster;
use super::dispatching::{completion, process_at};
use super::needs;
use super::node_site::NodeSite;
use super::server::{PATIENCE, ROLE, Server, free_port, user};
use super::site::{node, target};
use super::working::{add_jobs, policy, runner};

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// The connections of two poolers: the server may close the first one's connections later.
const CONNECTIONS: &str = "max_connections=100";

/// What is set on a server connection. The answer waits while the table is locked.
const STATE: &str = "
    SELECT pg_backend_pid(), json_build_array(
        (SELECT json_agg(name) FROM pg_settings WHERE source = 'session'), current_setting('application_name'),
        (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),
        (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
        (SELECT count(*) FROM pg_class WHERE relpersistence = 't'))
    FROM public.gate";

/// The state of a connection that no client has used yet.
const UNUSED: &str = r#"[null, "", 0, 0, 0, 0]"#;

/// PgBouncer on a loopback port.
struct Pooler {
    port: u16,
    process: Child,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl Pooler {
    /// `None` where it is not installed, which is noted as a need of this test. `more` are further lines of its file.
    fn start(server: &Server, mode: &str, size: usize, more: &str) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            needs::missing("PgBouncer", "apt install pgbouncer");
            return None;
        }
        let (port, folder) = (free_port(), server.folder().display());
        let users = server.write("users", &format!("\"{ROLE}\" \"\"\n"));
        let file = format!(
            "[databases]\napp = host={folder} port={} dbname=app\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = {mode}\ndefault_pool_size = {size}\n{more}\n",
            server.port,
            users.display()
        );
        let file = server.write(&format!("pooler-{port}"), &file);
        // As with the server: the shell ends it when its input ends.
        let mut shell = Command::new("/bin/sh");
        if let Some((uid, gid)) = user() {
            shell.uid(uid).gid(gid);
        }
        let script = r#""$@" </dev/null & read -r _; kill -KILL $!; wait $!"#;
        shell.args(["-c", script, "sh", PROGRAM]).arg(file);
        shell.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = shell.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let pooler = Pooler { port, process };
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        while !log.recv_timeout(PATIENCE).expect("it does not start").contains("process up") {}
        Some(pooler)
    }

    /// A client of another program.
    async fn client(&self) -> Client {
        let address = format!("host=127.0.0.1 port={} user={ROLE} dbname=app", self.port);
        let (client, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// So many clients, which keep it busy until they are dropped.
    async fn load(&self, clients: usize) -> JoinSet<()> {
        let mut load = JoinSet::new();
        for _ in 0..clients {
            let client = self.client().await;
            let query = "SELECT count(*) FROM generate_series(1, 1000)";
            load.spawn(async move { while client.simple_query(query).await.is_ok() {} });
        }
        load
    }

    /// What is set on its connections to the server, of which it may have so many. All are in use at once.
    async fn states(&self, server: &Server, size: usize) -> BTreeSet<String> {
        let gate = server.client(ROLE, "app").await;
        gate.batch_execute("CREATE TABLE IF NOT EXISTS public.gate AS SELECT 1").await.unwrap();
        gate.batch_execute("BEGIN; LOCK TABLE public.gate").await.unwrap();
        let mut looks = JoinSet::new();
        for _ in 0..size {
            let client = self.client().await;
            looks.spawn(async move { client.simple_query(STATE).await.unwrap() });
        }
        let waiting =
            "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'relation' HAVING count(*) = ";
        server.wait_for(&format!("{waiting}{size}")).await;
        gate.batch_execute("COMMIT").await.unwrap();
        let (mut backends, mut states) = (BTreeSet::new(), BTreeSet::new());
        for message in looks.join_all().await.into_iter().flatten() {
            if let SimpleQueryMessage::Row(row) = message {
                backends.insert(row.get(0).unwrap().to_owned());
                states.insert(row.get(1).unwrap().to_owned());
            }
        }
        assert_eq!(backends.len(), size);
        states
    }
}

fn unused() -> BTreeSet<String> {
    BTreeSet::from([UNUSED.to_owned()])
}

#[tokio::test]
async fn a_pooler_outside_session_mode_is_refused_and_nothing_is_left_on_its_connections() {
    let server = Server::start(&[CONNECTIONS]).await;
    for mode in ["transaction", "statement"] {
        for (size, more) in [(1, ""), (20, ""), (20, "server_round_robin = 1")] {
            for clients in [0, 4] {
                let Some(pooler) = Pooler::start(&server, mode, size, more) else { return };
                // At first the pool is empty, and the second time full.
                for _ in 0..2 {
                    let load = pooler.load(clients).await;
                    let refused = Connection::open(&target(pooler.port, false)).await;
                    let error = refused.err().expect("refused");
                    let what = format!("{mode} {size} {more} {clients}: {error}");
                    assert!(matches!(error, ConnectError::Pooled), "{what}");
                    drop(load);
                    assert_eq!(pooler.states(&server, size).await, unused(), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn doctor_and_a_receiver_name_the_pooler_and_leave_nothing_on_its_connections() {
    let cluster = Cluster::new(&[CONNECTIONS]).await;
    let Some(pooler) = Pooler::start(&cluster.server, "transaction", 20, "") else { return };
    let mut node = NodeSite::new(&cluster, "a", "");
    node.port = pooler.port;
    node.configure("");
    let named = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        let parts =
            ["PgBouncer or another pooler is in front of the server", "set pool_mode = session"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    named(node.output(&["doctor", "--json"]).await.stdout);
    let served = node.output(&["serve"]).await;
    assert_eq!(served.status.code(), Some(69));
    named(served.stderr);
    named(node.output(&["events"]).await.stderr);
    assert_eq!(pooler.states(&cluster.server, 20).await, unused());
}

#[tokio::test]
async fn a_pooler_in_session_mode_serves_accepts_claims_ends_and_wakeups() {
    let cluster = Cluster::new(&[CONNECTIONS]).await;
    let Some(pooler) = Pooler::start(&cluster.server, "session", 20, "") else { return };
    let (own, hold) = (node("a"), policy(OnUnknown::Hold));
    // The process before hears wake-ups of the next one, and no other node's look wakes it.
    let (_first, listener) = process_at(pooler.port, &own, &hold, Clock::system()).await;
    let (writer, jobs) = process_at(pooler.port, &own, &hold, Clock::system()).await;
    let (handler, wake) = ("h".parse().unwrap(), listener.wake());
    for number in 0..8 {
        add_jobs(&writer, number, 1).await;
        let woken = timeout(PATIENCE, wake.notified()).await;
        assert!(woken.is_ok(), "accept {number} sent no wake-up");
        let claims = jobs.claim(&handler, 1, Some(runner())).await.unwrap();
        let end = completion(claims.jobs[0].facts.job, 1, Outcome::Succeeded, Next::Succeeded);
        assert_eq!(jobs.complete(end).await, Ok(true));
    }
    assert_eq!(cluster.count("job WHERE state = 'succeeded'").await, 8);
}

/// Its only connection is in use, so a second client waits for it.
#[tokio::test]
async fn a_pooler_in_session_mode_may_have_no_connection_to_spare() {
    let server = Server::start(&[]).await;
    let Some(pooler) = Pooler::start(&server, "session", 1, "") else { return };
    let connection = Connection::open(&target(pooler.port, false)).await.unwrap();
    drop(connection);
    // PgBouncer takes back what was set.
    assert_eq!(pooler.states(&server, 1).await, unused());
}
