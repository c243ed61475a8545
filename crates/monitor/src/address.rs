//! [`Address`]: the address of a server's info port.

use std::fmt;

use clap::Args;

/// HBase's default of `hbase.regionserver.info.port`.
const PORT: u16 = 16030;

/// The option that all commands have.
#[derive(Args, Clone, Debug)]
pub struct AddressArgs {
    /// The info port of a RegionServer: HOST, HOST:PORT or a URL
    #[arg(short = 'a', long, value_name = "ADDRESS", default_value = "127.0.0.1:16030")]
    pub address: String,
}

/// The address of a server's info port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Parses `host`, `host:port`, `[v6]:port` or `http://host:port/...`.
    ///
    /// # Errors
    /// One line with the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let authority = rest.split('/').next().unwrap_or_default();
        let unusable = || format!("{text}: expected HOST, HOST:PORT or http://HOST:PORT");
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| unusable())?)
            }
            _ => (authority, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.is_empty() || text.starts_with("https:") {
            true => Err(unusable()),
            false => Ok(Self { host: host.to_owned(), port }),
        }
    }

    /// Returns the host and the port to connect to.
    pub fn to_socket(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_with_or_without_a_port_or_urls() {
        for (text, shown) in [
            ("rs1", "rs1:16030"),
            ("rs1:8080", "rs1:8080"),
            ("http://rs1:8080/rs-status", "rs1:8080"),
            ("http://rs1/", "rs1:16030"),
            ("::1", "[::1]:16030"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(
                Address::parse(text).map(|address| address.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
        for text in ["", ":8080", "rs1:x", "rs1:99999", "https://rs1"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
