//! Connections: TLS with channel binding, the settings, and errors that keep the password.

use std::path::PathBuf;

use hooklatch::clock::Clock;
use hooklatch::model::Timestamp;
use hooklatch::store::postgres::{ConnectError, Connection, Flight, Severity, Target, check};
use rcgen::{CertificateParams, KeyPair};

use super::server::{PASSWORD, ROLE, Server};
use super::site::{INSERT, Site, committed, target};

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

fn address(server: &Server, host: &str, password: &str, more: &str) -> String {
    format!("postgresql://{ROLE}:{password}@{host}:{}/app?hostaddr=127.0.0.1&{more}", server.port)
}

async fn open(address: &str, authorities: Option<&PathBuf>) -> Result<Connection, ConnectError> {
    let target = Target::new(address, authorities.map(PathBuf::as_path), false)?;
    Connection::open(&target).await
}

#[tokio::test]
async fn tls_checks_the_server_and_binds_the_login_to_the_channel() {
    let server = Server::start(&[]).await;
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let authority = use_tls(&server, algorithm).await;
        let required = "sslmode=require&channel_binding=require";
        let connection = open(&address(&server, "localhost", PASSWORD, required), Some(&authority))
            .await
            .unwrap();
        // A TLS connection of the ordinary role, by the server's own account.
        let query = format!(
            "SELECT 1 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = '{ROLE}'"
        );
        server.wait_for(&query).await;
        drop(connection);

        let refused = [
            // The machine's authorities did not sign the certificate.
            (address(&server, "localhost", PASSWORD, required), None),
            // The certificate is of another host.
            (address(&server, "example.com", PASSWORD, required), Some(&authority)),
            (
                address(&server, "localhost", "wrong-and-not-to-be-shown", required),
                Some(&authority),
            ),
            // No TLS, no binding.
            (
                address(&server, "localhost", PASSWORD, "sslmode=disable&channel_binding=require"),
                Some(&authority),
            ),
        ];
        for (address, authorities) in refused {
            let error = open(&address, authorities).await.err().expect("refused");
            assert!(!error.to_string().contains("not-to-be-shown"), "{error}");
            assert!(!format!("{error:?}").contains("not-to-be-shown"), "{error:?}");
        }
    }
}

/// A server that speaks no TLS is not answered in clear text where it is not on this machine.
#[tokio::test]
async fn a_remote_server_without_tls_is_refused() {
    let server = Server::start(&[]).await;
    let error =
        open(&address(&server, "db.example.com", PASSWORD, "application_name=x"), None).await;
    let error = error.err().expect("refused").to_string();
    assert!(error.contains("TLS"), "{error}");
    open(&address(&server, "localhost", PASSWORD, "application_name=x"), None).await.unwrap();
}

#[test]
fn an_address_that_cannot_be_read_is_not_shown() {
    for address in [
        "postgresql://app:not-to-be@shown@localhost:x/app",
        "host=localhost password=not-to-be shown=not-to-be-shown",
        "password=not-to-be-shown",
    ] {
        if let Err(error) = Target::new(address, None, false) {
            assert!(!error.to_string().contains("shown"), "{error}");
            assert!(!format!("{error:?}").contains("shown"), "{error:?}");
        }
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
    assert!(error.to_string().contains("does not allow writes"), "{error}");
    standby.promote().await;
    Connection::open(&target(standby.port, false)).await.unwrap();
}

/// A pooler in transaction mode runs a flight on a connection without the settings.
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
    // initdb makes no checksums by itself.
    let usual = found(&site.server, false).await;
    assert!(usual.len() == 1 && has(&usual, Severity::Warned, "checksums"), "{usual:?}");
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
