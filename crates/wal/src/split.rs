//! Splitting.
