//! The typed calls of ClientProtocol that this client needs.
//!
//! One [`NameNode`] represents all NameNodes of a name service and has one *client name*, the
//! holder of its leases. The name is unique, because the NameNode treats clients of the same name
//! as one lease holder. When a mutation returns, it is in the edit log and survives the death of
//! the NameNode.

use std::io;

use bytes::Bytes;
use prost::Message;

use crate::Settings;
use crate::error::{HdfsError, Result};
use crate::hadoop::hdfs::{
    AbandonBlockRequestProto, AbandonBlockResponseProto, AddBlockRequestProto, AddBlockResponseProto,
    CompleteRequestProto, CompleteResponseProto, CreateRequestProto, CreateResponseProto, DatanodeInfoProto,
    DeleteRequestProto, DeleteResponseProto, ExtendedBlockProto, FsPermissionProto, FsServerDefaultsProto,
    GetBlockLocationsRequestProto, GetBlockLocationsResponseProto, GetFileInfoRequestProto,
    GetFileInfoResponseProto, GetListingRequestProto, GetListingResponseProto, GetServerDefaultsRequestProto,
    GetServerDefaultsResponseProto, HdfsFileStatusProto, IsFileClosedRequestProto, IsFileClosedResponseProto,
    LocatedBlockProto, LocatedBlocksProto, MkdirsRequestProto, MkdirsResponseProto, RecoverLeaseRequestProto,
    RecoverLeaseResponseProto, Rename2RequestProto, Rename2ResponseProto, RenewLeaseRequestProto,
    RenewLeaseResponseProto, SetSafeModeRequestProto, SetSafeModeResponseProto, SetStoragePolicyRequestProto,
    SetStoragePolicyResponseProto, SetTimesRequestProto, SetTimesResponseProto,
    set_safe_mode_request_proto::SafeModeActionProto,
};
use crate::rpc::RpcClient;

/// Permission bits of new files, before the umask: `rw-rw-rw-`.
pub(crate) const FILE_PERMISSION: u32 = 0o666;

/// Permission bits of new directories, before the umask: `rwxrwxrwx`.
const DIRECTORY_PERMISSION: u32 = 0o777;

/// Bits of `createFlag`.
mod create_flag {
    pub(super) const CREATE: u32 = 0x01;
    pub(super) const OVERWRITE: u32 = 0x02;
    /// Forces a replicated file below a directory with erasure coding, because erasure-coded files
    /// cannot be flushed.
    pub(super) const SHOULD_REPLICATE: u32 = 0x80;
}

/// The supported crypto protocol versions: none. A create in an encryption zone therefore fails
/// instead of writing plain text.
const NO_CRYPTO: Vec<u32> = Vec::new();

/// The value (-1) for which `setTimes` leaves a time unchanged.
const TIME_UNCHANGED: u64 = u64::MAX;

/// The parameters of a file creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Replaces an existing file, in the same transaction.
    pub overwrite: bool,
    /// Creates missing parent directories; otherwise a missing parent is an error.
    pub parents: bool,
    /// Replicas of each block.
    pub replication: u16,
    /// Bytes of a block, a multiple of 512.
    pub block_bytes: u64,
    /// Permission bits, such as `0o644`.
    pub permission: u32,
}

/// The NameNodes of a name service, and the holder of this client's leases.
#[derive(Debug)]
pub struct NameNode {
    rpc: RpcClient,
    umask: u32,
    client_name: String,
}

impl NameNode {
    /// Creates the client; opens no connection yet.
    pub fn new(settings: &Settings) -> Self {
        let client_name = format!("evenkeel_{}_{:016x}", std::process::id(), crate::rpc::random_u64());
        Self { rpc: RpcClient::of_namenodes(settings), umask: settings.umask, client_name }
    }

    /// Returns the client name, the holder of this client's leases.
    pub fn client_name(&self) -> &str {
        &self.client_name
    }

    fn call<R: Message + Default>(&self, method: &str, request: &impl Message) -> Result<R> {
        self.rpc.call(method, request)
    }

    /// Returns the server defaults of the cluster.
    ///
    /// # Errors
    /// As every call of this type: an exception of the NameNode, or a transport error if no
    /// NameNode answered within the retries.
    pub fn server_defaults(&self) -> Result<FsServerDefaultsProto> {
        let reply: GetServerDefaultsResponseProto =
            self.call("getServerDefaults", &GetServerDefaultsRequestProto {})?;
        Ok(reply.server_defaults)
    }

    /// Creates a file and takes its lease. Returns its status, with its file id.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound` if the parent is missing and `parents` is not set.
    pub fn create(&self, path: &str, file: NewFile) -> Result<HdfsFileStatusProto> {
        let flags = create_flag::CREATE | create_flag::SHOULD_REPLICATE;
        let permission = FsPermissionProto { perm: file.permission };
        let request = CreateRequestProto {
            src: path.to_owned(),
            masked: permission,
            client_name: self.client_name.clone(),
            create_flag: flags | if file.overwrite { create_flag::OVERWRITE } else { 0 },
            create_parent: file.parents,
            replication: file.replication.into(),
            block_size: file.block_bytes,
            crypto_protocol_version: NO_CRYPTO,
            unmasked: None,
            storage_policy: None,
        };
        let reply: CreateResponseProto = self.call("create", &request)?;
        reply.fs.ok_or_else(|| HdfsError::protocol("create without a status"))
    }

    /// Allocates the next block of an open file. `previous` is its last block with its final
    /// length. The block may have fewer locations than the file has replicas.
    ///
    /// # Errors
    /// `PermissionDenied` if the lease is lost; `StorageFull` if no DataNode can be chosen
    /// ([`crate::RemoteException::is_without_target`]).
    pub fn add_block(
        &self,
        path: &str,
        file_id: u64,
        previous: Option<&ExtendedBlockProto>,
        excluded: &[DatanodeInfoProto],
    ) -> Result<LocatedBlockProto> {
        let request = AddBlockRequestProto {
            src: path.to_owned(),
            client_name: self.client_name.clone(),
            previous: previous.cloned(),
            exclude_nodes: excluded.to_vec(),
            file_id: Some(file_id),
            favored_nodes: Vec::new(),
            flags: Vec::new(),
        };
        let reply: AddBlockResponseProto = self.call("addBlock", &request)?;
        Ok(reply.block)
    }

    /// Abandons the last block of an open file, which must be empty.
    ///
    /// # Errors
    /// `PermissionDenied` if the lease is lost.
    pub fn abandon_block(&self, path: &str, file_id: u64, block: &ExtendedBlockProto) -> Result<()> {
        let request = AbandonBlockRequestProto {
            b: block.clone(),
            src: path.to_owned(),
            holder: self.client_name.clone(),
            file_id: Some(file_id),
        };
        self.call("abandonBlock", &request).map(|_: AbandonBlockResponseProto| ())
    }

    /// Closes a file whose last block is `last`. Returns false if not enough replicas have been
    /// reported yet: the caller should retry.
    ///
    /// # Errors
    /// `PermissionDenied` if the lease is lost.
    pub fn complete(&self, path: &str, file_id: u64, last: Option<&ExtendedBlockProto>) -> Result<bool> {
        let request = CompleteRequestProto {
            src: path.to_owned(),
            client_name: self.client_name.clone(),
            last: last.cloned(),
            file_id: Some(file_id),
        };
        let reply: CompleteResponseProto = self.call("complete", &request)?;
        Ok(reply.result)
    }

    /// Renews the leases of all files that this client has open.
    ///
    /// # Errors
    /// See [`NameNode::server_defaults`].
    pub fn renew_lease(&self) -> Result<()> {
        let request =
            RenewLeaseRequestProto { client_name: self.client_name.clone(), namespaces: Vec::new() };
        self.call("renewLease", &request).map(|_: RenewLeaseResponseProto| ())
    }

    /// Revokes the lease of a file from its writer and starts the recovery of its last block.
    /// Returns true if the file is closed.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn recover_lease(&self, path: &str) -> Result<bool> {
        let request =
            RecoverLeaseRequestProto { src: path.to_owned(), client_name: self.client_name.clone() };
        let reply: RecoverLeaseResponseProto = self.call("recoverLease", &request)?;
        Ok(reply.result)
    }

    /// Returns true if the file is not being written.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn is_file_closed(&self, path: &str) -> Result<bool> {
        let request = IsFileClosedRequestProto { src: path.to_owned() };
        let reply: IsFileClosedResponseProto = self.call("isFileClosed", &request)?;
        Ok(reply.result)
    }

    /// Returns the blocks of a file that overlap a byte range.
    ///
    /// # Errors
    /// `NotFound`, also for a directory.
    pub fn block_locations(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocksProto> {
        let request = GetBlockLocationsRequestProto { src: path.to_owned(), offset, length };
        let reply: GetBlockLocationsResponseProto = self.call("getBlockLocations", &request)?;
        reply.locations.ok_or_else(|| HdfsError::protocol("getBlockLocations without locations"))
    }

    /// Returns the status of a file or directory; `None` if it does not exist, including paths
    /// below a file.
    ///
    /// # Errors
    /// See [`NameNode::server_defaults`].
    pub fn file_info(&self, path: &str) -> Result<Option<HdfsFileStatusProto>> {
        let request = GetFileInfoRequestProto { src: path.to_owned() };
        match self.call("getFileInfo", &request) {
            Ok(GetFileInfoResponseProto { fs }) => Ok(fs),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the entries of a directory, ordered by the bytes of their names; `None` if it does
    /// not exist. For a file it returns one entry with an empty name. Long directories are listed
    /// in pages, which are not a snapshot: an entry that is renamed concurrently may be missed.
    ///
    /// # Errors
    /// See [`NameNode::server_defaults`].
    pub fn list(&self, path: &str) -> Result<Option<Vec<HdfsFileStatusProto>>> {
        let mut found = Vec::new();
        loop {
            let start_after = found.last().map_or_else(Bytes::new, |s: &HdfsFileStatusProto| s.path.clone());
            let request = GetListingRequestProto { src: path.to_owned(), start_after, need_location: false };
            let reply: GetListingResponseProto = self.call("getListing", &request)?;
            let Some(page) = reply.dir_list else { return Ok(None) };
            let is_last = page.remaining_entries == 0 || page.partial_listing.is_empty();
            found.extend(page.partial_listing);
            if is_last {
                return Ok(Some(found));
            }
        }
    }

    /// Renames a file or directory atomically; replaces an existing file or empty directory at
    /// `to`. Open files keep their leases.
    ///
    /// # Errors
    /// `NotFound` if `from` or the parent of `to` is missing; `AlreadyExists` if both are the same.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let request = Rename2RequestProto {
            src: from.to_owned(),
            dst: to.to_owned(),
            overwrite_dest: true,
            move_to_trash: None,
        };
        self.call("rename2", &request).map(|_: Rename2ResponseProto| ())
    }

    /// Deletes a file or directory. Returns false if it did not exist.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` if it has entries and `recursive` is not set.
    pub fn delete(&self, path: &str, recursive: bool) -> Result<bool> {
        let reply: DeleteResponseProto =
            self.call("delete", &DeleteRequestProto { src: path.to_owned(), recursive })?;
        Ok(reply.result)
    }

    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    /// `AlreadyExists` or `NotADirectory` if the path or a parent is a file.
    pub fn mkdirs(&self, path: &str) -> Result<()> {
        let request = MkdirsRequestProto {
            src: path.to_owned(),
            masked: FsPermissionProto { perm: DIRECTORY_PERMISSION & !self.umask },
            create_parent: true,
            unmasked: None,
        };
        let reply: MkdirsResponseProto = self.call("mkdirs", &request)?;
        if reply.result { Ok(()) } else { Err(HdfsError::protocol("mkdirs answered false")) }
    }

    /// Sets the modification time of a file, in milliseconds since 1970.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_modification_time(&self, path: &str, time_ms: u64) -> Result<()> {
        let request = SetTimesRequestProto { src: path.to_owned(), mtime: time_ms, atime: TIME_UNCHANGED };
        self.call("setTimes", &request).map(|_: SetTimesResponseProto| ())
    }

    /// Sets the storage policy of a file or directory, such as `ONE_SSD`.
    ///
    /// # Errors
    /// `NotFound`, or an exception for an unknown policy.
    pub fn set_storage_policy(&self, path: &str, policy: &str) -> Result<()> {
        let request = SetStoragePolicyRequestProto { src: path.to_owned(), policy_name: policy.to_owned() };
        self.call("setStoragePolicy", &request).map(|_: SetStoragePolicyResponseProto| ())
    }

    /// Returns true if the NameNode is in safe mode, in which it rejects changes.
    ///
    /// # Errors
    /// See [`NameNode::server_defaults`].
    pub fn is_in_safe_mode(&self) -> Result<bool> {
        let action = SafeModeActionProto::SafemodeGet.into();
        let request = SetSafeModeRequestProto { action, checked: None };
        let reply: SetSafeModeResponseProto = self.call("setSafeMode", &request)?;
        Ok(reply.result)
    }
}
