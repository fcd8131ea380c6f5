//! A model of the protocol, explored completely.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

#[path = "model/checker.rs"]
mod checker;
#[path = "model/protocol.rs"]
mod protocol;
#[path = "model/receiver.rs"]
mod receiver;
#[path = "model/rules.rs"]
mod rules;
#[path = "model/runner.rs"]
mod runner;
#[path = "model/state.rs"]
mod state;
#[path = "model/store.rs"]
mod store;
#[path = "model/world.rs"]
mod world;

use checker::{Trace, explore};
use protocol::Protocol;
use rules::{Faults, Policy, Rules};
use store::{KNOWABLE, P3, P4, P5};

fn print(title: &str, trace: &Trace) {
    println!("\n{title}, {} steps:", trace.0.len());
    for (n, (step, state)) in trace.0.iter().enumerate() {
        println!("{:4}. {step:<52} {state}", n + 1);
    }
}

#[test]
fn scratch() {
    for list in std::env::var("F").unwrap_or("1,0,0,0,0,0".into()).split(' ') {
    let n: Vec<u8> = list.split(',').map(|n| n.parse().unwrap()).collect();
    let faults = Faults { receiver_kills: n[0], runner_kills: n[1], power_cuts: n[2], runner_stops: n[3],
        operator: n[4], lost_connections: n[5], second_receivers: 0 };
    for policy in [Policy::Rerun, Policy::Hold] {
        let start = std::time::Instant::now();
        let p = Protocol { rules: Rules::ALL, faults, policy };
        let found = explore(&p, P3 | P4 | P5 | KNOWABLE);
        println!("{list}: {} states, {} steps, {:?}", found.states, found.steps, start.elapsed());
        if let Some((trace, bits)) = &found.broken { print(&format!("broken {bits}"), trace); }
        if let Some(trace) = &found.stuck { print("stuck", trace); }
    }}
}
