//! The command line.

use evenkeel_client::{ClientConfig, Registry};
use evenkeel_common::{Configuration, console};

use crate::compare::{Comparison, compare};
use crate::error::PeError;
use crate::options::{Options, Parsed, parse, usage};
use crate::report::{Report, page, summary, write_hgrm, write_hlog, write_json};
use crate::run::{Target, run};

/// Runs `evenkeel pe` with its arguments; returns the exit status.
pub fn main(words: &[String]) -> u8 {
    match parse(words).map_err(PeError::Options).and_then(|parsed| of_parsed(&parsed)) {
        Ok(status) => status,
        Err(failure) => {
            console::print_error(format_args!("evenkeel pe: {failure}\n"));
            if matches!(failure, PeError::Options(_)) {
                console::print_error(format_args!("evenkeel pe --help lists the options\n"));
            }
            failure.exit_status()
        }
    }
}

fn of_parsed(parsed: &Parsed) -> Result<u8, PeError> {
    let Some(options) = &parsed.options else {
        console::print(format_args!("{}", usage()));
        return Ok(0);
    };
    parsed.notes.iter().for_each(|note| console::print_error(format_args!("evenkeel pe: {note}\n")));
    match <&[_; 2]>::try_from(&parsed.compare[..]) {
        Ok(pairs) => compared(parsed, options, pairs),
        Err(_) => alone(parsed, options),
    }
}

fn alone(parsed: &Parsed, options: &Options) -> Result<u8, PeError> {
    let name = if parsed.target.is_empty() { "cluster".to_owned() } else { parsed.target.join(",") };
    let target = target(parsed, &name, &parsed.target)?;
    let report = run(&target, options)?;
    show(&report);
    let failed = report.tally.errors;
    write(parsed, &[report], None)?;
    Ok(u8::from(failed > 0))
}

fn compared(parsed: &Parsed, options: &Options, pairs: &[(String, String); 2]) -> Result<u8, PeError> {
    let of_pair = |(name, address): &(String, String)| target(parsed, name, std::slice::from_ref(address));
    let targets = [of_pair(&pairs[0])?, of_pair(&pairs[1])?];
    let comparison = compare(&targets, options, parsed.rounds, show)?;
    console::print(format_args!("{}", comparison.text()));
    let reports: Vec<Report> = comparison.rounds.iter().flatten().cloned().collect();
    let failed: u64 = reports.iter().map(|report| report.tally.errors).sum();
    write(parsed, &reports, Some(&comparison))?;
    Ok(u8::from(failed > 0))
}

fn show(report: &Report) {
    report.notes.iter().for_each(|note| console::print_error(format_args!("evenkeel pe: {note}\n")));
    console::print(format_args!("{}", summary(report)));
}

fn write(parsed: &Parsed, reports: &[Report], comparison: Option<&Comparison>) -> Result<(), PeError> {
    let named =
        |path: &std::path::Path, e: std::io::Error| PeError::Local(format!("{}: {e}", path.display()));
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

fn configuration(parsed: &Parsed) -> Result<Configuration, PeError> {
    Configuration::load(parsed.config.as_deref(), &parsed.define).map_err(|e| PeError::Options(e.to_string()))
}

/// The cluster at these addresses, or, without addresses, the one in the configuration.
fn target(parsed: &Parsed, name: &str, addresses: &[String]) -> Result<Target, PeError> {
    let conf = configuration(parsed)?;
    let client = ClientConfig::from_configuration(&conf).map_err(|e| PeError::Options(e.to_string()))?;
    if addresses.is_empty() {
        return Ok(Target { name: name.to_owned(), client });
    }
    let client = ClientConfig { registry: Registry::Rpc, bootstrap: addresses.to_vec(), ..client };
    Ok(Target { name: name.to_owned(), client })
}
