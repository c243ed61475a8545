//! Compression of block bodies.

use evenkeel_common::{ErrorKind, HBaseError, Result};

use crate::context::Compression;

/// Compresses bodies, with what a codec can keep between them.
#[derive(Debug)]
pub(crate) struct Compressor {
    kind: Compression,
}

impl Compressor {
    pub fn new(kind: Compression) -> Result<Self> {
        check_supported(kind)?;
        Ok(Self { kind })
    }

    pub fn kind(&self) -> Compression {
        self.kind
    }

    /// Appends `body`, compressed, to `out`.
    pub fn compress(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(body);
        Ok(())
    }
}

/// Says no to what is known by name only.
pub(crate) fn check_supported(kind: Compression) -> Result<()> {
    match kind {
        Compression::None => Ok(()),
        _ => Err(HBaseError::new(
            ErrorKind::UnsupportedOperation,
            format!("compression {} is not supported", kind.name()),
        )),
    }
}

/// Decompresses a body of `uncompressed_bytes`; `None` when it is not one.
pub(crate) fn decompress(kind: Compression, body: &[u8], uncompressed_bytes: usize) -> Option<Vec<u8>> {
    let _ = (kind, body, uncompressed_bytes);
    None
}

/// How many bytes one stored byte may become at most.
pub(crate) fn expansion_max(kind: Compression) -> usize {
    let _ = kind;
    1
}
