//! The admin API: what the command line, and other programs, ask of a store and its receiver.
//!
//! `cmd` and `serve` use it. A running store is changed only through its receiver, by typed HTTP routes on Unix sockets
//! beside the database; a stopped one is opened under its lock ([`StoreClient`] finds out which). Both ways end in
//! [`Operation::perform`], so a command does the same either way. The network cannot reach the sockets.
//! `docs/admin-socket.md` is the reference, generated from [`ROUTES`].

mod backup;
mod budget;
mod by;
mod client;
mod failure;
mod listener_info;
pub(crate) mod operation;
mod operations;
mod receiver;
mod reload;
pub(crate) mod routes;
mod server;
mod socket;
mod store_client;
mod stream;

pub use backup::{BackupError, BackupLine, BackupStage, GetBackup};
pub use client::{CallError, Client};
pub use failure::{ApiProblem, Failure, FailureKind};
pub use listener_info::{ListenerInfo, SignDelivery, Signed};
pub use operation::{Context, Effect, Method, Operation};
pub use operations::events::*;
pub use operations::handlers::*;
pub use operations::jobs::*;
pub use operations::quarantine::*;
pub use operations::receiver::*;
pub use receiver::{ReceiverState, ReceiverStatus, Refusal, Status};
pub use reload::{Names, ReloadAsked, Reloaded, RunnerTold, SecretRead};
pub use routes::{ROUTES, Route};
pub use server::{Listener, listen};
pub use socket::{ListenError, bind, reading_socket_path, socket_path};
pub use store_client::{ConnectError, StoreClient};
pub use stream::{StreamOperation, StreamReader};
