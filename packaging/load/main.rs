//! A fake GitHub for the install test: it sends signed deliveries with unique ids at a steady rate, over new
//! or keep-alive connections, until a file appears. A request without a 2xx within GitHub's timeout counts as
//! failed. Like GitHub, it does not repeat deliveries.

mod client;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use hooklatch::clock::Clock;
use hooklatch::cmd::kit::provider::Provider;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use client::Client;

/// Sends signed GitHub deliveries until a file appears; prints one JSON object.
#[derive(Debug, Parser)]
struct Arguments {
    /// Host, port and path: 127.0.0.1:8080/hooks/github
    target: String,
    /// The file with the source's secret
    #[arg(long)]
    secret: PathBuf,
    /// What the ids of its deliveries begin with
    #[arg(long)]
    prefix: String,
    /// The type of its events
    #[arg(long, default_value = "push")]
    event: String,
    /// It ends when this file is there
    #[arg(long)]
    until: PathBuf,
    /// Or when so many deliveries are answered
    #[arg(long, default_value_t = u64::MAX)]
    count: u64,
    /// Where the ids are written that were answered 2xx, one a line
    #[arg(long)]
    acknowledged: PathBuf,
    /// Clients at once
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Milliseconds between two deliveries of one client
    #[arg(long, default_value_t = 100)]
    pause_millis: u64,
    /// A new connection for each delivery
    #[arg(long)]
    fresh: bool,
}

/// The result of one delivery.
struct Answer {
    id: String,
    took: Duration,
    result: Result<u16, String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr, reason = "a tool of the tests says why it fails")]
fn say(what: &str) {
    eprintln!("load: {what}");
}

async fn run(arguments: Arguments) -> Result<(), String> {
    let secret = std::fs::read_to_string(&arguments.secret)
        .map_err(|error| format!("{}: {error}", arguments.secret.display()))?;
    let provider = Provider::new("github", &secret).map_err(|failure| failure.message)?;
    let provider = Arc::new(provider);
    let file = File::create(&arguments.acknowledged)
        .map_err(|error| format!("{}: {error}", arguments.acknowledged.display()))?;
    let (tell, mut answers) = mpsc::channel(64);
    let numbers = Arc::new(AtomicU64::new(0));
    let arguments = Arc::new(arguments);
    for _ in 0..arguments.clients {
        let client = Client::new(&arguments.target, arguments.fresh)?;
        let (numbers, tell) = (Arc::clone(&numbers), tell.clone());
        tokio::spawn(deliver(client, Arc::clone(&arguments), Arc::clone(&provider), numbers, tell));
    }
    drop(tell);

    let mut acknowledged = BufWriter::new(file);
    let (mut requests, mut failed, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    let mut reasons: Vec<String> = Vec::new();
    while let Some(answer) = answers.recv().await {
        requests += 1;
        slowest = slowest.max(answer.took);
        match answer.result {
            Ok(200..=299) => {
                writeln!(acknowledged, "{}", answer.id).map_err(|error| error.to_string())?;
            }
            other => {
                failed += 1;
                reasons.push(match other {
                    Ok(status) => format!("{}: {status}", answer.id),
                    Err(error) => format!("{}: {error}", answer.id),
                });
            }
        }
    }
    acknowledged.flush().map_err(|error| error.to_string())?;
    reasons.truncate(5);
    print(&serde_json::json!({
        "requests": requests,
        "failed": failed,
        "slowest_millis": slowest.as_millis() as u64,
        "reasons": reasons,
    }));
    Ok(())
}

#[allow(clippy::print_stdout, reason = "its result")]
fn print(result: &serde_json::Value) {
    println!("{result}");
}

async fn deliver(
    mut client: Client,
    arguments: Arc<Arguments>,
    provider: Arc<Provider>,
    numbers: Arc<AtomicU64>,
    tell: mpsc::Sender<Answer>,
) {
    let mut pace = interval(Duration::from_millis(arguments.pause_millis.max(1)));
    // After a delay the rate continues as before: missed deliveries are not sent in a burst.
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        if number >= arguments.count || arguments.until.exists() {
            return;
        }
        let id = format!("{}-{number:06}", arguments.prefix);
        // The body contains the id, so that no two bodies are equal, and is as long as that of a small push.
        let padding = "x".repeat(2000);
        let body = format!(r#"{{"ref":"refs/heads/main","number":"{id}","padding":"{padding}"}}"#);
        let body = Bytes::from(body);
        let begun = Instant::now();
        let result = match provider.sign(&id, &arguments.event, &body, Clock::system().now()) {
            Ok(headers) => client.post(headers, body).await,
            Err(failure) => Err(failure.message),
        };
        if tell.send(Answer { id, took: begun.elapsed(), result }).await.is_err() {
            return;
        }
    }
}
