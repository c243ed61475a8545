//! Compiles `proto/*.proto` into one Rust module per package, `$OUT_DIR/hadoop.*.rs`.
//!
//! protox parses the files and prost-build writes the Rust code, so no protoc is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    let files = ["proto/rpc.proto", "proto/hdfs.proto", "proto/namenode.proto", "proto/datatransfer.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
