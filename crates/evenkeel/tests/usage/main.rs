//! What a user or an operator does: clients, the shell, tools, a start, a change of settings.

mod client;
mod client_examples;
#[path = "../common/mod.rs"]
mod common;
mod normalizer;
mod packaging;
mod quotas;
mod shell;
mod splits;
mod start;
mod tools;
mod update_config;
