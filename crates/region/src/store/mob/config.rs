//! [`MobConfig`]: how compactions treat MOB files (`MobConstants`).

/// `hbase.mob.compaction.type`.
const COMPACTION_TYPE: &str = "hbase.mob.compaction.type";
/// The type that leaves large MOB files as they are.
const OPTIMIZED: &str = "optimized";
const FILE_BYTES_MAX: &str = "hbase.mob.compactions.max.file.size";
const DISCARD_MISSES: &str = "hbase.unsafe.mob.discard.miss";

/// Settings of a store's MOB files, of the server, a table or a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobConfig {
    /// True if a requested major compaction rewrites small MOB files only
    /// (`hbase.mob.compaction.type` = `optimized`).
    pub is_optimized: bool,
    /// `hbase.mob.compactions.max.file.size`: with `is_optimized`, the size in bytes from which a
    /// MOB file is not rewritten, and at which a new one begins.
    pub file_bytes_max: u64,
    /// `hbase.unsafe.mob.discard.miss`: a requested major compaction drops cells whose MOB file is
    /// lost, instead of failing.
    pub discards_misses: bool,
}

impl Default for MobConfig {
    fn default() -> Self {
        Self { is_optimized: false, file_bytes_max: 1 << 30, discards_misses: false }
    }
}

impl MobConfig {
    /// The keys.
    pub(in crate::store) const KEYS: [&'static str; 3] = [COMPACTION_TYPE, FILE_BYTES_MAX, DISCARD_MISSES];

    /// Applies a setting. Returns true if the key is one of [`MobConfig::KEYS`]. An invalid value
    /// changes nothing.
    pub(in crate::store) fn set(&mut self, key: &str, value: &str) -> bool {
        match key {
            COMPACTION_TYPE => self.is_optimized = value == OPTIMIZED,
            FILE_BYTES_MAX => match value.parse() {
                Ok(bytes) => self.file_bytes_max = bytes,
                Err(_) => tracing::warn!(value, "a size of MOB files is invalid and is ignored"),
            },
            DISCARD_MISSES => self.discards_misses = value.eq_ignore_ascii_case("true"),
            _ => return false,
        }
        true
    }
}
