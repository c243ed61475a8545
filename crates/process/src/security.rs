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
pub(crate) const REFUSED: [(&str, &[&str], &str); 32] = [
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
    ("hbase.regionserver.visibility.label.service.class", &[], VISIBILITY),
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
/// HBase still recommends them.
const CLASSES: [&str; 6] = [
    "hbase.regionserver.hlog.reader.impl",
    "hbase.regionserver.hlog.writer.impl",
    "hbase.regionserver.wal.stream.reader.impl",
    "hbase.regionserver.wal.writer.impl",
    "hbase.regionserver.wal.async.writer.impl",
    "hbase.regionserver.wal.codec",
];
const SECURE_CLASS: &str = "Secure";

/// Filters of the info ports.
const PAGE_FILTERS: &str = "hbase.http.filter.initializers";
const MASTER_ADDRESS: &str = "hbase.master.ipc.address";

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
    CLASSES.iter().try_for_each(|key| reject(conf, key, ENCRYPTION, is_secure))?;
    // A list of classes such as AuthenticationFilterInitializer.
    reject(conf, PAGE_FILTERS, KERBEROS, |classes| classes.contains("Authentication"))
}

/// Rejects an address of the master's port that only this machine reaches, if the port is bound to
/// one that others reach: all ports are bound to `hbase.regionserver.ipc.address`.
///
/// # Errors
/// One line that names the setting and both addresses.
pub fn reject_open_master(conf: &Configuration, bound: IpAddr) -> Result<()> {
    let is_narrower = |text: &str| {
        let address = text.parse::<IpAddr>();
        (text == "localhost" || address.is_ok_and(|address| address.is_loopback())) && !bound.is_loopback()
    };
    let missing = format!("all ports are bound to hbase.regionserver.ipc.address={bound}");
    reject(conf, MASTER_ADDRESS, &missing, is_narrower)
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
    Err(HBaseError::io(format!("{key}={value}: {missing}; the server does not start without it")))
}

/// Returns the warning for an address that other machines can reach; `None` for loopback.
pub fn exposure(address: IpAddr) -> Option<String> {
    let open = "anyone who reaches it can read, change and delete everything: clients are not authenticated";
    (!address.is_loopback()).then(|| format!("open to the network at {address}; {open}"))
}

/// Returns the warning for an address of an info port that other machines can reach, although the
/// RPC ports are bound to `rpc`, which they cannot reach.
pub fn page_exposure(address: IpAddr, rpc: IpAddr) -> Option<String> {
    let open = "anyone who reaches it can read row keys and settings, and change log levels";
    (rpc.is_loopback() && !address.is_loopback())
        .then(|| format!("pages open to the network at {address}; {open}"))
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
    fn filters_that_authenticate_are_refused() {
        let mut conf = Configuration::new();
        conf.set(PAGE_FILTERS, "org.apache.hadoop.hbase.http.lib.StaticUserWebFilter");
        assert_eq!(reject_unsupported(&conf), Ok(()));
        conf.set(PAGE_FILTERS, "a.Filter, org.apache.hadoop.security.AuthenticationFilterInitializer");
        assert!(reject_unsupported(&conf).expect_err("open").message().starts_with(PAGE_FILTERS));
    }

    #[test]
    fn a_master_that_only_its_machine_reaches_is_not_opened() {
        let rejected = |master: &str, bound: &str| {
            let mut conf = Configuration::new();
            conf.set(MASTER_ADDRESS, master);
            reject_open_master(&conf, bound.parse().expect("an address")).is_err()
        };
        for (master, bound) in [("127.0.0.1", "0.0.0.0"), ("localhost", "10.1.2.3"), ("::1", "::")] {
            assert!(rejected(master, bound), "{master} {bound}");
        }
        for (master, bound) in [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("10.1.2.3", "::")] {
            assert!(!rejected(master, bound), "{master} {bound}");
        }
    }

    #[test]
    fn every_setting_is_known() {
        let mut conf = Configuration::new();
        let own = [PAGE_FILTERS, MASTER_ADDRESS];
        REFUSED.iter().map(|(key, ..)| *key).chain(CLASSES).chain(own).for_each(|key| conf.set(key, "x"));
        assert!(conf.unknown_keys().is_empty(), "{:?}", conf.unknown_keys());
    }

    #[test]
    fn addresses_beyond_loopback_are_said() {
        let said = |address: &str| exposure(address.parse().expect("an address"));
        assert_eq!((said("127.0.0.1"), said("127.8.0.1"), said("::1")), (None, None, None));
        for address in ["0.0.0.0", "::", "10.1.2.3"] {
            assert!(said(address).is_some_and(|text| text.contains(address)), "{address}");
        }
        let pages = |address: &str, rpc: &str| {
            page_exposure(address.parse().expect("an address"), rpc.parse().expect("an address"))
        };
        assert!(pages("0.0.0.0", "127.0.0.1").is_some_and(|text| text.contains("0.0.0.0")));
        assert_eq!((pages("0.0.0.0", "0.0.0.0"), pages("::1", "127.0.0.1")), (None, None));
    }
}
