//! The command line.

use evenkeel_client::ClientConfig;
use evenkeel_common::Configuration;

use crate::compare::{Comparison, compare};
use crate::failure::Failure;
use crate::options::{Options, Parsed, parse, usage};
use crate::report::{Report, page, summary, write_hgrm, write_hlog, write_json};
use crate::run::{Target, run};

/// Where a master listens unless configured.
const BOOTSTRAP_DEFAULT: &str = "localhost:16000";
/// Settings that name where clients begin.
const BOOTSTRAP_KEYS: [&str; 2] = ["hbase.client.bootstrap.servers", "hbase.masters"];

/// Runs `evenkeel pe` with the words after it; gives the exit status.
pub fn main(words: &[String]) -> u8 {
    match parse(words).map_err(Failure::Options).and_then(|parsed| of_parsed(&parsed)) {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("evenkeel pe: {failure}");
            if matches!(failure, Failure::Options(_)) {
                eprintln!("evenkeel pe --help tells the options");
            }
            failure.exit_status()
        }
    }
}

fn of_parsed(parsed: &Parsed) -> Result<u8, Failure> {
    let Some(options) = &parsed.options else {
        print!("{}", usage());
        return Ok(0);
    };
    parsed.notes.iter().for_each(|note| eprintln!("evenkeel pe: {note}"));
    match <&[_; 2]>::try_from(&parsed.compare[..]) {
        Ok(pairs) => compared(parsed, options, pairs),
        Err(_) => alone(parsed, options),
    }
}

fn alone(parsed: &Parsed, options: &Options) -> Result<u8, Failure> {
    let addresses = addresses(parsed)?;
    let target = target(parsed, &addresses.join(","), addresses)?;
    let report = run(&target, options)?;
    show(&report);
    let failed = report.tally.errors;
    write(parsed, &[report], None)?;
    Ok(u8::from(failed > 0))
}

fn compared(parsed: &Parsed, options: &Options, pairs: &[(String, String); 2]) -> Result<u8, Failure> {
    let of_pair = |(name, address): &(String, String)| target(parsed, name, vec![address.clone()]);
    let targets = [of_pair(&pairs[0])?, of_pair(&pairs[1])?];
    let comparison = compare(&targets, options, parsed.rounds, show)?;
    print!("{}", comparison.text());
    let reports: Vec<Report> = comparison.rounds.iter().flatten().cloned().collect();
    let failed: u64 = reports.iter().map(|report| report.tally.errors).sum();
    write(parsed, &reports, Some(&comparison))?;
    Ok(u8::from(failed > 0))
}

fn show(report: &Report) {
    report.notes.iter().for_each(|note| eprintln!("evenkeel pe: {note}"));
    print!("{}", summary(report));
}

fn write(parsed: &Parsed, reports: &[Report], comparison: Option<&Comparison>) -> Result<(), Failure> {
    let named =
        |path: &std::path::Path, e: std::io::Error| Failure::Local(format!("{}: {e}", path.display()));
    if let Some(path) = &parsed.json {
        let written = match comparison {
            Some(comparison) => write_json(path, comparison),
            None => write_json(path, &reports.first()),
        };
        written.map_err(|e| named(path, e))?;
    }
    if let Some(path) = &parsed.html {
        std::fs::write(path, page::html(reports, comparison)).map_err(|e| named(path, e))?;
    }
    if let Some(path) = &parsed.hgrm {
        let merged = comparison.map_or_else(|| reports.to_vec(), Comparison::merged);
        for (i, report) in merged.iter().enumerate() {
            let path =
                if i == 0 { path.clone() } else { path.with_extension(format!("{}.hgrm", report.target)) };
            write_hgrm(&path, &report.histogram).map_err(|e| named(&path, e))?;
        }
    }
    if let Some(path) = &parsed.hlog {
        write_hlog(path, reports).map_err(|e| named(path, e))?;
    }
    Ok(())
}

/// Where the cluster is: `--target`, or the configuration, or this machine.
fn addresses(parsed: &Parsed) -> Result<Vec<String>, Failure> {
    if !parsed.target.is_empty() {
        return Ok(parsed.target.clone());
    }
    let conf = configuration(parsed)?;
    let key = BOOTSTRAP_KEYS.into_iter().find(|key| conf.is_set(key));
    let listed =
        key.map(|key| conf.get_list(key)).transpose().map_err(|e| Failure::Options(e.to_string()))?;
    Ok(listed.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![BOOTSTRAP_DEFAULT.to_owned()]))
}

fn configuration(parsed: &Parsed) -> Result<Configuration, Failure> {
    Configuration::load(parsed.config.as_deref(), &parsed.define).map_err(|e| Failure::Options(e.to_string()))
}

fn target(parsed: &Parsed, name: &str, addresses: Vec<String>) -> Result<Target, Failure> {
    let _ = configuration(parsed)?;
    Ok(Target { name: name.to_owned(), client: ClientConfig::new(addresses) })
}
