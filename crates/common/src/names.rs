//! Names of tables ([`TableName`]) and servers ([`ServerName`]).

use std::fmt;
use std::str::FromStr;

use crate::error::{ErrorKind, HBaseError, Result};

/// The namespace of tables named without one.
pub const DEFAULT_NAMESPACE: &str = "default";
/// The namespace of HBase's system tables.
pub const SYSTEM_NAMESPACE: &str = "hbase";

/// A table's name: a namespace and a qualifier. Its text is `ns:qualifier`, or `qualifier` alone in
/// the default namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    namespace: String,
    qualifier: String,
}

impl TableName {
    /// A name of a namespace and a qualifier.
    ///
    /// # Errors
    /// `IllegalArgumentException` for names that HBase rejects
    /// (`TableName.isLegalFullyQualifiedTableName`).
    pub fn new(namespace: &str, qualifier: &str) -> Result<Self> {
        check_namespace(namespace)?;
        check_qualifier(qualifier)?;
        Ok(Self { namespace: namespace.to_owned(), qualifier: qualifier.to_owned() })
    }

    /// A name from the bytes `ns:qualifier` or `qualifier`.
    ///
    /// # Errors
    /// As [`TableName::new`].
    pub fn from_bytes(name: &[u8]) -> Result<Self> {
        let text =
            std::str::from_utf8(name).map_err(|_| illegal(format!("not UTF-8: {}", name.escape_ascii())))?;
        text.parse()
    }

    /// `hbase:meta`.
    pub fn meta() -> Self {
        Self { namespace: SYSTEM_NAMESPACE.into(), qualifier: "meta".into() }
    }

    /// `hbase:namespace`.
    pub fn namespace_table() -> Self {
        Self { namespace: SYSTEM_NAMESPACE.into(), qualifier: "namespace".into() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within the namespace.
    pub fn qualifier(&self) -> &str {
        &self.qualifier
    }

    /// Returns true if this is hbase:meta.
    pub fn is_meta(&self) -> bool {
        self.is_system() && self.qualifier == "meta"
    }

    /// Returns true if this is one of HBase's system tables.
    pub fn is_system(&self) -> bool {
        self.namespace == SYSTEM_NAMESPACE
    }
}

impl FromStr for TableName {
    type Err = HBaseError;

    fn from_str(name: &str) -> Result<Self> {
        match name.split_once(':') {
            Some((namespace, qualifier)) => Self::new(namespace, qualifier),
            None => Self::new(DEFAULT_NAMESPACE, name),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace == DEFAULT_NAMESPACE {
            f.write_str(&self.qualifier)
        } else {
            write!(f, "{}:{}", self.namespace, self.qualifier)
        }
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn illegal(message: String) -> HBaseError {
    HBaseError::new(ErrorKind::IllegalArgument, message)
}

/// Checks a namespace's name: letters, digits and underscore (`TableName.isLegalNamespaceName`).
///
/// # Errors
/// `IllegalArgumentException` that names the offending character.
pub fn check_namespace(name: &str) -> Result<()> {
    match name.chars().position(|c| !(c.is_alphanumeric() || c == '_')) {
        _ if name.is_empty() => Err(illegal("Namespace name must not be empty".into())),
        None => Ok(()),
        Some(i) => Err(illegal(format!(
            "Illegal character <{}> at {i}. Namespaces may only contain 'alphanumeric characters' from any language \
             and digits: {name}",
            name.chars().nth(i).unwrap_or(' ')
        ))),
    }
}

/// Checks a table's qualifier: letters, digits, `_`, `-`, `.`, not starting with `-` or `.`
/// (`TableName.isLegalTableQualifierName`).
///
/// # Errors
/// `IllegalArgumentException` that names the offending character.
pub fn check_qualifier(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(illegal("Table qualifier must not be empty".into()));
    }
    if name.starts_with(['.', '-']) {
        let first = &name[..1];
        return Err(illegal(format!(
            "Illegal first character <{first}> at 0. User-space table qualifiers can only start with 'alphanumeric \
             characters' from any language: {name}"
        )));
    }
    match name.chars().position(|c| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))) {
        None => Ok(()),
        Some(i) => Err(illegal(format!(
            "Illegal character code:{}, <{}> at {i}. User-space table qualifiers may only contain 'alphanumeric \
             characters' and digits: {name}",
            name.chars().nth(i).unwrap_or(' ') as u32,
            name.chars().nth(i).unwrap_or(' ')
        ))),
    }
}

/// A server's name: host, RPC port and start time in milliseconds. Its text is
/// `host,port,startcode`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName {
    /// Host, lower case.
    pub host: String,
    /// RPC port.
    pub port: u16,
    /// Start time in milliseconds since 1970. It distinguishes two server processes with the same
    /// address.
    pub start_code: i64,
}

impl ServerName {
    /// A name of all three parts; the host is converted to lower case.
    pub fn new(host: &str, port: u16, start_code: i64) -> Self {
        Self { host: host.to_lowercase(), port, start_code }
    }

    /// `host:port`.
    pub fn host_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl FromStr for ServerName {
    type Err = HBaseError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || illegal(format!("not a server name (host,port,startcode): {text}"));
        let mut parts = text.splitn(3, ',');
        let (host, port, code) = (parts.next(), parts.next(), parts.next());
        let port = port.and_then(|p| p.parse().ok()).ok_or_else(bad)?;
        let start_code = code.and_then(|c| c.parse().ok()).ok_or_else(bad)?;
        Ok(Self::new(host.ok_or_else(bad)?, port, start_code))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.host, self.port, self.start_code)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_parse_and_print() {
        let name: TableName = "t-1.x_".parse().expect("legal");
        assert_eq!(
            (name.namespace(), name.qualifier(), name.to_string().as_str()),
            ("default", "t-1.x_", "t-1.x_")
        );
        let name: TableName = "ns:t".parse().expect("legal");
        assert_eq!(name.to_string(), "ns:t");
        for bad in ["", "-a", ".a", "a b", "ns:", ":t", "n-s:t", "a:b:c", "t\u{0}"] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
        assert!(TableName::from_bytes(&[0xff]).is_err());
    }

    #[test]
    fn server_names_parse_and_print() {
        let name: ServerName = "Host,16020,17".parse().expect("legal");
        assert_eq!(name.to_string(), "host,16020,17");
        assert!("host,1".parse::<ServerName>().is_err());
        assert!("host,99999,1".parse::<ServerName>().is_err());
    }
}
