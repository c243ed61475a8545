//! The runtime parts, apart from the data model: they know nothing of cells, tables or regions.

pub mod allocator;
pub mod buffer_pool;
pub mod cache_line;
pub mod clock;
pub mod priority;
pub mod thread;
pub mod turns;
