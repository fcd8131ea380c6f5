//! The store in one SQLite file. A verb is one file in the folder of its handle. A verb that changes the store is one
//! transaction, or several short ones where it says so: the writer's thread runs it and answers after the flush. Readers
//! see flushed commits only.

pub(crate) mod admin;
pub(crate) mod engine;
pub(crate) mod intake;
pub(crate) mod jobs;
pub(crate) mod store;
pub(crate) mod tables;
