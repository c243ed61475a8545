//! HBase's protobuf messages, generated from Evenkeel's own files in `proto/`.
//!
//! # What is here
//!
//! [`pb`] holds every message of package `hbase.pb` in one module. Names, field numbers, types,
//! labels and defaults are those of HBase 2.6.4, because they are the wire and disk contract; the
//! files keep HBase's names so that a reader finds a message where HBase has it. Only the messages
//! of `Evenkeel.proto` are Evenkeel's own. The `service`
//! blocks name the methods and their messages; no code is generated from them. Besides the messages
//! there is only [`PB_MAGIC`], the mark that HBase writes before a stored message (in znodes, in
//! hbase:meta, in small files, in the HFile file info), and the functions that write and strip it.
//!
//! # What a reader of a message must know
//!
//! - **Required fields are not enforced.** A `required` field is a plain field in Rust, an
//!   `optional` one an `Option`. A required field that is absent on the wire decodes to zero,
//!   empty, the default message or the first enum value. HBase's own parser rejects such a message;
//!   where that matters to a peer, the code that serves the call checks it. Encoding always writes
//!   required fields, even if they are zero or empty.
//! - Enum fields are `i32`. The generated getters (`request.durability()`) return the declared
//!   default for an absent or unknown number; use `Enum::try_from(number)` where an unknown number
//!   must be an error.
//! - The getters of optional scalar fields apply the declared default (`get.max_versions()` is 1 if
//!   absent); the fields themselves stay `None`.
//! - `bytes` fields are [`bytes::Bytes`]. Decoded from a `Bytes` they share its memory, so the
//!   frame lives as long as any of them; decoded from a `&[u8]` each is a copy.
//! - Decoding is bounded: prost stops at 100 nested messages and never allocates by a length that
//!   it has not checked against the available bytes. But an empty inner message of 2 bytes becomes
//!   a struct of some hundred: messages of clients are decoded within a [`DecodeBudget`].
//! - Maps (such as `ServerLoad.regionCachedInfo`) are `HashMap`s, whose entries are written in no
//!   fixed order.
//! - Deprecation markers are omitted: the fields are still on the wire.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod bounded;
mod magic;

pub use bounded::{BoundedError, DecodeBudget, decode, merge};
pub use magic::{MagicError, PB_MAGIC, from_magic, from_magic_or_plain, with_magic};

/// `google.protobuf.Any`: a message with the name of its type, the format of the stored state of
/// procedures.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Any {
    /// The type's URL. The part after the last `/` is the full name of the message, as in
    /// `type.googleapis.com/hbase.pb.X`.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
}

/// The generated messages and enums of package `hbase.pb`.
///
/// Rust's spelling replaces HBase's where they differ: `WALKey` is `WalKey`, `UUID` is `Uuid`. A
/// type declared inside a message is in a module named after it: `MutationProto.Durability` is
/// `mutation_proto::Durability`.
pub mod pb {
    #![allow(missing_docs, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/hbase.pb.rs"));
}
