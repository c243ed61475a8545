//! [`GraphiteSink`]: lines to Carbon over TCP, `path value seconds`.
//!
//! The path is that of Hadoop's sink: prefix, context, name of the record, each tag as
//! `.name=value`, then the metric. Characters that a path must not contain (blanks, control
//! characters) become `_`, except that a blank in the name of a metric becomes `.`, as in Hadoop.
//!
//! The connection stays open; after an error the next round connects again. Data from Carbon is not
//! read.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::record::Record;
use crate::sink::number::value_text;
use crate::sink::periodic::{Round, Sink};

/// Time limit for one address to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time limit for each write to make progress.
const WRITE_MAX: Duration = Duration::from_secs(5);

/// A sink for Carbon.
#[derive(Debug)]
pub struct GraphiteSink {
    server: (String, u16),
    prefix: String,
    connection: Option<TcpStream>,
}

impl GraphiteSink {
    /// A sink that connects on the first write.
    pub fn new(server: (String, u16), prefix: String) -> Self {
        Self { server, prefix, connection: None }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let (host, port) = &self.server;
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for address in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                Ok(connection) => {
                    connection.set_write_timeout(Some(WRITE_MAX))?;
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Sink for GraphiteSink {
    fn put(&mut self, round: &Round<'_>) -> io::Result<()> {
        let lines = lines_of(round, &self.prefix);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.write_all(lines.as_bytes())?;
        self.connection = Some(connection);
        Ok(())
    }
}

fn lines_of(round: &Round<'_>, prefix: &str) -> String {
    let seconds = (round.timestamp_ms + 500).div_euclid(1_000);
    let mut lines = String::new();
    for record in round.records {
        let path = path_of(record, prefix, round.hostname);
        for metric in record.all_metrics() {
            let name = path_part(&metric.name().replace(' ', "."));
            lines.push_str(&format!("{path}.{name} {} {seconds}\n", value_text(metric.value)));
        }
    }
    lines
}

fn path_of(record: &Record, prefix: &str, hostname: &str) -> String {
    let own = record.tags.iter().map(|(name, value)| (&**name, value.as_str()));
    let tags = own.chain([("Context", record.context), ("Hostname", hostname)]);
    let start = [prefix, record.context, &record.name].map(path_part).join(".");
    tags.fold(start, |path, (name, value)| format!("{path}.{}={}", path_part(name), path_part(value)))
}

fn path_part(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect()
}
