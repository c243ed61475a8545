//! `block_cache_restart [MIB [file | mmap]]`: the time until a cache in a file is warm after `kill
//! -9`. A process fills the cache and is killed; another one opens it and requests every block.
//!
//! Blocks have 64 KiB, the default size of data blocks. Times count from the kill, so the first hit
//! includes the start of the second process. The page cache keeps the writes of the first process:
//! this simulates a crash of the server, not of the machine.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use evenkeel_block_cache::{
    Admission, Block, BlockCache, BlockKey, BlockParts, BlockType, BucketCache, BucketCacheConfig, Engine,
    FileId,
};

use crate::Outcome;

const BLOCK_BYTES: u64 = 64 << 10;
const USAGE: &str = "block_cache_restart [MIB [file | mmap]]";

fn key(n: u64) -> BlockKey {
    BlockKey { file: FileId::of_name("0123456789abcdef0123456789abcdef"), offset: n * BLOCK_BYTES }
}

fn block(n: u64) -> Block {
    Block::new(BlockParts {
        kind: BlockType::Data,
        offset: key(n).offset,
        on_disk_bytes: BLOCK_BYTES as u32,
        prev_offset: -1,
        bytes: vec![n as u8; BLOCK_BYTES as usize].into(),
        body: 0..BLOCK_BYTES as u32,
        seek_points: Box::default(),
        seek_keys: Box::default(),
        compressed: false,
    })
}

fn open(folder: &Path, mib: u64, engine: &str) -> Outcome<BucketCache> {
    let path = folder.join("cache");
    let engine = if engine == "mmap" { Engine::Mapped(path) } else { Engine::Files(vec![path]) };
    Ok(BucketCache::open(&BucketCacheConfig { engine, ..BucketCacheConfig::in_memory(mib << 20) })?)
}

/// The number of keys whose blocks fill the cache.
fn keys(mib: u64) -> u64 {
    (mib << 20) / BLOCK_BYTES
}

/// The process that is killed.
fn fill(folder: &Path, mib: u64, engine: &str) -> Outcome<()> {
    let cache = open(folder, mib, engine)?;
    (0..keys(mib)).for_each(|n| cache.insert(key(n), block(n), Admission::New));
    println!("{}", (0..keys(mib)).filter(|n| cache.contains(&key(*n))).count());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The second process: prints a line at its first hit, then the number of hits.
fn ask(folder: &Path, mib: u64, engine: &str) -> Outcome<()> {
    let cache = open(folder, mib, engine)?;
    let is_there = |n: &u64| cache.get(&key(*n)).is_some_and(|found| found.data() == block(*n).data());
    let first = (0..keys(mib)).find(is_there).ok_or("nothing is there")?;
    println!("first");
    println!("{}", 1 + (first + 1..keys(mib)).filter(is_there).count());
    Ok(())
}

/// Starts this program in another role.
fn spawn(
    role: &str,
    folder: &Path,
    mib: u64,
    engine: &str,
) -> Outcome<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["block_cache_restart", role]).arg(folder).args([&mib.to_string(), engine]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    Ok((child, lines))
}

fn measure(mib: u64, engine: &str) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (mut filler, mut said) = spawn("fill", folder.path(), mib, engine)?;
    let there: u64 = said.next().ok_or("the cache was not filled")??.parse()?;
    filler.kill()?;
    filler.wait()?;
    let killed = Instant::now();
    let (mut asker, mut said) = spawn("ask", folder.path(), mib, engine)?;
    said.next().ok_or("no hit")??;
    let first = killed.elapsed();
    let hits: u64 = said.next().ok_or("not all were asked for")??.parse()?;
    let all = killed.elapsed();
    asker.wait()?;
    println!("{engine}: {there} blocks of 64 KiB in a cache of {mib} MiB when its process is killed");
    println!("from the kill to the first hit: {:.0} ms", first.as_secs_f64() * 1e3);
    println!(
        "to all asked for: {:.2} s, {:.2} % hits",
        all.as_secs_f64(),
        100.0 * hits as f64 / there as f64
    );
    Ok(())
}

pub fn run(args: &[String]) -> Outcome {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["fill", folder, mib, engine] => fill(folder.as_ref(), mib.parse()?, engine),
        ["ask", folder, mib, engine] => ask(folder.as_ref(), mib.parse()?, engine),
        [] => measure(1024, "file"),
        [mib] => measure(mib.parse()?, "file"),
        [mib, engine @ ("file" | "mmap")] => measure(mib.parse()?, engine),
        _ => Err(USAGE.into()),
    }
}
