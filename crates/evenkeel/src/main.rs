//! The `evenkeel` binary. `evenkeel` alone, or `evenkeel start`, runs a standalone server until it is told to stop;
//! `evenkeel shell` is a client of any cluster; the other commands are tools over the files of a server that is stopped.

mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use clap::{Args, Parser, Subcommand};
use evenkeel_common::Configuration;
use evenkeel_common::allocator::{self, SampledAllocator};
use evenkeel_server::standalone::Standalone;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: SampledAllocator = SampledAllocator;

/// The environment variable that sets log levels, such as `info,evenkeel_region=debug`.
const LOG_VARIABLE: &str = "EVENKEEL_LOG";

/// The exit status of a tool that could not do its task; 1 is that of one that found faults.
const TOOL_FAILED: u8 = 2;

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
    /// The HBase shell, on any cluster
    Shell(ShellArgs),
    /// Print what is in store files
    Hfile(tools::hfile::HFileArgs),
    /// Print what is in WAL files
    Wal(tools::wal::WalArgs),
    /// Check every file of a root directory, changing nothing
    Verify(tools::verify::VerifyArgs),
    /// Compact the store files of a stopped server
    Compact(tools::compact::CompactArgs),
    /// Load a cluster and measure it, by the names of HBase's PerformanceEvaluation
    #[command(disable_help_flag = true)]
    Pe(Pe),
}

/// The words of `evenkeel pe`, which has HBase's own rules for them.
#[derive(Args)]
struct Pe {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
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

#[derive(Args)]
struct ShellArgs {
    #[command(flatten)]
    settings: Start,
    /// End with a status that is not 0 at the first error
    #[arg(short = 'n', long)]
    noninteractive: bool,
    /// Run these statements instead of reading any; implies -n
    #[arg(short = 'e', long, value_name = "STATEMENTS")]
    expression: Option<String>,
    /// A script to run
    script: Option<PathBuf>,
}

fn define(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    init_logging(match cli.command {
        // What goes wrong is told by the commands themselves.
        Some(Command::Shell(_)) => "off",
        _ => "info",
    });
    match cli.command {
        Some(Command::Shell(args)) => ended(shell(args), TOOL_FAILED),
        Some(Command::Hfile(args)) => ended(tools::hfile::run(&args), TOOL_FAILED),
        Some(Command::Wal(args)) => ended(tools::wal::run(&args), TOOL_FAILED),
        Some(Command::Verify(args)) => ended(tools::verify::run(&args), TOOL_FAILED),
        Some(Command::Compact(args)) => ended(tools::compact::run(&args), TOOL_FAILED),
        Some(Command::Pe(pe)) => ExitCode::from(evenkeel_pe::main(&pe.words)),
        Some(Command::Start(start)) => ended(run(&start).map(|()| ExitCode::SUCCESS), 1),
        None => ended(run(&cli.start).map(|()| ExitCode::SUCCESS), 1),
    }
}

/// The exit status, after a failure was said.
fn ended(outcome: Result<ExitCode, String>, failed: u8) -> ExitCode {
    outcome.unwrap_or_else(|message| {
        eprintln!("evenkeel: {message}");
        ExitCode::from(failed)
    })
}

fn init_logging(default: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn shell(args: ShellArgs) -> Result<ExitCode, String> {
    let settings = &args.settings;
    let conf =
        Configuration::load(settings.config.as_deref(), &settings.define).map_err(|e| e.to_string())?;
    let ShellArgs { noninteractive, expression, script, .. } = args;
    let status = evenkeel_shell::run(conf, &evenkeel_shell::Options { noninteractive, expression, script })?;
    // As for any process, only the low eight bits count.
    Ok(ExitCode::from(status as u8))
}

fn run(start: &Start) -> Result<(), String> {
    let conf = Configuration::load(start.config.as_deref(), &start.define).map_err(|e| e.to_string())?;
    let unknown = conf.unknown_keys();
    if !unknown.is_empty() {
        tracing::warn!(keys = unknown.join(" "), "settings that Evenkeel does not know are ignored");
    }
    drop(unknown);
    if let Err(error) = allocator::share() {
        tracing::warn!(%error, "other processes cannot read the allocator's time");
    }
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
