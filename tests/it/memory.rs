//! Stalled uploads neither fill the memory nor shut honest deliveries out.

use std::io::Write;
use std::net::TcpStream;

use crate::support::{SECRET, Site, hex, hmac, resident_bytes};

const BODY_BYTES: usize = 25 * 1024 * 1024;

#[test]
fn two_hundred_stalled_uploads_stay_under_200_mib_and_honest_deliveries_are_answered() {
    let site = Site::new("");
    let receiver = site.start();
    let signature = hex(&hmac(SECRET, b"never sent whole"));
    let head = format!(
        "POST /github HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\
         X-GitHub-Delivery: 1\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n\r\n"
    );
    // All but the last byte of each, as far as the receiver takes it.
    let part = vec![b'x'; 1024 * 1024];
    let uploads: Vec<_> = (0..200)
        .map(|_| {
            let (head, part, address) = (head.clone(), part.clone(), receiver.address);
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
                for _ in 0..24 {
                    if stream.write_all(&part).is_err() {
                        break;
                    }
                }
                stream
            })
        })
        .collect();
    let stalled: Vec<_> = uploads.into_iter().map(|upload| upload.join().unwrap()).collect();
    for n in 0..20 {
        let (status, answer) =
            receiver.github(&format!("honest-{n}"), "push", &format!("{{\"n\":{n}}}"));
        assert_eq!((status, answer["status"].as_str()), (200, Some("accepted")), "delivery {n}");
    }
    let resident = resident_bytes(receiver.pid());
    eprintln!("{} MiB resident with 200 stalled uploads", resident >> 20);
    assert!(resident < 200 << 20, "{} MiB resident", resident >> 20);
    drop(stalled);
}
