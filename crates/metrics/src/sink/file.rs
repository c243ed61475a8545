//! [`FileSink`] and [`RollingFileSink`]: Hadoop's lines in local files.
//!
//! A record is one line: milliseconds since 1970, context and name, then tags and metrics:
//! `1700000000000 regionserver.Server: Context=regionserver, Hostname=h, regionCount=3`.
//!
//! A file stays open. After an error it is opened again in the next round. FileSink's file grows
//! until an operator moves it away, as in Hadoop. The rolling sink creates a directory per
//! interval, named by its start in UTC (`202311141200`), and deletes none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::record::Record;
use crate::sink::number::value_text;
use crate::sink::periodic::{Round, Sink};

/// Appends to one file.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    file: Option<File>,
}

/// Appends to a file in the directory of the current interval.
#[derive(Debug)]
pub struct RollingFileSink {
    basepath: PathBuf,
    source: String,
    interval: Duration,
    current: FileSink,
}

impl FileSink {
    /// A sink that opens the file, and creates it if necessary, on the first write.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    fn append(&mut self, lines: &str) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().create(true).append(true).open(&self.path)?,
        };
        file.write_all(lines.as_bytes())?;
        self.file = Some(file);
        Ok(())
    }
}

impl Sink for FileSink {
    fn put(&mut self, round: &Round<'_>) -> io::Result<()> {
        self.append(&lines_of(round))
    }
}

impl RollingFileSink {
    /// A sink that creates its directories below `basepath`.
    pub fn new(basepath: PathBuf, source: String, interval: Duration) -> Self {
        Self { basepath, source, interval, current: FileSink::new(PathBuf::new()) }
    }

    fn path_at(&self, round: &Round<'_>) -> PathBuf {
        let directory = directory_name(round.timestamp_ms / 1_000, self.interval);
        self.basepath.join(directory).join(format!("{}-{}.log", self.source, round.hostname))
    }
}

impl Sink for RollingFileSink {
    fn put(&mut self, round: &Round<'_>) -> io::Result<()> {
        let path = self.path_at(round);
        if path != self.current.path {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            self.current = FileSink::new(path);
        }
        self.current.put(round)
    }
}

fn lines_of(round: &Round<'_>) -> String {
    let mut lines = String::new();
    for record in round.records {
        lines.push_str(&format!("{} {}.{}: ", round.timestamp_ms, record.context, record.name));
        lines.push_str(&items_of(record, round.hostname).join(", "));
        lines.push('\n');
    }
    lines
}

fn items_of(record: &Record, hostname: &str) -> Vec<String> {
    let tags = record.tags.iter().map(|(name, value)| format!("{name}={}", one_line(value)));
    let common = [format!("Context={}", record.context), format!("Hostname={hostname}")];
    let metrics =
        record.all_metrics().map(|metric| format!("{}={}", metric.name(), value_text(metric.value)));
    tags.chain(common).chain(metrics).collect()
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Returns `yyyyMMddHHmm` in UTC for the start of the interval that contains `seconds`.
fn directory_name(seconds: i64, interval: Duration) -> String {
    let interval = i64::try_from(interval.as_secs()).unwrap_or(i64::MAX).max(1);
    let start = seconds - seconds.rem_euclid(interval);
    let (year, month, day) = date_of(start.div_euclid(86_400));
    let minute = start.rem_euclid(86_400) / 60;
    format!("{year:04}{month:02}{day:02}{:02}{:02}", minute / 60, minute % 60)
}

/// Returns year, month and day of a day since 1970, in the Gregorian calendar. Years are counted
/// from March here, so that the leap day is the last day of a year, and in eras of 400 years, which
/// are all alike.
fn date_of(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_by_the_beginning_of_their_interval() {
        let hour = Duration::from_secs(3_600);
        let cases = [
            (0, "197001010000"),
            (951_827_696, "200002291200"),
            (1_700_000_000, "202311142200"),
            (4_107_542_400, "210003010000"),
        ];
        for (seconds, name) in cases {
            assert_eq!(directory_name(seconds, hour), name);
        }
        assert_eq!(directory_name(1_700_000_000, Duration::from_secs(60)), "202311142213");
    }
}
