//! The `evenkeel` binary. `evenkeel` alone, or `evenkeel start`, runs a standalone server until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use clap::{Args, Parser, Subcommand};
use evenkeel_common::Configuration;
use evenkeel_server::standalone::Standalone;
use tracing_subscriber::EnvFilter;

/// The environment variable that sets log levels, such as `info,evenkeel_region=debug`.
const LOG_VARIABLE: &str = "EVENKEEL_LOG";

/// A wide-column store that HBase clients cannot tell from Apache HBase.
#[derive(Parser)]
#[command(name = "evenkeel", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    start: Start,
}

#[derive(Subcommand)]
enum Command {
    /// Run a standalone server (the default)
    Start(Start),
}

#[derive(Args, Default)]
struct Start {
    /// The directory that holds hbase-site.xml; otherwise HBASE_CONF_DIR, otherwise defaults
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// A setting, over what hbase-site.xml says
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = define)]
    define: Vec<(String, String)>,
}

fn define(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    init_logging();
    let start = match cli.command {
        Some(Command::Start(start)) => start,
        None => cli.start,
    };
    match run(&start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("evenkeel: {message}");
            ExitCode::FAILURE
        }
    }
}

fn init_logging() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn run(start: &Start) -> Result<(), String> {
    let conf = Configuration::load(start.config.as_deref(), &start.define).map_err(|e| e.to_string())?;
    let unknown = conf.unknown_keys();
    if !unknown.is_empty() {
        tracing::warn!(keys = unknown.join(" "), "settings that Evenkeel does not know are ignored");
    }
    drop(unknown);
    let (sender, stop) = mpsc::sync_channel::<String>(1);
    let ask = sender.clone();
    let server = Standalone::start(conf, Arc::new(move |reason: &str| drop(ask.try_send(reason.to_owned()))))
        .map_err(|e| e.message().to_owned())?;
    print!("{}", server.screen());
    on_signal(sender)?;
    let reason = stop.recv().unwrap_or_default();
    tracing::info!(reason, "asked to stop");
    server.stop().map_err(|e| e.message().to_owned())
}

/// Sends a stop request at SIGTERM or SIGINT.
fn on_signal(stop: mpsc::SyncSender<String>) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let wait = move || {
        let signal = runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            Ok::<_, std::io::Error>(tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            })
        });
        match signal {
            Ok(name) => drop(stop.try_send(name.to_owned())),
            Err(error) => tracing::error!(%error, "signals cannot be heard"),
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(|e| e.to_string())
}
