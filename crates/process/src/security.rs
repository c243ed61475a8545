//! Security settings that cannot be honored: a server that is configured to be secure must not run
//! without security.
//!
//! Evenkeel has no authentication, no authorization and no encryption yet. The server does not
//! start if a setting requires one of them; the error is one line with its name. A setting is
//! rejected only if its value requires more than HBase without security;
//! `hbase.security.authentication=simple` is accepted.
//!
//! HBase's coprocessor classes for security (`AccessController`, `VisibilityController`, ...) are
//! rejected like all coprocessor classes that are not built in, by
//! [`Coprocessors`](evenkeel_regionserver::coprocessor::Coprocessors). The master's checks of
//! descriptors reject a family with `ENCRYPTION`.
//!
//! Without security, a server on an address beyond loopback serves everyone who reaches it. The
//! operator may choose that; [`exposure`] warns about it on the screen and in the log.

use std::net::IpAddr;

use evenkeel_common::{Configuration, HBaseError, Result};

use crate::io_error;

/// Settings that may require security: the key, the values that do not, and the missing feature.
const REFUSED: [(&str, &[&str], &str); 32] = [
    ("hbase.security.authentication", &["simple"], KERBEROS),
    ("hadoop.security.authentication", &["simple"], KERBEROS),
    ("hbase.security.authentication.ui", &[], KERBEROS),
    ("hbase.server.sasl.provider.extras", &[], KERBEROS),
    ("hbase.rpc.protection", &["authentication", "auth"], KERBEROS),
    ("hbase.rpc.crypto.encryption.aes.enabled", &["false"], KERBEROS),
    ("hadoop.rpc.protection", &["authentication"], KERBEROS),
    ("dfs.data.transfer.protection", &[], KERBEROS),
    ("dfs.encrypt.data.transfer", &["false"], "blocks are sent and read without encryption"),
    ("hbase.zookeeper.client.keytab.file", &[], KERBEROS),
    ("hbase.zookeeper.client.kerberos.principal", &[], KERBEROS),
    ("hbase.zookeeper.server.keytab.file", &[], KERBEROS),
    ("hbase.zookeeper.server.kerberos.principal", &[], KERBEROS),
    ("hbase.zookeeper.property.authProvider.1", &[], KERBEROS),
    ("hbase.zookeeper.property.requireClientAuthScheme", &[], KERBEROS),
    ("hbase.zookeeper.property.sessionRequireClientSASLAuth", &["false"], KERBEROS),
    ("hbase.security.authorization", &["false"], "there is no authorization"),
    ("hadoop.security.authorization", &["false"], "there is no authorization"),
    ("hbase.security.exec.permission.checks", &["false"], "there is no authorization"),
    ("hbase.security.visibility.mutations.checkauths", &["false"], VISIBILITY),
    ("hbase.regionserver.scan.visibility.label.generator.class", &[], VISIBILITY),
    ("hbase.coprocessor.visibility.label.service", &[], VISIBILITY),
    ("hbase.server.netty.tls.enabled", &["false"], "there is no TLS"),
    ("hbase.client.netty.tls.enabled", &["false"], "there is no TLS"),
    ("hbase.ssl.enabled", &["false"], "there is no TLS"),
    ("hbase.zookeeper.property.secureClientPort", &[], "there is no TLS"),
    ("hbase.zookeeper.property.client.secure", &["false"], "there is no TLS"),
    ("hbase.zookeeper.property.ssl.keyStore.location", &[], "there is no TLS"),
    ("hbase.zookeeper.property.ssl.trustStore.location", &[], "there is no TLS"),
    ("hbase.regionserver.wal.encryption", &["false"], ENCRYPTION),
    ("hbase.crypto.keyprovider", &[], ENCRYPTION),
    ("hbase.crypto.master.key.name", &[], ENCRYPTION),
];

/// Settings whose value is a class. HBase's encrypting classes are named `Secure...`, such as
/// `SecureProtobufLogReader`. Releases before 2.6 read the two names with `hlog`, and the manual of
/// HBase still tells to set them.
const CLASSES: [&str; 6] = [
    "hbase.regionserver.hlog.reader.impl",
    "hbase.regionserver.hlog.writer.impl",
    "hbase.regionserver.wal.stream.reader.impl",
    "hbase.regionserver.wal.writer.impl",
    "hbase.regionserver.wal.async.writer.impl",
    "hbase.regionserver.wal.codec",
];
const SECURE_CLASS: &str = "Secure";

const KERBEROS: &str = "there is no authentication and no protection of connections by it";
const VISIBILITY: &str = "there are no visibility labels";
const ENCRYPTION: &str = "files and logs are not encrypted";

/// Rejects a configuration that requires missing security features.
///
/// # Errors
/// One line that names the first such key, its value and the missing feature.
pub fn reject_unsupported(conf: &Configuration) -> Result<()> {
    for (key, open, missing) in REFUSED {
        reject(conf, key, missing, |value| !open.iter().any(|open| open.eq_ignore_ascii_case(value)))?;
    }
    let is_secure = |class: &str| class.rsplit('.').next().is_some_and(|name| name.starts_with(SECURE_CLASS));
    CLASSES.iter().try_for_each(|key| reject(conf, key, ENCRYPTION, is_secure))
}

fn reject(
    conf: &Configuration,
    key: &str,
    missing: &str,
    is_unsupported: impl Fn(&str) -> bool,
) -> Result<()> {
    if !conf.is_set(key) {
        return Ok(());
    }
    let value = conf.get_trimmed(key).map_err(io_error)?.unwrap_or_default();
    if value.is_empty() || !is_unsupported(&value) {
        return Ok(());
    }
    Err(HBaseError::io(format!(
        "{key}={value}: {missing}; the server does not start, as it would run without"
    )))
}

/// Returns the warning for an address that other machines can reach; `None` for loopback.
pub fn exposure(address: IpAddr) -> Option<String> {
    let open = "anyone who reaches it can read, change and delete everything: clients are not authenticated";
    (!address.is_loopback()).then(|| format!("open to the network at {address}; {open}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_settings_are_refused_by_name() {
        for (key, open, _) in REFUSED {
            let mut conf = Configuration::new();
            for value in open {
                conf.set(key, *value);
                assert_eq!(reject_unsupported(&conf), Ok(()), "{key}={value}");
            }
            for value in ["kerberos", " secured"] {
                conf.set(key, value);
                let error = reject_unsupported(&conf).expect_err(key);
                let starts = format!("{key}={}: ", value.trim());
                assert!(error.message().starts_with(&starts), "{}", error.message());
            }
        }
        assert_eq!(reject_unsupported(&Configuration::new()), Ok(()));
    }

    #[test]
    fn classes_that_encrypt_are_refused_by_name() {
        let package = "org.apache.hadoop.hbase.regionserver.wal";
        for key in CLASSES {
            let mut conf = Configuration::new();
            for class in ["ProtobufLogWriter", "WALCellCodec"] {
                conf.set(key, format!("{package}.{class}"));
                assert_eq!(reject_unsupported(&conf), Ok(()), "{key}={class}");
            }
            for class in ["SecureProtobufLogWriter", "SecureProtobufLogReader", "SecureWALCellCodec"] {
                conf.set(key, format!("{package}.{class}"));
                let error = reject_unsupported(&conf).expect_err(key);
                assert!(error.message().starts_with(&format!("{key}={package}.{class}: ")), "{error}");
            }
        }
    }

    #[test]
    fn every_setting_is_known() {
        let mut conf = Configuration::new();
        REFUSED.iter().map(|(key, ..)| *key).chain(CLASSES).for_each(|key| conf.set(key, "x"));
        assert!(conf.unknown_keys().is_empty(), "{:?}", conf.unknown_keys());
    }

    #[test]
    fn addresses_beyond_loopback_are_said() {
        let said = |address: &str| exposure(address.parse().expect("an address"));
        assert_eq!((said("127.0.0.1"), said("127.8.0.1"), said("::1")), (None, None, None));
        for address in ["0.0.0.0", "::", "10.1.2.3"] {
            assert!(said(address).is_some_and(|text| text.contains(address)), "{address}");
        }
    }
}
