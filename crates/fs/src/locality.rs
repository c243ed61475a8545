//! Locality: how many bytes of a file's blocks this server's host stores.
//!
//! HBase's `HDFSBlocksDistribution` maps each host of a region to the sum of the lengths of the
//! blocks that it stores, and reports the share of the server's own host. Only that share is kept
//! here: [`BlocksWeight`], three sums for each store file, computed when the file is opened. Like
//! in HBase, it changes only when the file is opened again.
//!
//! The server's host is the host of its server name. A file system without hosts of its own says
//! `localhost` for all blocks, as Hadoop's local file system does. `localhost` means this server if
//! no other host matches, and the server's name is the default name of the machine (HBASE-24569).

use std::net::IpAddr;
use std::ops::AddAssign;

/// The host of all blocks of a local file.
pub const LOCALHOST: &str = "localhost";

/// The host of this server, with which the hosts of blocks are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalHost {
    name: String,
    /// The same as an address, if the server's name is one.
    address: Option<IpAddr>,
    /// True if `localhost` is this server, too.
    is_default: bool,
}

impl Default for LocalHost {
    fn default() -> Self {
        Self::on_machine(LOCALHOST, LOCALHOST)
    }
}

impl LocalHost {
    /// Returns the host of a server with this host name on this machine.
    pub fn new(name: &str) -> Self {
        let uname = rustix::system::uname();
        Self::on_machine(name, &uname.nodename().to_string_lossy())
    }

    /// As [`LocalHost::new`], on a machine of this name. The server's name is the machine's default
    /// name if both are equal, if it adds a domain to the machine's name, or if it is a loopback
    /// address.
    pub fn on_machine(name: &str, machine: &str) -> Self {
        let address: Option<IpAddr> = name.parse().ok();
        let head = name.get(..machine.len()).filter(|head| head.eq_ignore_ascii_case(machine));
        let rest = head.and_then(|head| name.get(head.len()..));
        let is_machine = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let is_loopback = name == LOCALHOST || address.is_some_and(|address| address.is_loopback());
        Self { name: name.to_owned(), address, is_default: is_machine || is_loopback }
    }

    fn is(&self, host: &BlockHost<'_>) -> bool {
        host.name.eq_ignore_ascii_case(&self.name)
            || (self.address.is_some() && host.address.parse::<IpAddr>().ok() == self.address)
    }
}

/// A host that stores a replica of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHost<'a> {
    /// Its host name.
    pub name: &'a str,
    /// Its IP address; may be empty.
    pub address: &'a str,
    /// True if the replica is on an SSD.
    pub is_ssd: bool,
}

impl BlockHost<'static> {
    /// The host of all blocks of a local file.
    pub const LOCAL: Self = Self { name: LOCALHOST, address: "", is_ssd: false };
}

/// Sums of the lengths of blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlocksWeight {
    /// All blocks (`blocksTotalWeight`).
    pub total: u64,
    /// The blocks with a replica on this server's host (`blocksLocalWeight`). A block counts once
    /// for each replica, as in HBase: two DataNodes of one host are only found in tests.
    pub local: u64,
    /// The blocks with such a replica on an SSD (`blocksLocalWithSsdWeight`).
    pub local_with_ssd: u64,
}

impl BlocksWeight {
    /// Returns the weight of these blocks: each has a length and hosts. A block without hosts does
    /// not count.
    pub fn of_blocks<'a, H>(at: &LocalHost, blocks: impl Iterator<Item = (u64, H)>) -> Self
    where
        H: Iterator<Item = BlockHost<'a>>,
    {
        let (mut own, mut localhost) = (Self::default(), Self::default());
        let mut is_named = false;
        for (bytes, hosts) in blocks {
            let mut has_host = false;
            for host in hosts {
                has_host = true;
                if at.is(&host) {
                    is_named = true;
                    own.add_replica(bytes, host.is_ssd);
                } else if at.is_default && host.name == LOCALHOST {
                    localhost.add_replica(bytes, host.is_ssd);
                }
            }
            own.total = own.total.saturating_add(if has_host { bytes } else { 0 });
        }
        if is_named { own } else { Self { total: own.total, ..localhost } }
    }

    fn add_replica(&mut self, bytes: u64, is_ssd: bool) {
        self.local = self.local.saturating_add(bytes);
        self.local_with_ssd = self.local_with_ssd.saturating_add(if is_ssd { bytes } else { 0 });
    }

    /// Returns the local share, 0 to 1 (`dataLocality`); 0 without blocks.
    pub fn locality(&self) -> f32 {
        share(self.local, self.total)
    }

    /// Returns the share of the blocks with a local replica on an SSD (`dataLocalityForSsd`).
    pub fn locality_for_ssd(&self) -> f32 {
        share(self.local_with_ssd, self.total)
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, total: u64) -> f32 {
    if total == 0 { 0.0 } else { part as f32 / total as f32 }
}

impl AddAssign for BlocksWeight {
    fn add_assign(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.local = self.local.saturating_add(other.local);
        self.local_with_ssd = self.local_with_ssd.saturating_add(other.local_with_ssd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &'static str) -> BlockHost<'static> {
        BlockHost { name, address: "10.0.0.7", is_ssd: false }
    }

    fn ssd(name: &'static str) -> BlockHost<'static> {
        BlockHost { is_ssd: true, ..host(name) }
    }

    fn weigh(at: &LocalHost, blocks: &[(u64, &[BlockHost<'static>])]) -> BlocksWeight {
        BlocksWeight::of_blocks(at, blocks.iter().map(|(bytes, hosts)| (*bytes, hosts.iter().copied())))
    }

    #[test]
    fn a_block_counts_for_the_hosts_of_its_replicas() {
        let at = LocalHost::on_machine("rs1", "other");
        let weight = weigh(
            &at,
            &[(100, &[host("rs1"), host("rs2")]), (50, &[host("rs2")]), (30, &[host("rs3"), ssd("rs1")])],
        );
        assert_eq!(weight, BlocksWeight { total: 180, local: 130, local_with_ssd: 30 });
        assert!((weight.locality() - 130.0 / 180.0).abs() < 1e-6);
        assert!((weight.locality_for_ssd() - 30.0 / 180.0).abs() < 1e-6);
    }

    #[test]
    fn without_blocks_nothing_is_local() {
        let at = LocalHost::default();
        assert_eq!(weigh(&at, &[]).locality(), 0.0);
        assert_eq!(weigh(&at, &[(100, &[])]), BlocksWeight::default(), "no host is known");
        let mut sum = BlocksWeight::default();
        sum += weigh(&at, &[(7, &[BlockHost::LOCAL])]);
        sum += BlocksWeight { total: 7, ..BlocksWeight::default() };
        assert_eq!(sum.locality(), 0.5);
    }

    #[test]
    fn localhost_is_the_server_if_it_has_the_default_name_of_its_machine() {
        let blocks: &[(u64, &[BlockHost<'_>])] = &[(100, &[BlockHost::LOCAL])];
        for (name, machine) in [("vm", "vm"), ("VM.example.com", "vm"), ("127.0.0.1", "vm"), ("::1", "vm")] {
            assert_eq!(weigh(&LocalHost::on_machine(name, machine), blocks).local, 100, "{name}");
        }
        for (name, machine) in [("rs7", "vm"), ("vm2", "vm"), ("10.0.0.7", "vm"), ("v", "vm"), ("", "vm")] {
            assert_eq!(weigh(&LocalHost::on_machine(name, machine), blocks).local, 0, "{name}");
        }
        let named: &[(u64, &[BlockHost<'_>])] = &[(1, &[host("vm")]), (100, &[BlockHost::LOCAL])];
        assert_eq!(weigh(&LocalHost::on_machine("vm", "vm"), named).local, 1, "the name goes first");
    }

    #[test]
    fn a_server_that_is_named_by_its_address_has_the_blocks_of_that_address() {
        let blocks: &[(u64, &[BlockHost<'_>])] = &[(100, &[host("rs7.example.com")])];
        assert_eq!(weigh(&LocalHost::on_machine("10.0.0.7", "vm"), blocks).local, 100);
        assert_eq!(weigh(&LocalHost::on_machine("10.0.0.8", "vm"), blocks).local, 0);
    }

    #[test]
    fn this_machine_has_a_name() {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(LocalHost::new(&name).is_default, "{name}");
    }
}
