//! Markers.
