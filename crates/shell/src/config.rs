//! The client's settings, from HBase's settings.

use evenkeel_client::ClientConfig;
use evenkeel_common::Configuration;

/// The environment variable that overrides the system's user (Hadoop's `UserGroupInformation`).
const USER_VARIABLE: &str = "HADOOP_USER_NAME";

/// Environment variables for the user, if the system has no name for it.
const LOGIN_VARIABLES: &[&str] = &["USER", "LOGNAME"];

/// The setting that overrides the environment's user.
const USER_KEY: &str = "hbase.client.user";

/// If no registry is named, the first of these settings that is set selects it.
const REGISTRIES: &[(&str, &str)] = &[
    ("hbase.zookeeper.quorum", "ZKConnectionRegistry"),
    ("hbase.client.bootstrap.servers", "RpcConnectionRegistry"),
    ("hbase.masters", "RpcConnectionRegistry"),
];

/// The setting that names the registry.
const REGISTRY_KEY: &str = "hbase.client.registry.impl";

/// The user of the calls.
pub fn user() -> String {
    let set = |name: &&str| std::env::var(name).ok().filter(|user| !user.is_empty());
    let named = set(&USER_VARIABLE).or_else(system_user).or_else(|| LOGIN_VARIABLES.iter().find_map(set));
    named.unwrap_or_else(|| "evenkeel".to_owned())
}

/// The name of the process's user in `/etc/passwd`.
fn system_user() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let id = std::fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let name_of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    };
    users.lines().find_map(name_of).filter(|name| !name.is_empty())
}

/// The client's settings. The default registry is ZooKeeper, as in HBase 2, unless only addresses
/// of masters or bootstrap servers are set.
///
/// # Errors
/// A description of the invalid value.
pub fn client_config(conf: &Configuration) -> Result<ClientConfig, String> {
    let mut conf = conf.clone();
    if !conf.is_set(REGISTRY_KEY)
        && let Some((_, registry)) = REGISTRIES.iter().find(|(key, _)| conf.is_set(key))
    {
        conf.set(REGISTRY_KEY, *registry);
    }
    if !conf.is_set(USER_KEY) {
        conf.set(USER_KEY, user());
    }
    ClientConfig::from_configuration(&conf).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use evenkeel_client::config::Registry;

    use super::*;

    #[test]
    fn the_registry_is_that_of_the_addresses() {
        let mut conf = Configuration::new();
        let is_zookeeper = |conf: &Configuration| {
            matches!(client_config(conf).expect("usable").registry, Registry::ZooKeeper { .. })
        };
        assert!(is_zookeeper(&conf));
        conf.set("hbase.masters", "m:1,n");
        assert!(!is_zookeeper(&conf));
        conf.set("hbase.zookeeper.quorum", "z");
        assert!(is_zookeeper(&conf));
        conf.set("hbase.client.pause", "soon");
        assert!(client_config(&conf).is_err());
    }
}
