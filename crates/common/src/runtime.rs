//! The runtime parts, apart from the data model. The crate's root re-exports them.

pub mod allocator;
pub mod budget;
pub mod buffer_pool;
pub mod cache_line;
pub mod clock;
pub mod cpu_slot;
pub mod priority;
pub mod thread;
