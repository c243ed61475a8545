//! Commands of HBase's shell that are not supported, by HBase's groups. They get a specific error,
//! so that they do not look misspelt.

use crate::error::RubyError;

/// HBase's groups and their unsupported commands.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    ("general", &["processlist"]),
    (
        "tools",
        &[
            "flush_master_store",
            "get_balancer_decisions",
            "get_balancer_rejections",
            "hbck_chore_run",
            "stop_master",
            "stop_regionserver",
            "trace",
            "zk_dump",
        ],
    ),
    (
        "replication",
        &[
            "add_peer",
            "append_peer_exclude_namespaces",
            "append_peer_exclude_tableCFs",
            "append_peer_namespaces",
            "append_peer_tableCFs",
            "disable_peer",
            "disable_table_replication",
            "enable_peer",
            "enable_table_replication",
            "get_peer_config",
            "list_peer_configs",
            "list_peers",
            "list_replicated_tables",
            "peer_modification_enabled",
            "peer_modification_switch",
            "remove_peer",
            "remove_peer_exclude_namespaces",
            "remove_peer_exclude_tableCFs",
            "remove_peer_namespaces",
            "remove_peer_tableCFs",
            "set_peer_bandwidth",
            "set_peer_exclude_namespaces",
            "set_peer_exclude_tableCFs",
            "set_peer_namespaces",
            "set_peer_replicate_all",
            "set_peer_serial",
            "set_peer_tableCFs",
            "show_peer_tableCFs",
            "update_peer_config",
        ],
    ),
    ("configuration", &["update_rsgroup_config"]),
    ("security", &["grant", "list_security_capabilities", "revoke", "user_permission"]),
    ("procedures", &["list_locks", "list_procedures"]),
    (
        "visibility labels",
        &["add_labels", "clear_auths", "get_auths", "list_labels", "set_auths", "set_visibility"],
    ),
    (
        "rsgroup",
        &[
            "add_rsgroup",
            "alter_rsgroup_config",
            "balance_rsgroup",
            "get_namespace_rsgroup",
            "get_rsgroup",
            "get_server_rsgroup",
            "get_table_rsgroup",
            "list_rsgroups",
            "move_namespaces_rsgroup",
            "move_servers_namespaces_rsgroup",
            "move_servers_rsgroup",
            "move_servers_tables_rsgroup",
            "move_tables_rsgroup",
            "remove_rsgroup",
            "remove_servers_rsgroup",
            "rename_rsgroup",
            "show_rsgroup_config",
        ],
    ),
];

/// The error for an unsupported command; `None` for any other name.
pub fn refusal(name: &str) -> Option<RubyError> {
    let (group, _) = GROUPS.iter().find(|(_, names)| names.contains(&name))?;
    Some(RubyError::runtime(format!("{name}, of the group {group}, is not supported by this shell")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_commands_are_not_refused() {
        let names = || GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
        assert!(names().all(|name| crate::command::find(name).is_none()));
        let refusal = refusal("list_peers").expect("it is not there").message;
        assert_eq!(refusal, "list_peers, of the group replication, is not supported by this shell");
        assert!(super::refusal("get").is_none() && super::refusal("nonsense").is_none());
    }
}
