//! What every engine must do: each test runs on each engine.
use super::{tokio, *};

mod accept;
mod answers;
mod audit;
mod damage;
mod damage_server;
mod gauges;
mod groups;
mod jobs;
mod list;
mod missing;
mod notice;
mod pause;
mod rate;
mod redelivery;
mod replays;
mod retain;
mod select;
mod standing;
mod triggers;
mod verbs;

async fn bench() -> Bench {
    bench_with(limits()).await
}

async fn bench_with(limits: Limits) -> Bench {
    bench_on(engine(), limits).await
}
