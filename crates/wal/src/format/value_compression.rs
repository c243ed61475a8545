//! Compressed values: to come with this file's next version.
