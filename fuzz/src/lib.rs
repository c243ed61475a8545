//! Fuzz targets for the parsers of bytes from a disk: [`TARGETS`].
//!
//! A target is a function of bytes that returns, whatever they are; it panics when something that
//! must hold does not:
//! * no panic, and no more than [`TIME_MAX`];
//! * no more memory at once than [`Target::bytes_max`] says for input of that length (see
//!   `memory`);
//! * where the input is damage done to a file known here: an error, or exactly what the file held.
//!
//! Two drivers call them: `tests/targets.rs`, which mutates seeds for `EVENKEEL_FUZZ_SECONDS` in
//! `cargo test`, and libFuzzer through `libfuzzer/`, which finds more; CONTRIBUTING.md has its
//! command. Seeds are files: those of `seeds/<target>`, which `cargo run -p evenkeel-fuzz --example
//! seeds` writes ([`Target::made`]), and those of `interop/work/corpus/<target>`, which the
//! interop test of exchanged files leaves: some of stock HBase's writers, some of ours.

pub mod memory;
pub mod mutation;
mod small;
mod store_file;
mod wal;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that any input of at most a few kilobytes may take, on a busy machine and without
/// optimization.
pub const TIME_MAX: Duration = Duration::from_secs(20);

/// One parser, and what is known of its input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    run: fn(&[u8]),
    /// Makes good inputs with the writers there are: what the committed seeds were made with.
    pub made: fn() -> Vec<Vec<u8>>,
    /// How many bytes of memory a byte of input may take, above [`FIXED_BYTES`].
    factor: usize,
}

/// Memory that input of any length may take: buffers of a fixed size, and blocks up to the limit
/// the targets set.
const FIXED_BYTES: usize = 16 << 20;

impl Target {
    /// Where its committed seeds lie.
    pub fn seeds(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(self.name)
    }

    /// Where the interop tests leave files for it.
    pub fn corpus(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/work/corpus").join(self.name)
    }

    /// How much memory input of this length may take at once.
    pub fn bytes_max(&self, len: usize) -> usize {
        FIXED_BYTES.saturating_add(self.factor.saturating_mul(len))
    }

    /// Runs it.
    ///
    /// # Panics
    /// When something that must hold does not.
    pub fn run(&self, input: &[u8]) {
        let started = Instant::now();
        let peak = memory::peak_of(|| (self.run)(input));
        let (allowed, took) = (self.bytes_max(input.len()), started.elapsed());
        assert!(peak <= allowed, "{}: {peak} bytes of memory for {} of input", self.name, input.len());
        assert!(took <= TIME_MAX, "{}: {took:?}", self.name);
    }
}

/// What a value of a compressed log may become (`evenkeel_compression::expansion_max`), twice, and
/// room for its cells.
const PLAIN: usize = 200;
const GZ: usize = 3_000;
const ZSTD: usize = 100_000;

macro_rules! targets {
    ($($name:literal, $run:path, $seeds:path, $factor:expr;)*) => {
        /// Every target.
        pub const TARGETS: &[Target] =
            &[$(Target { name: $name, run: $run, made: $seeds, factor: $factor },)*];
    };
}

targets! {
    "hfile", store_file::read, store_file::plain_seeds, PLAIN;
    "hfile_prefix", store_file::read, store_file::prefix_seeds, PLAIN;
    "hfile_diff", store_file::read, store_file::diff_seeds, PLAIN;
    "hfile_fast_diff", store_file::read, store_file::fast_diff_seeds, PLAIN;
    "hfile_row_index", store_file::read, store_file::row_index_seeds, PLAIN;
    "hfile_codecs", store_file::read, store_file::codec_seeds, PLAIN;
    "hfile_damage", store_file::damage, store_file::damage_seeds, PLAIN;
    "codec_gz", small::gz, small::gz_seeds, GZ;
    "codec_snappy", small::snappy, small::snappy_seeds, PLAIN;
    "codec_lz4", small::lz4, small::lz4_seeds, 1_000;
    "codec_zstd", small::zstd, small::zstd_seeds, ZSTD;
    "codec_bzip2", small::bzip2, small::bzip2_seeds, PLAIN;
    "wal", wal::read, wal::plain_seeds, PLAIN;
    "wal_dictionary", wal::read, wal::dictionary_seeds, 2_000;
    "wal_values", wal::read, wal::value_seeds, ZSTD;
    "wal_damage", wal::damage, wal::damage_seeds, ZSTD;
    "recovered_edits", wal::read_recovered_edits, wal::recovered_edits_seeds, 2_000;
    "region_info", small::region_info, small::region_info_seeds, PLAIN;
    "table_descriptor", small::table_descriptor, small::table_descriptor_seeds, PLAIN;
    "reference", small::reference, small::reference_seeds, PLAIN;
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
