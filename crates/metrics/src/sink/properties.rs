//! [`SinkSettings`]: the sinks in `hadoop-metrics2.properties`.
//!
//! The file is the first of [`FILES`] in the configuration directory, as in HBase.
//!
//! A sink of HBase is `hbase.sink.NAME.OPTION`. A missing option is looked up as
//! `*.sink.NAME.OPTION`, whose NAME may have wildcards, and the period also as `hbase.period` and
//! `*.period`. Only sinks of `hbase` start, as in an HBase process.
//!
//! | option | of | meaning |
//! |---|---|---|
//! | `class` | all | the class of Hadoop's sink |
//! | `period` | all | seconds between two writes; default [`PERIOD_DEFAULT`] |
//! | `context` | all | only records of this context |
//! | `filename` | FileSink | the file to append to |
//! | `basepath` | RollingFileSystemSink | a local directory |
//! | `source` | same | prefix of file names |
//! | `roll-interval` | same | the interval of a directory, such as `1 hour` |
//! | `server_host`, `server_port` | GraphiteSink | Carbon |
//! | `metrics_prefix` | same | prefix of names |
//! | `servers` | GangliaSink31 | hosts with ports, separated by commas or blanks |
//!
//! The format is that of Java's properties: `key=value`, `key: value` or `key value`, comments with
//! `#` and `!`, and continuation lines after a `\`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sink::object_name::wildcard_matches;

/// The files of a configuration directory; only the first that exists is read.
pub const FILES: [&str; 2] = ["hadoop-metrics2-hbase.properties", "hadoop-metrics2.properties"];
/// The default period of metrics2.
pub const PERIOD_DEFAULT: Duration = Duration::from_secs(10);
/// Longer periods are rejected as mistaken units.
const PERIOD_MAX_S: u64 = 24 * 60 * 60;
/// The port of gmond.
const GANGLIA_PORT: u16 = 8649;
/// The process whose sinks start.
const PREFIX: &str = "hbase";
const PACKAGE: &str = "org.apache.hadoop.metrics2.sink.";

/// One sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    /// Its name in the file.
    pub name: String,
    /// Only records of this context are written.
    pub context: Option<String>,
    /// The time between two writes.
    pub period: Duration,
    /// Its type and destination.
    pub sink_type: SinkType,
}

/// The type and the destination of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkType {
    /// FileSink: lines appended to one file.
    File {
        /// The file. Its directory must exist.
        filename: PathBuf,
    },
    /// RollingFileSystemSink: a directory per interval.
    RollingFile {
        /// The parent of these directories.
        basepath: PathBuf,
        /// Prefix of file names.
        source: String,
        /// The interval.
        roll_interval: Duration,
    },
    /// GraphiteSink.
    Graphite {
        /// Host and port of Carbon.
        server: (String, u16),
        /// Prefix of names.
        prefix: String,
    },
    /// GangliaSink31.
    Ganglia {
        /// Hosts and ports of gmonds.
        servers: Vec<(String, u16)>,
    },
}

/// The properties of a file.
#[derive(Clone, Debug, Default)]
pub struct Properties(HashMap<String, String>);

impl Properties {
    /// Reads the file of a configuration directory; empty if it has none.
    ///
    /// # Errors
    /// I/O errors of reading the file; `InvalidData` if it is not UTF-8.
    pub fn load(config_dir: &Path) -> io::Result<Self> {
        for file in FILES {
            match fs::read_to_string(config_dir.join(file)) {
                Ok(text) => return Ok(Self::parse(&text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::default())
    }

    /// Parses the text of a file, which cannot fail. A later line of a key wins.
    pub fn parse(text: &str) -> Self {
        let mut properties = HashMap::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut line = line.trim_start().to_owned();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            while ends_with_odd_backslashes(&line) {
                line.pop();
                line.push_str(lines.next().unwrap_or_default().trim_start());
            }
            let (key, value) = divide(&line);
            properties.insert(key, value);
        }
        Self(properties)
    }

    /// Returns the sinks to start, by name, and the problems of those that cannot start.
    pub fn sinks(&self) -> (Vec<SinkSettings>, Vec<String>) {
        let names: BTreeSet<&str> = self.0.keys().filter_map(|key| sink_of(key)).collect();
        let (mut sinks, mut problems) = (Vec::new(), Vec::new());
        for name in names {
            match self.sink(name) {
                Ok(sink) => sinks.push(sink),
                Err(problem) => problems.push(format!("sink {name}: {problem}")),
            }
        }
        (sinks, problems)
    }

    fn sink(&self, name: &str) -> Result<SinkSettings, String> {
        let class = self.required(name, "class")?;
        let sink_type = match class.strip_prefix(PACKAGE) {
            Some("FileSink") => SinkType::File { filename: self.required(name, "filename")?.into() },
            Some("RollingFileSystemSink") => self.rolling_file(name)?,
            Some("GraphiteSink") => self.graphite(name)?,
            Some("ganglia.GangliaSink31") => self.ganglia(name)?,
            _ => return Err(format!("the class {class} is not known")),
        };
        let context = self.option(name, "context").map(str::to_owned);
        Ok(SinkSettings { name: name.to_owned(), context, period: self.period(name)?, sink_type })
    }

    fn rolling_file(&self, name: &str) -> Result<SinkType, String> {
        let basepath = self.option(name, "basepath").unwrap_or("/tmp");
        let basepath = basepath.strip_prefix("file://").unwrap_or(basepath);
        if basepath.contains("://") {
            return Err(format!("basepath {basepath} is not local"));
        }
        let source = self.option(name, "source").unwrap_or("unknown");
        if source.contains('/') {
            return Err(format!("source {source} is not a file name"));
        }
        let interval = self.option(name, "roll-interval").unwrap_or("1 hour");
        let roll_interval = parse_interval(interval).ok_or_else(|| format!("not an interval: {interval}"))?;
        Ok(SinkType::RollingFile { basepath: basepath.into(), source: source.to_owned(), roll_interval })
    }

    fn graphite(&self, name: &str) -> Result<SinkType, String> {
        let host = self.required(name, "server_host")?.to_owned();
        let port = self.required(name, "server_port")?;
        let port = port.parse().map_err(|_| format!("not a port: {port}"))?;
        let prefix = self.option(name, "metrics_prefix").unwrap_or_default().to_owned();
        Ok(SinkType::Graphite { server: (host, port), prefix })
    }

    fn ganglia(&self, name: &str) -> Result<SinkType, String> {
        let text = self.option(name, "servers").unwrap_or("localhost");
        let items = text.split([',', ' ']).filter(|item| !item.is_empty());
        let servers = items.map(parse_server).collect::<Result<_, _>>()?;
        Ok(SinkType::Ganglia { servers })
    }

    fn period(&self, name: &str) -> Result<Duration, String> {
        let of_process = self.0.get(&format!("{PREFIX}.period")).or_else(|| self.0.get("*.period"));
        let Some(text) = self.option(name, "period").or(of_process.map(String::as_str)) else {
            return Ok(PERIOD_DEFAULT);
        };
        match text.parse::<u64>() {
            Ok(seconds) if (1..=PERIOD_MAX_S).contains(&seconds) => Ok(Duration::from_secs(seconds)),
            _ => Err(format!("not a period in seconds: {text}")),
        }
    }

    fn required(&self, name: &str, option: &str) -> Result<&str, String> {
        self.option(name, option).ok_or_else(|| format!("{option} is not set"))
    }

    fn option(&self, name: &str, option: &str) -> Option<&str> {
        let own = self.0.get(&format!("{PREFIX}.sink.{name}.{option}"));
        let of_all = || {
            self.0.iter().find_map(|(key, value)| {
                let pattern = key.strip_prefix("*.sink.")?.strip_suffix(option)?.strip_suffix('.')?;
                wildcard_matches(pattern, name).then_some(value)
            })
        };
        own.or_else(of_all).map(|value| value.trim()).filter(|value| !value.is_empty())
    }
}

/// Returns the name of the sink to which a key of `hbase` belongs.
fn sink_of(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(PREFIX)?.strip_prefix(".sink.")?;
    rest.split_once('.').map(|(name, _)| name).filter(|name| !name.is_empty())
}

fn parse_server(text: &str) -> Result<(String, u16), String> {
    let Some((host, port)) = text.rsplit_once(':') else { return Ok((text.to_owned(), GANGLIA_PORT)) };
    let port = port.parse().map_err(|_| format!("not a port: {text}"))?;
    Ok((host.to_owned(), port))
}

/// Parses `1 hour`, `30 minutes`, `1 day`: at least one minute.
fn parse_interval(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at_checked(digits)?;
    let minutes = match unit.trim() {
        "m" | "min" | "minute" | "minutes" => 1,
        "" | "h" | "hour" | "hours" => 60,
        "d" | "day" | "days" => 24 * 60,
        _ => return None,
    };
    let count: u64 = count.parse().ok()?;
    count.checked_mul(minutes * 60).filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

fn ends_with_odd_backslashes(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits a line into key and value, at the first `=`, `:` or blank that is not escaped by `\`.
fn divide(line: &str) -> (String, String) {
    let (mut key, mut chars) = (String::new(), line.chars());
    while let Some(c) = chars.clone().next() {
        if matches!(c, '=' | ':') || c.is_whitespace() {
            break;
        }
        chars.next();
        key.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    let rest = chars.as_str().trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
    (key, unescape(rest))
}

fn unescape(text: &str) -> String {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        plain.extend(match c {
            '\\' => chars.next().map(|escaped| match escaped {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                other => other,
            }),
            c => Some(c),
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
# a comment
! another
*.sink.file*.class=org.apache.hadoop.metrics2.sink.FileSink
*.period = 20
hbase.sink.file-all.filename: all\\
    .metrics
hbase.sink.file1.filename rs.metrics
hbase.sink.file1.context=regionserver
hbase.sink.file1.period=5
hbase.sink.g.class=org.apache.hadoop.metrics2.sink.GraphiteSink
hbase.sink.g.server_host=carbon
hbase.sink.g.server_port=2003
hbase.sink.g.metrics_prefix=prod
*.sink.ganglia.class=org.apache.hadoop.metrics2.sink.ganglia.GangliaSink31
hbase.sink.ganglia.servers=a, b:99
hbase.sink.roll.class=org.apache.hadoop.metrics2.sink.RollingFileSystemSink
hbase.sink.roll.basepath=file:///metrics
hbase.sink.roll.roll-interval=30 minutes
hbase.sink.bad.class=com.example.Sink
hbase.sink.worse.period=1
namenode.sink.x.class=org.apache.hadoop.metrics2.sink.FileSink
";

    #[test]
    fn sinks_are_read_from_the_properties_file() {
        let (sinks, problems) = Properties::parse(TEXT).sinks();
        let expected = |name: &str, context: Option<&str>, period, sink_type| SinkSettings {
            name: name.to_owned(),
            context: context.map(str::to_owned),
            period: Duration::from_secs(period),
            sink_type,
        };
        let file = |name: &str| SinkType::File { filename: name.into() };
        let graphite = SinkType::Graphite { server: ("carbon".to_owned(), 2003), prefix: "prod".to_owned() };
        let ganglia = SinkType::Ganglia { servers: vec![("a".to_owned(), 8649), ("b".to_owned(), 99)] };
        let roll = SinkType::RollingFile {
            basepath: "/metrics".into(),
            source: "unknown".to_owned(),
            roll_interval: Duration::from_secs(1_800),
        };
        let all = [
            expected("file-all", None, 20, file("all.metrics")),
            expected("file1", Some("regionserver"), 5, file("rs.metrics")),
            expected("g", None, 20, graphite),
            expected("ganglia", None, 20, ganglia),
            expected("roll", None, 20, roll),
        ];
        assert_eq!(sinks, all);
        let expected = ["sink bad: the class com.example.Sink is not known", "sink worse: class is not set"];
        assert_eq!(problems, expected);
    }

    #[test]
    fn the_file_of_hbase_comes_before_that_of_hadoop() {
        let dir = tempfile::tempdir().expect("a directory");
        let period = || Properties::load(dir.path()).expect("read").0.get("*.period").cloned();
        assert_eq!(period(), None);
        for (file, seconds) in FILES.iter().zip(["7", "8"]).rev() {
            fs::write(dir.path().join(file), format!("*.period={seconds}")).expect("written");
            assert_eq!(period().as_deref(), Some(seconds));
        }
        fs::write(dir.path().join(FILES[0]), b"\xff").expect("written");
        assert!(Properties::load(dir.path()).is_err());
    }

    #[test]
    fn lines_are_divided_as_in_java() {
        let properties = Properties::parse("a\\=b=c\\td\nempty\nlast=x\\");
        let get = |key: &str| properties.0.get(key).map(String::as_str);
        assert_eq!((get("a=b"), get("empty"), get("last")), (Some("c\td"), Some(""), Some("x")));
    }

    #[test]
    fn intervals_have_units() {
        let minutes = |text| parse_interval(text).map(|interval| interval.as_secs() / 60);
        let cases =
            [("1 hour", Some(60)), ("2d", Some(2_880)), ("5 min", Some(5)), ("0 h", None), ("x", None)];
        for (text, expected) in cases {
            assert_eq!(minutes(text), expected, "{text}");
        }
    }
}
