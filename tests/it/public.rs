//! Test deliveries to a source's public URL, through a TLS proxy in front of the receiver.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::operator::text;
use crate::support::Site;

/// A new certificate authority (PEM), and a server configuration with its certificate for `localhost`.
pub(crate) fn authority() -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (root, Arc::new(config))
}

/// Starts a proxy that passes /in/PATH on to the receiver as /PATH and answers other paths with 404.
fn proxy(config: Arc<ServerConfig>, receiver: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that does not trust the certificate closes the connection.
            let _ = pass(&config, stream, receiver);
        }
    });
    port
}

fn pass(
    config: &Arc<ServerConfig>,
    stream: TcpStream,
    receiver: SocketAddr,
) -> std::io::Result<()> {
    let session = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut client = BufReader::new(StreamOwned::new(session, stream));
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        client.read_line(&mut line)?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    let mut answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    if head.starts_with("POST /in/") {
        let mut upstream = TcpStream::connect(receiver)?;
        upstream.write_all(head.replacen("POST /in/", "POST /", 1).as_bytes())?;
        upstream.write_all(&body)?;
        answer.clear();
        upstream.read_to_end(&mut answer)?;
    }
    let client = client.get_mut();
    client.write_all(&answer)?;
    client.conn.send_close_notify();
    client.flush()
}

#[test]
fn send_reaches_the_handler_through_the_public_url() {
    let site = Site::new(
        "[handlers.deploy]\nsource = \"github\"\nevents = [\"push\"]\ncommand = [\"./deploy\"]\n",
    );
    site.script("deploy", "echo done");
    let receiver = site.start();
    let (root, config) = authority();
    fs::write(site.path("root.pem"), root).unwrap();
    fs::write(site.path("other.pem"), authority().0).unwrap();
    let port = proxy(config, receiver.address);
    let send = |url: &str, roots: &str| {
        let mut command = site.command(&["send", "github", "push", "--url", url]);
        let output = command.env("SSL_CERT_FILE", site.path(roots)).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let good = format!("https://localhost:{port}/in/github");
    let (code, said) = send(&good, "root.pem");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!(" to {good}\n")), "{said}");
    assert!(said.contains("handler   deploy: succeeded, exit status 0\n    out | done"), "{said}");

    let (code, said) = send(&good, "other.pem");
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("TLS with localhost failed: invalid peer certificate"), "{said}");
    let (code, said) = send(&format!("https://127.0.0.1:{port}/in/github"), "root.pem");
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("TLS with 127.0.0.1 failed: invalid peer certificate"), "{said}");
    // A URL without a path gets the source's path, which this proxy does not pass on.
    let (code, said) = send(&format!("https://localhost:{port}"), "root.pem");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!(" to https://localhost:{port}/github\n")), "{said}");
    assert!(said.contains("answered  404"), "{said}");
    assert!(said.contains("the receiver did not answer this: check that the proxy"), "{said}");
    // A URL without TLS, and a port on which no server listens.
    let plain = format!("http://{}/github", receiver.address);
    assert_eq!(send(&plain, "root.pem").0, Some(0));
    let (code, said) = send("https://127.0.0.1:1/github", "root.pem");
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("nothing answers at 127.0.0.1:1: "), "{said}");
    for bad in ["hooks.example.org", "ftp://localhost/", "https://user@localhost/"] {
        let (code, said) = send(bad, "root.pem");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("is not a URL such as https://"), "{said}");
    }
}
