//! A kill storm over groups: each customer's events run in order under `order_by`, and under `coalesce_by` no
//! older one starts after a newer one, however often the receiver is killed.
//!
//! `HOOKLATCH_KILLS` sets the number of kills; `HOOKLATCH_SEED` repeats the random choices of a run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::random::Random;
use crate::support::{Receiver, Site, stripe_header, try_post};

const CUSTOMERS: usize = 6;

/// The events of one customer, which are sent one after the other.
const EVENTS: usize = 120;

/// The most events that are answered between two kills.
const MOST_BETWEEN_KILLS: usize = 40;

/// A failed attempt is tried again soon.
const LIMITS: &str = "[limits]\nbackoff_base_millis = \"100ms\"\nbackoff_max_millis = \"1s\"\n";

const HANDLERS: &str = r#"
[handlers.ordered]
source = "stripe"
events = ["*"]
command = ["./work"]
concurrency = 4
max_attempts = 100
order_by = "/customer"
[handlers.latest]
source = "stripe"
events = ["*"]
command = ["./work"]
concurrency = 4
max_attempts = 100
coalesce_by = "/customer"
"#;

/// Each fifth event fails at its first attempt. It takes long enough that newer events come meanwhile. A line is one write, so that lines do not mix.
const WORK: &str = r#"
line="$HOOKLATCH_HANDLER $HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT"
echo "start $line" >> "$SITE/ledger"
sleep 0.02
case "$HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT" in
*[05]" 1") echo "fail $line" >> "$SITE/ledger"; exit 1 ;;
esac
echo "end $line" >> "$SITE/ledger""#;

/// Where the receiver listens, if it runs.
#[derive(Default)]
struct Door {
    address: Mutex<Option<SocketAddr>>,
    opened: Condvar,
}

impl Door {
    fn set(&self, address: Option<SocketAddr>) {
        *self.address.lock().unwrap() = address;
        self.opened.notify_all();
    }

    fn wait(&self) -> SocketAddr {
        let closed = self.address.lock().unwrap();
        self.opened.wait_while(closed, |address| address.is_none()).unwrap().unwrap()
    }
}

#[test]
fn each_group_keeps_its_order_through_many_receiver_kills() {
    let kills = std::env::var("HOOKLATCH_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let seed = std::env::var("HOOKLATCH_SEED").map_or_else(
        |_| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into(),
        |seed| seed.parse().unwrap(),
    );
    println!("HOOKLATCH_SEED={seed}");
    let site = Site::with(LIMITS, HANDLERS);
    site.script("work", WORK);
    let receiver = site.start();
    let (door, (answered, answers)) = (Door::default(), mpsc::channel());
    door.set(Some(receiver.address));
    let receiver = std::thread::scope(|scope| {
        let mut receiver = receiver;
        for customer in 0..CUSTOMERS {
            let (door, answered) = (&door, answered.clone());
            scope.spawn(move || (0..EVENTS).for_each(|n| deliver(door, &answered, customer, n)));
        }
        drop(answered);
        let mut random = Random::new(seed);
        for _ in 0..kills {
            let wanted = random.below(MOST_BETWEEN_KILLS);
            // Fewer come once all are answered.
            answers.iter().take(wanted).count();
            receiver = killed(&door, receiver, &site);
        }
        receiver
    });
    let settled = |state: &str| state == "succeeded" || state == "dropped";
    let jobs = site.jobs_when(|jobs| {
        jobs.len() == 2 * CUSTOMERS * EVENTS
            && jobs.iter().all(|job| settled(job["state"].as_str().unwrap()))
    });
    assert_eq!(receiver.stop(), Some(0));
    let of = |field: &str| {
        let job = |job: &serde_json::Value| {
            let text = |name: &str| job[name].as_str().unwrap_or_default().to_owned();
            ((text("handler"), text("event_id")), text(field))
        };
        jobs.iter().map(job).collect::<BTreeMap<_, _>>()
    };
    check(&site.lines("ledger"), &of("state"), &of("reason"));
}

/// Kills the receiver and starts the next one.
fn killed(door: &Door, receiver: Receiver, site: &Site) -> Receiver {
    receiver.kill();
    door.set(None);
    let next = site.start();
    door.set(Some(next.address));
    next
}

/// Delivers one event until it is answered 2xx.
fn deliver(door: &Door, answered: &mpsc::Sender<()>, customer: usize, n: usize) {
    let body = format!(
        r#"{{"id":"c{customer}-{n}","object":"event","type":"a.b","customer":"c{customer}","data":{{}}}}"#
    );
    loop {
        let address = door.wait();
        match try_post(address, "/stripe", &stripe_header(&body, 0), body.as_bytes()) {
            Ok((200..300, _)) => {
                // Nobody counts any more once all kills are made.
                let _ = answered.send(());
                return;
            }
            Ok((status, answer)) => assert_eq!(status, 503, "{answer}"),
            Err(_) => {}
        }
    }
}

type ByJob = BTreeMap<(String, String), String>;

/// Checks the ledger of the handlers against the order in which the events were accepted.
fn check(ledger: &[String], states: &ByJob, reasons: &ByJob) {
    for handler in ["ordered", "latest"] {
        for customer in 0..CUSTOMERS {
            let begins = format!("c{customer}-");
            let lines = ledger.iter().map(|line| line.split(' ').collect::<Vec<_>>());
            let lines = lines.filter(|words| words[1] == handler && words[2].starts_with(&begins));
            let mut running: Option<Vec<&str>> = None;
            let (mut last, mut ended) = (0, Vec::new());
            for words in lines {
                let n: usize = words[2][begins.len()..].parse().unwrap();
                if words[0] == "start" {
                    assert_eq!(running, None, "{handler}: {words:?} began while another ran");
                    assert!(n >= last, "{handler}: {words:?} began after event {last}");
                    (running, last) = (Some(words), n);
                } else {
                    let before = running.take().unwrap();
                    assert_eq!(before[1..], words[1..], "{handler}: ends of another");
                    if words[0] == "end" {
                        ended.push(n);
                    }
                }
            }
            assert_eq!(running, None, "{handler}: {begins}{last} has not ended");
            for n in 0..EVENTS {
                let job = (handler.to_owned(), format!("{begins}{n}"));
                let found = (states[&job].as_str(), reasons[&job].as_str());
                let wanted =
                    if ended.contains(&n) { ("succeeded", "") } else { ("dropped", "superseded") };
                assert_eq!(found, wanted, "{job:?}");
            }
            assert_eq!(ended.last(), Some(&(EVENTS - 1)), "{handler}: the newest must have run");
            assert!(handler == "latest" || ended.len() == EVENTS, "{handler}: {ended:?}");
        }
    }
    let dropped = states.values().filter(|state| *state == "dropped").count();
    assert!(dropped > 0, "nothing was superseded, so this proves nothing about it");
}
