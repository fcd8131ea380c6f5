//! Connections: TLS with channel binding, the settings, and errors that keep the password.

use std::net::TcpListener;
use std::path::PathBuf;

use hooklatch::clock::Clock;
use hooklatch::model::Timestamp;
use hooklatch::store::postgres::{
    AddressError, ConnectError, Connection, Flight, FlightOutcome, Refusal, Severity, Target,
    check, check_address, migrate,
};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::AsyncReadExt;

use super::needs;
use super::proxy::{Proxy, Side};
use super::server::{PASSWORD, ROLE, Server};
use super::site::{INSERT, Site, committed, said, target};

/// Gives the server a certificate for `localhost`, and returns it as a file. The role must then log in over TLS.
async fn use_tls(server: &Server, algorithm: &'static rcgen::SignatureAlgorithm) -> PathBuf {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    server.write("server.key", &key.serialize_pem());
    server.write(
        "data/pg_hba.conf",
        &format!("local all all trust\nhostssl all {ROLE} all scram-sha-256\n"),
    );
    let path = server.write("server.crt", &certificate);
    for (name, file) in [("ssl_cert_file", "server.crt"), ("ssl_key_file", "server.key")] {
        server.set(name, server.folder().join(file).to_str().unwrap()).await;
    }
    server.set("ssl", "on").await;
    path
}

fn address(server: &Server, host: &str, more: &str) -> String {
    format!("postgresql://{ROLE}@{host}:{}/app?hostaddr=127.0.0.1&{more}", server.port)
}

/// TLS without a request for it before.
const DIRECT: &str = "sslmode=require&sslnegotiation=direct";

/// Connects with a password.
async fn open(
    address: &str,
    password: &str,
    authorities: Option<&PathBuf>,
) -> Result<Connection, ConnectError> {
    let authorities = authorities.map(PathBuf::as_path);
    let target = Target::new(address, Some(password), authorities, false)?;
    Connection::open(&target).await
}

#[tokio::test]
async fn tls_checks_the_server_and_binds_the_login_to_the_channel() {
    let server = Server::start(&[]).await;
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let authority = use_tls(&server, algorithm).await;
        let required = "sslmode=require&channel_binding=require";
        let own = address(&server, "localhost", required);
        let connection = open(&own, PASSWORD, Some(&authority)).await.unwrap();
        // As services write it, and what is done in any case.
        let full =
            address(&server, "localhost", "sslmode=verify-full&target_session_attrs=primary");
        open(&full, PASSWORD, Some(&authority)).await.unwrap();
        // A TLS connection of the ordinary role, by the server's own account.
        let query = format!(
            "SELECT 1 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = '{ROLE}'"
        );
        server.wait_for(&query).await;
        drop(connection);

        let other = address(&server, "example.com", required);
        let unbound = address(&server, "localhost", "sslmode=disable&channel_binding=require");
        let wrong = "wrong-and-not-to-be-shown";
        let refused = [
            // The machine's authorities did not sign the certificate.
            (&own, PASSWORD, None, "UnknownIssuer; set storage.ca"),
            // The certificate is of another host.
            (&other, PASSWORD, Some(&authority), "name the host in storage.url as the certificate"),
            (&own, wrong, Some(&authority), "(28P01); set storage.password"),
            // No TLS, no binding.
            (&unbound, PASSWORD, Some(&authority), "(28000); add this to the server's pg_hba.conf"),
        ];
        for (address, password, authorities, expected) in refused {
            let error = open(address, password, authorities).await.err().expect("refused");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("not-to-be-shown"), "{error:?}");
        }
    }
}

/// A server refuses direct TLS from a client that does not name the protocol.
#[tokio::test]
async fn direct_tls_sends_no_request_and_names_the_protocol() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let direct = format!("postgresql://{ROLE}@localhost:{port}/app?hostaddr=127.0.0.1&{DIRECT}");
    let hello = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut header = [0; 5];
        stream.read_exact(&mut header).await.unwrap();
        // A record of a handshake (RFC 8446, section 5.1).
        assert_eq!(header[0], 22, "{header:?}");
        let mut hello = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        stream.read_exact(&mut hello).await.unwrap();
        hello
    };
    let (opened, hello) = tokio::join!(open(&direct, PASSWORD, None), hello);
    assert!(opened.is_err());
    // With its length in front (RFC 7301, section 3.1).
    assert!(hello.windows(11).any(|bytes| bytes == b"\x0apostgresql"), "{hello:?}");
}

#[tokio::test]
async fn direct_tls_works_on_a_server_of_version_17_or_newer() {
    let server = Server::start(&[]).await;
    let query = "SELECT current_setting('server_version_num')::int >= 170000";
    let row = server.admin().await.query_one(query, &[]).await.unwrap();
    if !row.get::<_, bool>(0) {
        return needs::missing("PostgreSQL 17 or newer", "packaging/test-postgres-versions");
    }
    let authority = use_tls(&server, &rcgen::PKCS_ECDSA_P256_SHA256).await;
    let direct = address(&server, "localhost", &format!("{DIRECT}&channel_binding=require"));
    open(&direct, PASSWORD, Some(&authority)).await.unwrap();
}

/// A server that speaks no TLS is not answered in clear text where it is not on this machine.
#[tokio::test]
async fn a_remote_server_without_tls_is_refused() {
    let server = Server::start(&[]).await;
    let remote = address(&server, "db.example.com", "application_name=x");
    let error = open(&remote, PASSWORD, None).await.err().expect("refused").to_string();
    assert!(error.contains("does not support TLS; give the server a certificate"), "{error}");
    let local = address(&server, "localhost", "application_name=x");
    open(&local, PASSWORD, None).await.unwrap();
}

#[tokio::test]
async fn each_way_not_to_reach_a_database_says_what_to_do() {
    let server = Server::start(&[]).await;
    let hba = format!(
        "local all all trust\nhost all {ROLE} all scram-sha-256\nhost all nobody all trust\n"
    );
    server.write("data/pg_hba.conf", &hba);
    server.reload().await;
    let admin = server.admin().await;
    for sql in ["CREATE DATABASE closed", "REVOKE CONNECT ON DATABASE closed FROM PUBLIC"] {
        admin.batch_execute(sql).await.unwrap();
    }
    let at = |port: u16, rest: &str| format!("postgresql://{ROLE}@127.0.0.1:{port}/{rest}");
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let unreached = unused.local_addr().unwrap().port();
    drop(unused);
    for (address, password, expected) in [
        (at(server.port, "app"), Some("wrong"), "(28P01); set storage.password"),
        (at(server.port, "app"), None, "password missing; the server asks for a password"),
        (at(server.port, "none"), Some(PASSWORD), "(3D000); create the database"),
        (at(server.port, "closed"), Some(PASSWORD), "(42501); let the role connect"),
        (at(server.port, "app").replace(ROLE, "nobody"), None, "(28000); add this to the server's"),
        (
            at(unreached, "app"),
            Some(PASSWORD),
            "refused (os error 111); see whether the server runs",
        ),
        ("postgresql://app@none.invalid/app".to_owned(), None, "; correct the host in storage.url"),
    ] {
        let target = Target::new(&address, password, None, false).unwrap();
        let error = Connection::open(&target).await.err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_address_with_a_password_or_a_gap_is_refused_and_not_shown() {
    for (address, expected) in [
        ("postgresql://app:not-to-be@shown@localhost:x/app", AddressError::Unreadable),
        ("postgresql://app:not-to-be-shown@localhost/app", AddressError::Password),
        ("postgresql://app@localhost/app?password=not-to-be-shown", AddressError::Password),
        ("host=localhost user=app dbname=app password=not-to-be-shown", AddressError::Unreadable),
        ("mysql://app@localhost/app", AddressError::Unreadable),
        ("postgresql://app@/app", AddressError::Incomplete("host")),
        ("postgresql://localhost/app", AddressError::Incomplete("user")),
        ("postgresql://app@localhost", AddressError::Incomplete("database")),
        (
            "postgresql://app@localhost/app?sslmode=verify-full&sslrootcert=not-to-be-shown",
            AddressError::Unused("sslrootcert", "remove it, and name the file in storage.ca"),
        ),
        (
            "postgresql://app@localhost/app?sslmode=allow",
            AddressError::Unused("sslmode=allow", "write sslmode=disable, or require"),
        ),
    ] {
        let error = check_address(address).unwrap_err();
        assert_eq!(error, expected, "{address}");
        let error = Target::new(address, None, None, false).err().unwrap();
        assert!(!format!("{error} {error:?}").contains("shown@"), "{error}");
        assert!(!format!("{error} {error:?}").contains("not-to-be"), "{error}");
    }
    // Whether other machines can read what goes over it.
    for (address, is_open) in [
        ("postgresql://app@db.example.org/app", false),
        ("postgresql://app@db.example.org/app?sslmode=disable", true),
        ("postgresql://app@localhost,db.example.org/app?sslmode=disable", true),
        ("postgresql://app@localhost/app?hostaddr=10.1.2.3&sslmode=disable", true),
        ("postgresql://app@127.0.0.1,[::1]/app?sslmode=disable", false),
        ("postgresql://app@%2Frun%2Fpostgresql/app?sslmode=disable", false),
    ] {
        assert_eq!(check_address(address), Ok(is_open), "{address}");
    }
}

/// The role and the database ask for the contrary of each setting.
#[tokio::test]
async fn the_settings_of_a_connection_stand_over_those_of_the_role() {
    let site = Site::new(&[]).await;
    let admin = site.server.admin().await;
    for setting in [
        "synchronous_commit = off",
        "client_min_messages = error",
        "default_transaction_isolation = serializable",
        "search_path = nowhere",
        "lock_timeout = 1",
        "statement_timeout = 1000",
        "idle_in_transaction_session_timeout = 0",
    ] {
        admin.batch_execute(&format!("ALTER ROLE {ROLE} SET {setting}")).await.unwrap();
    }
    let table = "CREATE TABLE hooklatch.seen (name text, value text)";
    site.server.client(ROLE, "app").await.batch_execute(table).await.unwrap();
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    flight
        .send("INSERT INTO seen SELECT name, current_setting(name) FROM pg_settings", Vec::new())
        .await;
    flight.send(INSERT, vec![Box::new(1_i64)]).await;
    committed(flight.commit().await);
    let client = site.server.client("postgres", "app").await;
    for (name, expected) in [
        ("synchronous_commit", "on"),
        ("client_min_messages", "warning"),
        ("transaction_isolation", "read committed"),
        ("search_path", "hooklatch, pg_temp"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "0"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("default_transaction_read_only", "on"),
        ("transaction_read_only", "off"),
        ("tcp_keepalives_idle", "10"),
    ] {
        let query = "SELECT value FROM hooklatch.seen WHERE name = $1";
        let value: String = client.query_one(query, &[&name]).await.unwrap().get(0);
        assert_eq!(value, expected, "{name}");
    }

    admin
        .batch_execute(&format!("ALTER ROLE {ROLE} SET synchronous_commit = remote_apply"))
        .await
        .unwrap();
    let mut flight = Flight::begin(site.direct(false).await, &site.session).await;
    let show = flight.send("SELECT current_setting('synchronous_commit')", Vec::new()).await;
    let rows = flight.rows(show).await.unwrap();
    assert_eq!(rows[0].get::<_, &str>(0), "remote_apply");
}

#[tokio::test]
async fn a_standby_is_no_server_to_write_to() {
    let server = Server::start(&[]).await;
    let standby = server.standby("s1");
    let error = Connection::open(&target(standby.port, false)).await.err().expect("refused");
    assert!(error.to_string().contains("the server is a standby; name the primary"), "{error}");
    standby.promote().await;
    Connection::open(&target(standby.port, false)).await.unwrap();
}

/// A pooler is looked for by further connections, where the login named another process than the backend's.
#[tokio::test]
async fn a_connection_without_a_pooler_makes_one_round_trip_and_opens_no_other() {
    let site = Site::new(&[]).await;
    let proxy = Proxy::start(&site.server).await;
    drop(site.connect(proxy.port, false).await);
    let messages = proxy.passed(Side::Client);
    let queries = messages.iter().filter(|name| name.starts_with("Query"));
    assert_eq!(queries.count(), 1, "{messages:?}");

    // Over TLS the proxy sees nothing.
    let authority = use_tls(&site.server, &rcgen::PKCS_ECDSA_P256_SHA256).await;
    let one = format!("ALTER ROLE {ROLE} CONNECTION LIMIT 1");
    site.server.admin().await.batch_execute(&one).await.unwrap();
    let none = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'app')";
    for more in ["sslmode=require", "sslmode=prefer"] {
        site.server.wait_for(none).await;
        let address = address(&site.server, "localhost", more);
        open(&address, PASSWORD, Some(&authority)).await.unwrap();
    }
}

/// A pooler outside session mode may run a flight on another connection than that with the settings.
#[tokio::test]
async fn a_flight_fails_where_the_settings_of_its_connection_are_lost() {
    let site = Site::new(&[]).await;
    let client = site.server.client(ROLE, "app").await;
    let fence = "SELECT hooklatch.fence($1, $2)";
    client.batch_execute("SET search_path = hooklatch").await.unwrap();
    for lost in ["client_min_messages = error", "synchronous_commit = local"] {
        let kept = "SET client_min_messages = warning; SET synchronous_commit = on";
        client.batch_execute(kept).await.unwrap();
        client.query(fence, &[&site.session.node, &site.session.id]).await.unwrap();
        client.batch_execute(&format!("SET {lost}")).await.unwrap();
        let error =
            client.query(fence, &[&site.session.node, &site.session.id]).await.err().unwrap();
        assert_eq!(error.code().unwrap().code(), "HL002", "{lost}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_server_is_found() {
    let found = |server: &Server, standby| {
        let (port, clock) = (server.port, Clock::system());
        async move {
            let connection = Connection::open(&target(port, standby)).await.unwrap();
            let found = check(&connection, &clock).await.unwrap();
            found.into_iter().map(|finding| (finding.severity, finding.text)).collect::<Vec<_>>()
        }
    };
    let has = |found: &[(Severity, String)], severity, word| {
        found.iter().any(|(own, text)| *own == severity && text.contains(word))
    };
    let site = Site::new(&[]).await;
    let usual = found(&site.server, false).await;
    let lacks_checksums = !site.server.has_checksums().await;
    assert_eq!(usual.len(), usize::from(lacks_checksums), "{usual:?}");
    assert_eq!(has(&usual, Severity::Warned, "checksums"), lacks_checksums, "{usual:?}");
    assert!(has(&found(&site.server, true).await, Severity::Unready, "synchronous_standby_names"));

    site.server.set("fsync", "off").await;
    site.server.set("full_page_writes", "off").await;
    let client = site.server.client(ROLE, "app").await;
    client.batch_execute("CREATE UNLOGGED TABLE hooklatch.loose (key bigint)").await.unwrap();
    let bad = found(&site.server, false).await;
    assert!(has(&bad, Severity::Refused, "fsync"), "{bad:?}");
    assert!(has(&bad, Severity::Refused, "unlogged"), "{bad:?}");
    assert!(has(&bad, Severity::Warned, "full_page_writes"), "{bad:?}");

    let connection = site.direct(false).await;
    let late = check(&connection, &Clock::manual(Timestamp(0))).await.unwrap();
    assert!(late.iter().any(|finding| finding.text.contains("clocks")), "{late:?}");
}

#[tokio::test]
async fn a_primary_that_only_reads_by_its_settings_is_not_called_a_standby() {
    let server = Server::start(&[]).await;
    let admin = server.admin().await;
    admin.batch_execute("ALTER ROLE app SET default_transaction_read_only = on").await.unwrap();
    let error = Connection::open(&target(server.port, false)).await.err().expect("refused");
    assert!(matches!(error, ConnectError::ReadOnly), "{error}");
}

/// The role may make no schema, as where an administrator makes it.
#[tokio::test]
async fn the_tables_are_made_in_a_schema_that_an_administrator_has_made() {
    let server = Server::start(&[]).await;
    server.admin().await.batch_execute("ALTER DATABASE app OWNER TO postgres").await.unwrap();
    let target = target(server.port, false);
    let refused = migrate(Connection::open(&target).await.unwrap(), None).await;
    let is_refused = matches!(&refused, FlightOutcome::NotCommitted(Refusal::Failed { code, .. }, _) if code == "42501");
    assert!(is_refused, "{}", said(&refused));
    let admin = server.client("postgres", "app").await;
    admin.batch_execute(&format!("CREATE SCHEMA hooklatch AUTHORIZATION {ROLE}")).await.unwrap();
    committed(migrate(Connection::open(&target).await.unwrap(), None).await);
}

#[tokio::test]
async fn a_database_of_a_development_build_is_refused() {
    let server = Server::start(&[]).await;
    let target = target(server.port, false);
    committed(migrate(Connection::open(&target).await.unwrap(), None).await);
    let admin = server.client("postgres", "app").await;
    admin.batch_execute("ALTER TABLE hooklatch.payload DROP COLUMN sum").await.unwrap();
    let refused = said(&migrate(Connection::open(&target).await.unwrap(), None).await);
    assert!(refused.contains("the database was made by a development build"), "{refused}");
}
