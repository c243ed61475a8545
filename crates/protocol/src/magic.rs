//! The four bytes `PBUF` that HBase writes before a stored protobuf message.
//!
//! ```text
//! offset  length  content
//! 0       4       'P' 'B' 'U' 'F'
//! 4       to end  the message, without a length in front
//! ```

use std::fmt;

use prost::{DecodeError, Message};

/// The mark before a stored message.
pub const PB_MAGIC: &[u8; 4] = b"PBUF";

/// Why stored bytes are not the expected message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MagicError {
    /// The bytes do not begin with [`PB_MAGIC`]: another format, or not a stored message at all.
    NoMagic,
    /// The bytes after the mark do not decode: they are corrupt, or another message.
    Message(DecodeError),
}

impl fmt::Display for MagicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMagic => f.write_str("no PBUF magic before the message"),
            Self::Message(error) => write!(f, "message after the PBUF magic: {error}"),
        }
    }
}

impl std::error::Error for MagicError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoMagic => None,
            Self::Message(error) => Some(error),
        }
    }
}

impl From<DecodeError> for MagicError {
    fn from(error: DecodeError) -> Self {
        Self::Message(error)
    }
}

/// [`PB_MAGIC`] and `message`, without a length.
pub fn with_magic(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PB_MAGIC.len() + message.encoded_len());
    bytes.extend_from_slice(PB_MAGIC);
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes
}

/// Decodes the output of [`with_magic`].
///
/// # Errors
/// [`MagicError::NoMagic`], [`MagicError::Message`].
pub fn from_magic<M: Message + Default>(bytes: &[u8]) -> Result<M, MagicError> {
    let message = bytes.strip_prefix(PB_MAGIC).ok_or(MagicError::NoMagic)?;
    Ok(M::decode(message)?)
}

/// Decodes `bytes` with or without the mark, for places where HBase writes either form.
///
/// # Errors
/// [`MagicError::Message`].
pub fn from_magic_or_plain<M: Message + Default>(bytes: &[u8]) -> Result<M, MagicError> {
    Ok(M::decode(bytes.strip_prefix(PB_MAGIC).unwrap_or(bytes))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::ClusterId;

    fn cluster_id() -> ClusterId {
        ClusterId { cluster_id: "ab".to_owned() }
    }

    const PLAIN: &[u8] = b"\x0a\x02ab";

    #[test]
    fn magic_goes_before_the_message() {
        assert_eq!(with_magic(&cluster_id()), b"PBUF\x0a\x02ab");
    }

    #[test]
    fn strict_form_wants_the_magic() {
        assert_eq!(from_magic(b"PBUF\x0a\x02ab"), Ok(cluster_id()));
        for bytes in [PLAIN, b"", b"PBU", b"pbuf\x0a\x02ab"] {
            assert_eq!(from_magic::<ClusterId>(bytes), Err(MagicError::NoMagic), "{bytes:?}");
        }
    }

    #[test]
    fn lenient_form_takes_both() {
        assert_eq!(from_magic_or_plain(b"PBUF\x0a\x02ab"), Ok(cluster_id()));
        assert_eq!(from_magic_or_plain(PLAIN), Ok(cluster_id()));
    }

    #[test]
    fn damage_after_the_magic_is_an_error() {
        let length_past_the_end = b"PBUF\x0a\x7fab";
        assert!(matches!(from_magic::<ClusterId>(length_past_the_end), Err(MagicError::Message(_))));
        assert!(matches!(from_magic_or_plain::<ClusterId>(length_past_the_end), Err(MagicError::Message(_))));
    }
}
