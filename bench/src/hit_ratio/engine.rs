//! Our cache as a policy, with frames and free bytes counted.

use evenkeel_block_cache::{
    Block, BlockCache, BlockKey, BlockParts, BlockType, BucketCache, BucketCacheConfig, CacheHint, FileId,
    bucket::{Policy as Order, Shares},
};

use super::Policy;

/// The cache with blocks of the given sizes.
pub(super) struct Engine {
    cache: BucketCache,
    bytes: Vec<u8>,
}

impl Engine {
    pub(super) fn new(capacity: u64, policy: Order) -> Self {
        let shares = Shares::of(policy);
        let config = BucketCacheConfig { policy, shares, ..BucketCacheConfig::in_memory(capacity) };
        let cache = BucketCache::open(&config).expect("memory");
        Self { cache, bytes: vec![7; 300_000] }
    }
}

impl Policy for Engine {
    fn request(&mut self, key: u64, size: u64) -> bool {
        let id = BlockKey { file: FileId::of_name("trace"), offset: key };
        let mut hit = true;
        let mut load = || {
            hit = false;
            Ok(Block::new(BlockParts {
                kind: BlockType::Data,
                offset: key,
                on_disk_bytes: size as u32,
                prev_offset: -1,
                bytes: self.bytes[..size as usize].into(),
                body: 0..size as u32,
                seek_points: Box::default(),
                seek_keys: Box::default(),
                compressed: false,
            }))
        };
        drop(self.cache.get_or_load(&id, CacheHint::INSERT, &mut load).expect("loads"));
        hit
    }
}
