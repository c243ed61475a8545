//! The tags of a cell: `u16 len | u8 type | value`, repeated, at most 65,535 bytes in total.
//!
//! A writer that compresses tags parses them, so malformed tags would corrupt the bytes after them.
//! Tags are therefore checked on input ([`check_tags`]). Files and logs of other writers may
//! contain malformed tags; [`whole_tags`] returns their well-formed prefix.

use super::tag_type;
use crate::error::{HBaseError, Result};
use crate::length;

/// The maximum bytes of all tags of a cell together (`RawCell.MAX_TAGS_LENGTH`).
pub const TAGS_BYTES_MAX: usize = u16::MAX as usize;
/// Bytes of the value of a TTL tag.
const TTL_BYTES: usize = 8;

/// Checks that tags are well-formed and within [`TAGS_BYTES_MAX`].
///
/// # Errors
/// `DoNotRetryIOException`, with HBase's message.
#[inline]
pub fn check_tags(tags: &[u8]) -> Result<()> {
    if tags.is_empty() { Ok(()) } else { check_some_tags(tags) }
}

#[cold]
fn check_some_tags(tags: &[u8]) -> Result<()> {
    check_tags_bytes(tags.len())?;
    let mut rest = tags;
    while !rest.is_empty() {
        let at = tags.len() - rest.len();
        let (kind, value, after) = split_tag(rest).ok_or_else(|| invalid_tag(at, rest))?;
        if kind == tag_type::TTL && value.len() != TTL_BYTES {
            let message = format!("TTL tag of {} bytes at position={at}, not {TTL_BYTES}", value.len());
            return Err(HBaseError::do_not_retry(message));
        }
        rest = after;
    }
    Ok(())
}

/// Checks a length of tags against the limit, in bytes.
///
/// # Errors
/// `DoNotRetryIOException`.
pub fn check_tags_bytes(bytes: usize) -> Result<()> {
    if bytes <= TAGS_BYTES_MAX {
        return Ok(());
    }
    Err(HBaseError::do_not_retry(format!("tagslength {bytes} > {TAGS_BYTES_MAX}")))
}

fn invalid_tag(at: usize, rest: &[u8]) -> HBaseError {
    let message = match rest.first_chunk::<2>() {
        None => format!("Overflow when reading tag length at position={at}"),
        Some(len) => {
            format!("Invalid tag length at position={at}, tagLength={}", u16::from_be_bytes(*len))
        }
    };
    HBaseError::do_not_retry(message)
}

/// The well-formed tags at the beginning: all of them, unless a client or server wrote them
/// unchecked.
pub fn whole_tags(tags: &[u8]) -> &[u8] {
    let mut rest = tags;
    while let Some((_, _, after)) = split_tag(rest) {
        rest = after;
    }
    tags.get(..tags.len() - rest.len()).unwrap_or(tags)
}

/// The type and value of the first tag, and the bytes after it; `None` if it is not complete.
pub(super) fn split_tag(tags: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (len, rest) = tags.split_first_chunk::<2>()?;
    let (tag, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let (kind, value) = tag.split_first()?;
    Some((*kind, value, rest))
}

/// Raw tags without their TTL tags, followed by one of `ttl_ms`.
///
/// # Errors
/// `DoNotRetryIOException` if they exceed [`TAGS_BYTES_MAX`].
pub fn tags_with_ttl(tags: &[u8], ttl_ms: i64) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(tags.len() + 3 + TTL_BYTES);
    let mut rest = tags;
    while let Some((kind, _, after)) = split_tag(rest) {
        if kind != tag_type::TTL {
            out.extend_from_slice(rest.get(..rest.len() - after.len()).unwrap_or(rest));
        }
        rest = after;
    }
    out.extend_from_slice(&[0, length::must_u8(1 + TTL_BYTES), tag_type::TTL]);
    out.extend_from_slice(&ttl_ms.to_be_bytes());
    check_tags(&out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(kind: u8, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len() + 1).expect("short");
        [&len.to_be_bytes()[..], &[kind], value].concat()
    }

    #[test]
    fn whole_tags_pass_and_others_do_not() {
        let good = [tag(64, b""), tag(1, b"x"), tag(tag_type::TTL, &[0; 8]), tag(2, &[7; 300])].concat();
        let ends: Vec<_> = [0, 3, 7, 18].into_iter().chain([good.len()]).collect();
        for cut in 0..=good.len() {
            let tags = &good[..cut];
            assert_eq!(check_tags(tags).is_ok(), ends.contains(&cut), "{cut}");
            let whole = ends.iter().rev().find(|end| **end <= cut).expect("0 is an end");
            assert_eq!(whole_tags(tags).len(), *whole);
        }
        for (bad, what) in [
            (&[0][..], "Overflow when reading tag length at position=0"),
            (&[0, 0], "Invalid tag length at position=0, tagLength=0"),
            (&[0, 1, 64, 0, 5, 1], "Invalid tag length at position=3, tagLength=5"),
            (&[0, 2, tag_type::TTL, 1], "TTL tag of 1 bytes at position=0, not 8"),
        ] {
            let error = check_tags(bad).expect_err("not whole");
            assert!(error.is_do_not_retry());
            assert_eq!(error.message(), what);
        }
    }

    #[test]
    fn tags_fit_up_to_the_last_byte() {
        let most = [tag(64, &[0; 65_000]), tag(65, &[0; 529])].concat();
        assert_eq!(most.len(), TAGS_BYTES_MAX);
        check_tags(&most).expect("fit");
        let more = [tag(64, &[0; 65_000]), tag(65, &[0; 530])].concat();
        assert_eq!(check_tags(&more).expect_err("one too many").message(), "tagslength 65536 > 65535");
    }

    #[test]
    fn a_time_to_live_replaces_the_one_there_and_must_fit() {
        let (ttl, other) = (|ttl: i64| tag(tag_type::TTL, &ttl.to_be_bytes()), tag(64, b"x"));
        let tags = [ttl(1), other.clone(), ttl(2)].concat();
        assert_eq!(tags_with_ttl(&tags, 3).expect("fits"), [other, ttl(3)].concat());
        tags_with_ttl(&tag(64, &[0; 65_535 - 11 - 3]), 3).expect("just fits");
        let error = tags_with_ttl(&tag(64, &[0; 65_535 - 11 - 2]), 3).expect_err("does not");
        assert_eq!(error.message(), "tagslength 65536 > 65535");
    }
}
