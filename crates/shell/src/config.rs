//! How the shell finds and calls a cluster, by HBase's settings.

use evenkeel_client::ClientConfig;
use evenkeel_common::Configuration;

/// The environment variable that names the user, over what the system says (Hadoop's `UserGroupInformation`).
const USER_VARIABLE: &str = "HADOOP_USER_NAME";

/// Variables that name the user where the system has no name for the process's.
const LOGIN_VARIABLES: &[&str] = &["USER", "LOGNAME"];

/// The setting that names the user, over the environment.
const USER_KEY: &str = "hbase.client.user";

/// Settings of which the first that is set tells the registry, where none is named.
const REGISTRIES: &[(&str, &str)] = &[
    ("hbase.zookeeper.quorum", "ZKConnectionRegistry"),
    ("hbase.client.bootstrap.servers", "RpcConnectionRegistry"),
    ("hbase.masters", "RpcConnectionRegistry"),
];

/// The setting that names the registry.
const REGISTRY_KEY: &str = "hbase.client.registry.impl";

/// The user that calls are made as.
pub fn user() -> String {
    let set = |name: &&str| std::env::var(name).ok().filter(|user| !user.is_empty());
    let named = set(&USER_VARIABLE).or_else(system_user).or_else(|| LOGIN_VARIABLES.iter().find_map(set));
    named.unwrap_or_else(|| "evenkeel".to_owned())
}

/// The name of the process's user by `/etc/passwd`.
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

/// The client's settings. Where no registry is named it is ZooKeeper, as in HBase 2, unless there are only addresses of
/// masters or bootstrap servers.
///
/// # Errors
/// A value that cannot be used, in words.
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
