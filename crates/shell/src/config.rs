//! How the shell finds and calls a cluster, by HBase's settings.

use evenkeel_client::ClientConfig;
use evenkeel_common::Configuration;

/// Environment variables that name the user, the first one set wins; Hadoop's goes before the system's.
const USER_VARIABLES: &[&str] = &["HADOOP_USER_NAME", "USER", "LOGNAME"];

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
    USER_VARIABLES.iter().find_map(set).unwrap_or_else(|| "evenkeel".to_owned())
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
