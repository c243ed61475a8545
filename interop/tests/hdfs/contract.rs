//! The contract of the `FileSystem` trait, on stock HDFS.

use evenkeel_fs::{FileSystem, HdfsFileSystem};

use crate::Turn;
use crate::suite::{ALL, TestDir};

#[test]
fn the_file_system_contract_holds_on_hdfs() {
    let mut turn = Turn::take();
    let fs = HdfsFileSystem::new(turn.client(), "nn");
    for (name, test) in ALL {
        println!("{name}");
        let root = std::path::Path::new("/contract").join(name);
        fs.mkdirs(&root).expect("mkdirs");
        test(&TestDir { fs: &fs, root });
    }
}
