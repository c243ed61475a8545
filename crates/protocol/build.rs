//! Compiles `proto/*.proto` into one Rust module, `$OUT_DIR/hbase.pb.rs`.
//!
//! protox parses the files and prost-build writes the Rust code, so no protoc is needed. Every
//! `bytes` field becomes a `bytes::Bytes`, which shares the frame it was decoded from.
//! `google.protobuf.Any` is [`Any`] of `src/lib.rs`, so that the crate needs no further library for
//! that one message.

use std::error::Error;
use std::path::PathBuf;

const PROTO_DIR: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={PROTO_DIR}");
    let descriptors = protox::compile(proto_files()?, [PROTO_DIR])?;
    prost_build::Config::new()
        .bytes(["."])
        .extern_path(".google.protobuf.Any", "crate::Any")
        .compile_fds(descriptors)?;
    Ok(())
}

/// The files of `proto/`, sorted, so that a rebuild generates the same module.
fn proto_files() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(PROTO_DIR)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
