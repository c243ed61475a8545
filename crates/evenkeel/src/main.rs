//! The `evenkeel` binary. `evenkeel` or `evenkeel start` runs a standalone server until it is
//! stopped; `evenkeel regionserver` runs a RegionServer of a cluster; `evenkeel shell` and
//! `evenkeel pe` are clients of any cluster; `evenkeel status`, `top` and `slow` read the info port
//! of a server; the other commands are tools for the files of a stopped server.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod lifecycle;
mod log;
mod log_levels;
mod sd_notify;
mod thread_caches;
mod tools;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use evenkeel_cluster::ClusterServer;
use evenkeel_common::Configuration;
use evenkeel_common::allocator::{self, SampledAllocator};
use evenkeel_standalone::Standalone;

use log::Log;
use log::format::subscribe;
use log::settings::{Format, LogSettings, levels_or};

#[global_allocator]
static ALLOCATOR: SampledAllocator = SampledAllocator;

/// The exit status of a tool that failed; 1 means that it found faults.
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
    /// Run a RegionServer of an HBase cluster
    Regionserver(Start),
    /// Show if a server is ready, and its activity
    Status(evenkeel_monitor::status::StatusArgs),
    /// A live view of a server in the terminal
    Top(evenkeel_monitor::top::TopArgs),
    /// The slow requests of a server, each with the causes of its time
    Slow(evenkeel_monitor::slow::SlowArgs),
    /// The HBase shell, on any cluster
    Shell(ShellArgs),
    /// Print the contents of store files
    Hfile(tools::hfile::HFileArgs),
    /// Print the contents of WAL files
    Wal(tools::wal::WalArgs),
    /// Print lists of store files, which the FILE store file tracker keeps
    Sft(tools::store_file_list::StoreFileListArgs),
    /// Check every file of a root directory, changing nothing
    Verify(tools::verify::VerifyArgs),
    /// Compact the store files of a stopped server
    Compact(tools::compact::CompactArgs),
    /// Load a cluster and measure it, with the commands of HBase's PerformanceEvaluation
    #[command(disable_help_flag = true)]
    Pe(Pe),
}

/// The arguments of `evenkeel pe`, which follow HBase's rules.
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
    /// A setting; overrides hbase-site.xml
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = define)]
    define: Vec<(String, String)>,
}

#[derive(Args)]
struct ShellArgs {
    #[command(flatten)]
    settings: Start,
    /// End with a non-zero status at the first error
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
    let tool = match cli.command {
        Some(Command::Start(start)) => return server::<Standalone>(&start),
        Some(Command::Regionserver(start)) => return server::<ClusterServer>(&start),
        None => return server::<Standalone>(&cli.start),
        Some(tool) => tool,
    };
    // The shell's commands print their errors, so the log is off.
    let levels = if matches!(tool, Command::Shell(_)) { "off" } else { "info" };
    let format = if io::stderr().is_terminal() { Format::Short } else { Format::Text };
    subscribe(levels_or(levels), format, || LossyStderr(io::stderr()));
    match tool {
        Command::Status(args) => ended(evenkeel_monitor::status::run(&args)),
        Command::Top(args) => ended(evenkeel_monitor::top::run(&args)),
        Command::Slow(args) => ended(evenkeel_monitor::slow::run(&args)),
        Command::Shell(args) => ended(shell(args)),
        Command::Hfile(args) => ended(tools::hfile::run(&args)),
        Command::Wal(args) => ended(tools::wal::run(&args)),
        Command::Sft(args) => ended(tools::store_file_list::run(&args)),
        Command::Verify(args) => ended(tools::verify::run(&args)),
        Command::Compact(args) => ended(tools::compact::run(&args)),
        Command::Pe(pe) => ExitCode::from(evenkeel_pe::main(&pe.words)),
        Command::Start(start) => server::<Standalone>(&start),
        Command::Regionserver(start) => server::<ClusterServer>(&start),
    }
}

/// Prints a tool's failure; returns the exit status.
fn ended(outcome: Result<ExitCode, String>) -> ExitCode {
    outcome.unwrap_or_else(|message| {
        let _nobody_reads = writeln!(io::stderr(), "evenkeel: {message}");
        ExitCode::from(TOOL_FAILED)
    })
}

/// Standard error of a tool, which drops lines that cannot be written.
struct LossyStderr(io::Stderr);

impl Write for LossyStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _lost = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn shell(args: ShellArgs) -> Result<ExitCode, String> {
    let settings = &args.settings;
    let conf =
        Configuration::load(settings.config.as_deref(), &settings.define).map_err(|e| e.to_string())?;
    let ShellArgs { noninteractive, expression, script, .. } = args;
    let status = evenkeel_shell::run(conf, &evenkeel_shell::Options { noninteractive, expression, script })?;
    // Only the low eight bits of an exit status are used.
    let [low, ..] = status.to_le_bytes();
    Ok(ExitCode::from(low))
}

/// Runs a server.
fn server<S: lifecycle::Server>(start: &Start) -> ExitCode {
    thread_caches::limit();
    let conf = Configuration::load(start.config.as_deref(), &start.define).map_err(|e| e.to_string());
    let settings = conf.and_then(|conf| Ok((LogSettings::from(&conf)?, conf)));
    let (settings, conf) = match settings {
        Ok((settings, conf)) => (settings, Ok(conf)),
        Err(error) => (LogSettings::default(), Err(error)),
    };
    let log = match Log::open(&settings) {
        Ok(log) => log,
        Err(error) => return ended(Err(error.to_string())),
    };
    lifecycle::hold_for_screen(&log);
    log.install_panic_hook();
    let writer = log.clone();
    let levels = subscribe(settings.levels, settings.format, move || writer.clone());
    let conf = match conf {
        Ok(conf) => conf,
        Err(error) => return lifecycle::failed(&error, &log),
    };
    let unknown = conf.unknown_keys();
    if !unknown.is_empty() {
        tracing::warn!(keys = unknown.join(" "), "settings that Evenkeel does not know are ignored");
    }
    drop(unknown);
    let _tracing = match evenkeel_otlp::from_environment() {
        Ok(tracing) => tracing,
        Err(error) => return lifecycle::failed(&error, &log),
    };
    allocator::keep_large_blocks_out_of_heaps();
    if let Err(error) = allocator::share() {
        tracing::warn!(%error, "other processes cannot read the allocator's time");
    }
    let (config, define) = (start.config.clone(), start.define.clone());
    let read = move || Configuration::load(config.as_deref(), &define).map_err(|error| error.to_string());
    lifecycle::run::<S>(conf, &log, lifecycle::ReloadSources { levels, settings: Arc::new(read) })
}
