//! `evenkeel sft`: prints lists of store files, as HBase's `hbase sft`.
//!
//! Difference: `-r` and the other options that name a region are replaced by the path of a family's
//! directory, because a configuration with the root directory may be missing.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use evenkeel_fs::FileSystem;
use evenkeel_region::store_file_tracker::LIST_DIR;
use evenkeel_region::store_file_tracker::list_file::{FILE_BYTES_MAX, decode, is_list_name};

use super::storage::StorageArgs;
use super::{ErrorText, exit};

/// Options of `evenkeel sft`.
#[derive(Args, Debug)]
pub struct StoreFileListArgs {
    /// A list, or the directory of a family: all its lists
    #[arg(short = 'f', long = "file", value_name = "PATH")]
    file: Vec<PathBuf>,
    /// More of them
    #[arg(value_name = "PATH")]
    more: Vec<PathBuf>,
    #[command(flatten)]
    storage: StorageArgs,
}

/// Runs the tool.
///
/// # Errors
/// If a list cannot be read or is damaged.
pub fn run(args: &StoreFileListArgs) -> Result<ExitCode, ErrorText> {
    let paths: Vec<_> = args.file.iter().chain(&args.more).collect();
    if paths.is_empty() {
        return Err("no list given; see evenkeel sft --help".into());
    }
    let mut lines = Vec::new();
    for path in paths {
        let (fs, path) = args.storage.locate(path)?;
        print(&*fs, &path, &mut lines)?;
    }
    let mut out = io::stdout().lock();
    exit(lines.iter().try_for_each(|line| writeln!(out, "{line}")))
}

fn print(fs: &dyn FileSystem, path: &Path, lines: &mut Vec<String>) -> Result<(), ErrorText> {
    if !fs.status(path).map_err(|e| e.to_string())?.is_dir {
        return print_list(fs, path, lines);
    }
    let dir = path.join(LIST_DIR);
    let mut lists = fs.list(&dir).map_err(|e| e.to_string())?;
    lists.retain(|file| !file.is_dir && is_list_name(file.name()));
    for list in lists {
        lines.push(format!("Printing contents for file {}", list.path.display()));
        print_list(fs, &list.path, lines)?;
    }
    Ok(())
}

fn print_list(fs: &dyn FileSystem, path: &Path, lines: &mut Vec<String>) -> Result<(), ErrorText> {
    let failed = |what: String| format!("{}: {what}", path.display());
    let bytes = fs.read_all(path, FILE_BYTES_MAX).map_err(|e| failed(e.to_string()))?;
    let files = decode(&bytes).map_err(|e| failed(e.message().to_owned()))?;
    let files = files.ok_or_else(|| failed("the list is incomplete".to_owned()))?;
    lines.extend(files.into_iter().map(|file| file.name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::MemoryFileSystem;
    use evenkeel_region::store_file_tracker::ListedFile;
    use evenkeel_region::store_file_tracker::list_file::encode;

    use super::*;

    #[test]
    fn lists_are_printed_as_by_stock() {
        let (fs, family) = (MemoryFileSystem::new(), Path::new("/data/default/t/r/f"));
        let file = |name: &str| ListedFile { name: name.to_owned(), bytes: 1 };
        let put = |name: &str, bytes: &[u8]| {
            fs.write_atomically(&family.join(LIST_DIR).join(name), bytes).expect("written")
        };
        put("f1.7", &encode(&[file("0a"), file("0b")], 1).expect("short"));
        put("f2.7", &encode(&[], 2).expect("short"));
        put("f2.7.tmp", b"unfinished");
        let printed = |path: &Path| {
            let mut lines = Vec::new();
            print(&fs, path, &mut lines).map(|()| lines)
        };
        let dir = family.join(LIST_DIR);
        assert_eq!(printed(&dir.join("f1.7")).expect("whole"), ["0a", "0b"]);
        let of_family = printed(family).expect("whole");
        let heading = |name: &str| format!("Printing contents for file {}", dir.join(name).display());
        assert_eq!(of_family, [&heading("f1.7"), "0a", "0b", &heading("f2.7")]);
        put("f1.7", b"torn");
        printed(family).expect_err("a damaged list");
    }
}
