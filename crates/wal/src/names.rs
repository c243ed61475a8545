//! Names of WAL files and directories.
//!
//! ```text
//! WALs/<host,port,startcode>/<prefix>.<number>[.meta]     live
//! WALs/<host,port,startcode>-splitting/                    being split, after the server died
//! oldWALs/<file name>                                      archived
//! prefix = server name, URL-encoded (`host%2Cport%2Cstartcode`); with `.meta` for hbase:meta
//! number = the time of creation in milliseconds, or one more than the number before
//! ```

use evenkeel_common::ServerName;

/// The directory of live WALs, under the WAL root.
pub const WALS_DIR: &str = "WALs";
/// The directory of archived WALs, under the WAL root.
pub const OLD_WALS_DIR: &str = "oldWALs";
/// The suffix that the master adds to a dead server's directory.
pub const SPLITTING_SUFFIX: &str = "-splitting";
/// The suffix of the files of the WAL of hbase:meta, and of their prefix.
pub const META_SUFFIX: &str = ".meta";
/// The directory of a region for edits recovered from a dead server's WAL.
pub const RECOVERED_EDITS_DIR: &str = "recovered.edits";

/// The prefix of a server's WAL files.
pub fn prefix(server: &ServerName) -> String {
    url_encode(&server.to_string())
}

/// The prefix of the files of the WAL of hbase:meta.
pub fn meta_prefix(server: &ServerName) -> String {
    prefix(server) + META_SUFFIX
}

/// The name of a file.
pub fn file_name(prefix: &str, number: i64, suffix: &str) -> String {
    format!("{prefix}.{number}{suffix}")
}

/// Returns true if a file belongs to the WAL of hbase:meta, by its name.
pub fn is_meta(file_name: &str) -> bool {
    file_name.ends_with(META_SUFFIX)
}

/// Returns true if a name has the form of a WAL file's: a prefix, a dot, digits, and an optional
/// `.meta`.
pub fn is_wal_name(file_name: &str) -> bool {
    number_of(file_name).is_some()
}

/// The number in a WAL file's name.
pub fn number_of(file_name: &str) -> Option<i64> {
    let stem = file_name.strip_suffix(META_SUFFIX).unwrap_or(file_name);
    let (_, number) = stem.rsplit_once('.')?;
    if number.bytes().all(|b| b.is_ascii_digit()) { number.parse().ok() } else { None }
}

/// Encodes a server's name as Java's `URLEncoder` does: letters, digits and `.-*_` are left
/// unchanged.
pub fn url_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => out.push(byte as char),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hbase() {
        let server = ServerName::new("rs-1.example", 16020, 1_700_000_000_123);
        let prefix = prefix(&server);
        assert_eq!(prefix, "rs-1.example%2C16020%2C1700000000123");
        assert_eq!(file_name(&prefix, 17, ""), "rs-1.example%2C16020%2C1700000000123.17");
        let meta = file_name(&meta_prefix(&server), 17, META_SUFFIX);
        assert_eq!(meta, "rs-1.example%2C16020%2C1700000000123.meta.17.meta");
        assert!(is_meta(&meta) && is_wal_name(&meta));
        assert_eq!(number_of(&meta), Some(17));
    }

    #[test]
    fn other_names_are_not_wals() {
        for name in ["", "a", "a.", "a.b", "a.1x", "a.1.tmp", ".meta"] {
            assert!(!is_wal_name(name), "{name}");
        }
        assert_eq!(number_of("h%2C1%2C2.99999999999999999999"), None);
    }

    #[test]
    fn url_encoding_is_that_of_java() {
        assert_eq!(url_encode("a-b_c.d*,: +\u{e9}"), "a-b_c.d*%2C%3A+%2B%C3%A9");
    }
}
