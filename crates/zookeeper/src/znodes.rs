//! HBase's znodes: their paths and contents.
//!
//! ```text
//! | FF | length int | writer's name, 8 bytes of salt | P B U F | protobuf message |
//! ```
//!
//! `length` counts name and salt. Nodes without a message are empty, without this framing. HBase's
//! readers do not need the first part; gohbase and asynchbase require it.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::length;
use evenkeel_common::{ConfigError, Configuration, ServerName, TableName};
use evenkeel_protocol::{pb, with_magic};
use prost::Message;

use super::tree::{InvalidPath, ZnodeTree};

/// First byte of framed data.
const METADATA_MAGIC: u8 = 0xFF;

/// Longest name of a writer, so that the length stays within the limit of gohbase (65000).
const WRITER_BYTES_MAX: usize = 1024;

/// The greatest id of a replica: names of regions have it as four hexadecimal digits.
const META_REPLICA_ID_MAX: i32 = 0xFFFF;

/// Bytes of memory that a node takes besides its path and its data.
const NODE_BYTES: usize = 128;

/// Empty nodes below the parent that exist after the first start of a master.
const EMPTY_NODES: [&str; 14] = [
    "master-maintenance",
    "splitWAL",
    "balancer",
    "normalizer",
    "switch/split",
    "switch/merge",
    "snapshot-cleanup",
    "online-snapshot/acquired",
    "online-snapshot/reached",
    "online-snapshot/abort",
    "flush-table-proc/acquired",
    "flush-table-proc/reached",
    "flush-table-proc/abort",
    "replication/hfile-refs",
];

/// Paths of HBase's znodes, by `zookeeper.znode.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodePaths {
    /// The parent of all, `/hbase`.
    pub parent: String,
    /// Id of the cluster.
    pub cluster_id: String,
    /// Address of the active master.
    pub master: String,
    /// Addresses of backup masters, a child each.
    pub backup_masters: String,
    /// Address of the server of hbase:meta's default replica. That of another replica has `-` and
    /// its id behind it.
    pub meta_region_server: String,
    /// Live RegionServers, a child each.
    pub rs: String,
    /// Draining RegionServers, which get no more regions, a child each.
    pub draining: String,
    /// Exists while the cluster is up.
    pub running: String,
    /// States of tables, a child each.
    pub table: String,
    /// Namespaces, a child each.
    pub namespace: String,
    /// Peers of replication.
    pub replication_peers: String,
    /// Queues of replication.
    pub replication_queues: String,
    /// The switch of throttles: metadata, then one byte, 0 for off. Throttles are on if it does not
    /// exist.
    pub rpc_throttle: String,
}

impl ZnodePaths {
    /// Reads the paths from `zookeeper.znode.*`.
    ///
    /// # Errors
    /// Returns an error if variable references in a value are circular.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        let parent = conf.get_str_or("zookeeper.znode.parent", "/hbase".to_owned())?;
        let parent = parent.trim_end_matches('/').to_owned();
        let below = |base: &str, key: &str, name: &str| {
            let name = conf.get_str_or(&format!("zookeeper.znode.{key}"), name.to_owned())?;
            Ok::<_, ConfigError>(format!("{base}/{name}"))
        };
        let child = |key: &str, name: &str| below(&parent, key, name);
        let replication = child("replication", "replication")?;
        Ok(Self {
            cluster_id: child("clusterId", "hbaseid")?,
            master: child("master", "master")?,
            backup_masters: child("backup.masters", "backup-masters")?,
            meta_region_server: child("metaserver", "meta-region-server")?,
            rs: child("rs", "rs")?,
            draining: child("draining.rs", "draining")?,
            running: child("state", "running")?,
            table: child("tableEnableDisable", "table")?,
            namespace: child("namespace", "namespace")?,
            replication_peers: below(&replication, "replication.peers", "peers")?,
            replication_queues: below(&replication, "replication.rs", "rs")?,
            rpc_throttle: child("quota.rpc.throttle", "rpc-throttle")?,
            parent,
        })
    }

    /// Returns the path of a replica of hbase:meta (`ZNodePaths.getZNodeForReplica`).
    pub fn meta_replica(&self, id: i32) -> String {
        match id {
            0 => self.meta_region_server.clone(),
            id => format!("{}-{id}", self.meta_region_server),
        }
    }

    /// Returns the id of the replica of hbase:meta whose node a child of the parent is; `None` for
    /// another child (`ZNodePaths.getMetaReplicaIdFromZNode`).
    pub fn meta_replica_id(&self, child: &str) -> Option<i32> {
        let of_default = self.meta_region_server.strip_prefix(&self.parent)?.strip_prefix('/')?;
        match child.strip_prefix(of_default)? {
            "" => Some(0),
            rest => rest.strip_prefix('-')?.parse().ok().filter(|id| (1..=META_REPLICA_ID_MAX).contains(id)),
        }
    }
}

/// Publishes what HBase keeps in ZooKeeper into a [`ZnodeTree`].
#[derive(Clone, Debug)]
pub struct Znodes {
    tree: Arc<ZnodeTree>,
    paths: ZnodePaths,
    writer: String,
}

impl Znodes {
    /// `writer` identifies this process in the nodes' metadata, such as `master:16000`.
    pub fn new(tree: Arc<ZnodeTree>, paths: ZnodePaths, writer: &str) -> Self {
        Self { tree, paths, writer: writer.to_owned() }
    }

    /// The paths in use.
    pub fn paths(&self) -> &ZnodePaths {
        &self.paths
    }

    /// The tree that it writes to.
    pub fn tree(&self) -> &Arc<ZnodeTree> {
        &self.tree
    }

    /// Creates the parent and the nodes that always exist.
    ///
    /// # Errors
    /// Returns an error if a path from the settings is invalid.
    pub fn create_base_nodes(&self) -> Result<(), InvalidPath> {
        let paths = &self.paths;
        let named = [
            &paths.rs,
            &paths.draining,
            &paths.backup_masters,
            &paths.table,
            &paths.namespace,
            &paths.replication_peers,
            &paths.replication_queues,
        ];
        named.into_iter().try_for_each(|path| self.tree.ensure(path).map(drop))?;
        EMPTY_NODES
            .iter()
            .try_for_each(|name| self.tree.ensure(&format!("{}/{name}", paths.parent)).map(drop))
    }

    /// Sets the cluster's id, a UUID as text.
    ///
    /// # Errors
    /// Returns an error if the path from the settings is invalid.
    pub fn set_cluster_id(&self, id: &str) -> Result<(), InvalidPath> {
        self.put(&self.paths.cluster_id, &pb::ClusterId { cluster_id: id.to_owned() })
    }

    /// Sets the active master and the port of its pages, or removes the node.
    ///
    /// # Errors
    /// Returns an error if the path from the settings is invalid.
    pub fn set_master(&self, master: Option<(&ServerName, u32)>) -> Result<(), InvalidPath> {
        let message = master.map(|(server, info_port)| master_message(server, info_port));
        self.put_or_remove(&self.paths.master, message.as_ref())
    }

    /// Adds a backup master, or removes it.
    ///
    /// # Errors
    /// Returns an error if the name forms no valid path.
    pub fn set_backup_master(&self, server: &ServerName, info_port: Option<u32>) -> Result<(), InvalidPath> {
        let path = format!("{}/{server}", self.paths.backup_masters);
        let message = info_port.map(|info_port| master_message(server, info_port));
        self.put_or_remove(&path, message.as_ref())
    }

    /// Sets the server that has hbase:meta's default replica open, or removes the node.
    ///
    /// # Errors
    /// Returns an error if the path from the settings is invalid.
    pub fn set_meta_region_server(&self, server: Option<&ServerName>) -> Result<(), InvalidPath> {
        self.put_or_remove(&self.paths.meta_region_server, server.map(meta_message).as_ref())
    }

    /// Sets the server that has these secondary replicas of hbase:meta open, and removes the nodes
    /// of others.
    ///
    /// # Errors
    /// Returns an error if the path from the settings is invalid.
    pub fn set_meta_replicas(&self, server: &ServerName, open: &BTreeSet<i32>) -> Result<(), InvalidPath> {
        let nodes = self.tree.children(&self.paths.parent).unwrap_or_default();
        let known: BTreeSet<i32> =
            nodes.iter().filter_map(|node| self.paths.meta_replica_id(node)).filter(|id| *id != 0).collect();
        for gone in known.difference(open) {
            self.tree.remove(&self.paths.meta_replica(*gone));
        }
        open.difference(&known)
            .try_for_each(|id| self.put(&self.paths.meta_replica(*id), &meta_message(server)))
    }

    /// Adds a live RegionServer.
    ///
    /// # Errors
    /// Returns an error if the name forms no valid path.
    pub fn add_region_server(
        &self,
        server: &ServerName,
        info_port: i32,
        version: pb::VersionInfo,
    ) -> Result<(), InvalidPath> {
        let message = pb::RegionServerInfo { info_port: Some(info_port), version_info: Some(version) };
        self.put(&format!("{}/{server}", self.paths.rs), &message)
    }

    /// Removes a RegionServer. Returns true if it existed.
    pub fn remove_region_server(&self, server: &ServerName) -> bool {
        self.tree.remove(&format!("{}/{server}", self.paths.rs))
    }

    /// Marks a RegionServer as draining, or removes the mark.
    ///
    /// # Errors
    /// Returns an error if the name forms no valid path.
    pub fn set_draining(&self, server: &ServerName, draining: bool) -> Result<(), InvalidPath> {
        let path = format!("{}/{server}", self.paths.draining);
        if draining {
            return self.tree.ensure(&path).map(drop);
        }
        self.tree.remove(&path);
        Ok(())
    }

    /// Marks the cluster as up since `start_date`, a text for people, or as down.
    ///
    /// # Errors
    /// Returns an error if the path from the settings is invalid.
    pub fn set_running(&self, start_date: Option<&str>) -> Result<(), InvalidPath> {
        let message = start_date.map(|date| pb::ClusterUp { start_date: date.to_owned() });
        self.put_or_remove(&self.paths.running, message.as_ref())
    }

    /// Sets the state of a table, for 1.x clients, or removes the table.
    ///
    /// # Errors
    /// Returns an error if the name forms no valid path.
    pub fn set_table_state(
        &self,
        table: &TableName,
        state: Option<pb::deprecated_table_state::State>,
    ) -> Result<(), InvalidPath> {
        let message = state.map(|state| pb::DeprecatedTableState { state: state.into() });
        self.put_or_remove(&format!("{}/{table}", self.paths.table), message.as_ref())
    }

    /// Adds or updates a namespace.
    ///
    /// # Errors
    /// Returns an error if the name forms no valid path.
    pub fn set_namespace(&self, name: &str, descriptor: &pb::NamespaceDescriptor) -> Result<(), InvalidPath> {
        self.put(&format!("{}/{name}", self.paths.namespace), descriptor)
    }

    /// Returns about how many bytes of memory a namespace's node takes.
    pub fn namespace_bytes(&self, name: &str, descriptor: &pb::NamespaceDescriptor) -> usize {
        let path = format!("{}/{name}", self.paths.namespace);
        node_bytes(&path, &frame(&self.writer, descriptor))
    }

    /// Returns about how many bytes the nodes of all namespaces take after
    /// [`Znodes::set_namespace`] with these parameters. Takes time in proportion to the number of
    /// namespaces.
    pub fn namespace_bytes_with(&self, name: &str, descriptor: &pb::NamespaceDescriptor) -> usize {
        let others = self.tree.sum_of_children(&self.paths.namespace, name, node_bytes);
        others + self.namespace_bytes(name, descriptor)
    }

    /// Removes a namespace. Returns true if it existed.
    pub fn remove_namespace(&self, name: &str) -> bool {
        !name.is_empty() && self.tree.remove(&format!("{}/{name}", self.paths.namespace))
    }

    /// Sets the switch of throttles, as HBase's `Bytes.toBytes(boolean)`.
    ///
    /// # Errors
    /// Returns an error if the path from the settings is invalid.
    pub fn set_rpc_throttle(&self, on: bool) -> Result<(), InvalidPath> {
        let value: &[u8] = if on { &[0xff] } else { &[0] };
        self.tree.set(&self.paths.rpc_throttle, frame_bytes(&self.writer, value)).map(drop)
    }

    fn put(&self, path: &str, message: &impl Message) -> Result<(), InvalidPath> {
        self.tree.set(path, frame(&self.writer, message)).map(drop)
    }

    fn put_or_remove(&self, path: &str, message: Option<&impl Message>) -> Result<(), InvalidPath> {
        match message {
            Some(message) => self.put(path, message),
            None => {
                self.tree.remove(path);
                Ok(())
            }
        }
    }
}

/// Returns about how many bytes of memory a node takes.
fn node_bytes(path: &str, data: &[u8]) -> usize {
    NODE_BYTES + path.len() + data.len()
}

fn meta_message(server: &ServerName) -> pb::MetaRegionServer {
    let state = Some(pb::region_state::State::Open.into());
    pb::MetaRegionServer { server: server.into(), rpc_version: Some(0), state }
}

fn master_message(server: &ServerName, info_port: u32) -> pb::Master {
    pb::Master { master: server.into(), rpc_version: Some(0), info_port: Some(info_port) }
}

/// Frames a message as a znode's data; see the module documentation. A writer's name is truncated
/// to 1024 bytes.
pub fn frame(writer: &str, message: &impl Message) -> Bytes {
    frame_bytes(writer, &with_magic(message))
}

/// Frames bytes as a znode's data, as [`frame`].
fn frame_bytes(writer: &str, bytes: &[u8]) -> Bytes {
    let writer = writer.as_bytes();
    let writer = writer.get(..WRITER_BYTES_MAX).unwrap_or(writer);
    // The salt only has to differ between writes; a fresh hasher's keys do.
    let salt = RandomState::new().build_hasher().finish().to_be_bytes();
    let length = length::must_u32(writer.len() + salt.len());
    let mut data = Vec::with_capacity(5 + writer.len() + salt.len() + bytes.len());
    data.push(METADATA_MAGIC);
    data.extend(length.to_be_bytes());
    data.extend(writer);
    data.extend(salt);
    data.extend(bytes);
    data.into()
}

/// Returns what the data of the switch of throttles says: true unless it is 0, also if it cannot be
/// read.
pub fn is_rpc_throttle_on(data: &[u8]) -> bool {
    unframe(data).and_then(<[u8]>::first).is_none_or(|on| *on != 0)
}

/// Returns the part of a znode's data after the metadata: `PBUF` and the message. `None` if the
/// metadata is truncated.
pub fn unframe(data: &[u8]) -> Option<&[u8]> {
    let Some((&METADATA_MAGIC, rest)) = data.split_first() else { return Some(data) };
    let (length, rest) = rest.split_first_chunk::<4>()?;
    rest.get(usize::try_from(u32::from_be_bytes(*length)).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn znodes() -> Znodes {
        let paths = ZnodePaths::from_configuration(&Configuration::new()).expect("defaults");
        Znodes::new(Arc::new(ZnodeTree::new()), paths, "master:16000")
    }

    fn message<M: Message + Default>(znodes: &Znodes, path: &str) -> M {
        let (data, _) = znodes.tree.get(path).expect(path);
        evenkeel_protocol::from_magic(unframe(&data).expect("metadata")).expect("message")
    }

    #[test]
    fn a_znode_frame_has_the_documented_layout() {
        let data = frame("m:1", &pb::ClusterId { cluster_id: "ab".into() });
        assert_eq!(data[..8], [0xFF, 0, 0, 0, 11, b'm', b':', b'1']);
        assert_eq!(data[16..], *b"PBUF\x0A\x02ab");
        assert_eq!(unframe(&data), Some(&data[16..]));
        assert_eq!(unframe(b"PBUF"), Some(&b"PBUF"[..]));
        for cut in 1..16 {
            assert_eq!(unframe(&data[..cut]), None, "{cut}");
        }
        assert_eq!(frame(&"w".repeat(70_000), &pb::ClusterUp::default())[1..5], 1032_u32.to_be_bytes());
    }

    #[test]
    fn the_switch_of_throttles_is_framed() {
        let znodes = znodes();
        for on in [false, true] {
            znodes.set_rpc_throttle(on).unwrap();
            let (data, _) = znodes.tree.get("/hbase/rpc-throttle").unwrap();
            assert_eq!((data[0], unframe(&data).map(<[u8]>::len)), (METADATA_MAGIC, Some(1)));
            assert_eq!(is_rpc_throttle_on(&data), on);
        }
        // As a stock master writes it: the magic, a length, an id with a salt, and the value.
        let of_hbase = |value| [b"\xff\0\0\0\x0dmaster:16000\0".as_slice(), &[value]].concat();
        assert_eq!([0, 0xff].map(|value| is_rpc_throttle_on(&of_hbase(value))), [false, true]);
        assert!(is_rpc_throttle_on(b"") && is_rpc_throttle_on(b"\xff"));
    }

    #[test]
    fn a_cluster_is_published_and_withdrawn() {
        let znodes = znodes();
        let server = ServerName::new("Host.example", 16020, 1_700_000_000_000);
        znodes.create_base_nodes().unwrap();
        znodes.set_cluster_id("0b0c").unwrap();
        znodes.set_master(Some((&server, 16010))).unwrap();
        znodes.set_backup_master(&server, Some(16010)).unwrap();
        znodes.set_meta_region_server(Some(&server)).unwrap();
        znodes.add_region_server(&server, 16030, pb::VersionInfo::default()).unwrap();
        znodes.set_running(Some("today")).unwrap();
        let table: TableName = "ns:t".parse().unwrap();
        znodes.set_table_state(&table, Some(pb::deprecated_table_state::State::Disabled)).unwrap();
        znodes
            .set_namespace("ns", &pb::NamespaceDescriptor { name: "ns".into(), ..Default::default() })
            .unwrap();

        assert_eq!(message::<pb::ClusterId>(&znodes, "/hbase/hbaseid").cluster_id, "0b0c");
        let master: pb::Master = message(&znodes, "/hbase/master");
        assert_eq!((master.master.host_name.as_str(), master.info_port), ("host.example", Some(16010)));
        let meta: pb::MetaRegionServer = message(&znodes, "/hbase/meta-region-server");
        assert_eq!((meta.server.start_code, meta.state), (Some(1_700_000_000_000), Some(3)));
        assert_eq!(znodes.tree.children("/hbase/rs").unwrap(), ["host.example,16020,1700000000000"]);
        assert_eq!(message::<pb::DeprecatedTableState>(&znodes, "/hbase/table/ns:t").state, 1);
        assert_eq!(message::<pb::NamespaceDescriptor>(&znodes, "/hbase/namespace/ns").name[..], b"ns"[..]);
        assert!(znodes.tree.get("/hbase/balancer").unwrap().0.is_empty());

        znodes.set_master(None).unwrap();
        znodes.set_meta_region_server(None).unwrap();
        znodes.set_table_state(&table, None).unwrap();
        assert!(znodes.remove_region_server(&server) && !znodes.remove_region_server(&server));
        for gone in ["/hbase/master", "/hbase/meta-region-server", "/hbase/table/ns:t"] {
            assert!(znodes.tree.exists(gone).is_none(), "{gone}");
        }
    }

    #[test]
    fn each_open_replica_of_meta_has_a_node() {
        let znodes = znodes();
        let server = ServerName::new("host.example", 16020, 7);
        znodes.create_base_nodes().unwrap();
        znodes.set_meta_region_server(Some(&server)).unwrap();
        let published = || {
            let nodes = znodes.tree.children("/hbase").unwrap();
            nodes.into_iter().filter(|node| node.starts_with("meta-region-server")).collect::<Vec<_>>()
        };
        for (open, expected) in [(vec![1, 12], vec!["-1", "-12"]), (vec![12], vec!["-12"]), (vec![], vec![])]
        {
            znodes.set_meta_replicas(&server, &open.into_iter().collect()).unwrap();
            let expected = [""].into_iter().chain(expected);
            let expected: Vec<_> = expected.map(|suffix| format!("meta-region-server{suffix}")).collect();
            assert_eq!(published(), expected);
        }
        znodes.set_meta_replicas(&server, &BTreeSet::from([3])).unwrap();
        let replica: pb::MetaRegionServer = message(&znodes, "/hbase/meta-region-server-3");
        assert_eq!((replica.server.start_code, replica.state), (Some(7), Some(3)));
    }

    #[test]
    fn nodes_of_replicas_have_their_ids() {
        let paths = ZnodePaths::from_configuration(&Configuration::new()).unwrap();
        for id in [0, 1, 65_535] {
            let path = paths.meta_replica(id);
            assert_eq!(paths.meta_replica_id(path.strip_prefix("/hbase/").unwrap()), Some(id));
        }
        assert_eq!(paths.meta_replica(2), "/hbase/meta-region-server-2");
        for other in ["master", "meta-region-server-", "meta-region-server-x", "meta-region-server-65536"] {
            assert_eq!(paths.meta_replica_id(other), None, "{other}");
        }
    }

    #[test]
    fn paths_follow_the_settings() {
        let mut conf = Configuration::new();
        conf.set("zookeeper.znode.parent", "/a/b/");
        conf.set("zookeeper.znode.metaserver", "m");
        let paths = ZnodePaths::from_configuration(&conf).unwrap();
        assert_eq!((paths.parent.as_str(), paths.meta_region_server.as_str()), ("/a/b", "/a/b/m"));
        assert_eq!(paths.replication_peers, "/a/b/replication/peers");
        conf.set("zookeeper.znode.parent", "no/slash");
        let paths = ZnodePaths::from_configuration(&conf).unwrap();
        let znodes = Znodes::new(Arc::new(ZnodeTree::new()), paths, "w");
        assert!(znodes.create_base_nodes().is_err());
    }
}
