//! Escapes in strings: all of Ruby's between double quotes, `\\` and `\'` between single ones.

use super::SyntaxError;

/// An invalid escape.
pub enum InvalidEscape {
    /// The input ends within it.
    Unfinished,
    /// It is not an escape of Ruby.
    Invalid,
}

impl InvalidEscape {
    /// The error of a string that begins at `start`, the escape being at `at`.
    pub fn into_error(self, at: usize, start: usize) -> SyntaxError {
        match self {
            Self::Unfinished => SyntaxError::incomplete(start),
            Self::Invalid => SyntaxError::new(at, "invalid escape in a string"),
        }
    }
}

/// Parses the escape at the beginning of `rest`, appends its bytes to `text` and returns its
/// length.
pub fn read(rest: &str, quote: char, text: &mut Vec<u8>) -> Result<usize, InvalidEscape> {
    let after = rest[1..].chars().next().ok_or(InvalidEscape::Unfinished)?;
    if quote == '\'' {
        if !matches!(after, '\'' | '\\') {
            text.push(b'\\');
        }
        push(text, after);
        return Ok(1 + after.len_utf8());
    }
    let byte = match after {
        'n' => b'\n',
        't' => b'\t',
        'r' => b'\r',
        'e' => 0x1b,
        'a' => 0x07,
        'b' => 0x08,
        'v' => 0x0b,
        'f' => 0x0c,
        's' => b' ',
        '0'..='7' => return Ok(1 + octal(&rest[1..], text)),
        'x' => return hex(&rest[2..], text).map(|length| 2 + length),
        'u' => return unicode(&rest[2..], text).map(|length| 2 + length),
        '\n' => return Ok(2),
        other => {
            push(text, other);
            return Ok(1 + other.len_utf8());
        }
    };
    text.push(byte);
    Ok(2)
}

fn push(text: &mut Vec<u8>, c: char) {
    text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Up to three octal digits; as in Ruby, only the low eight bits count.
fn octal(rest: &str, text: &mut Vec<u8>) -> usize {
    let length = rest.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    let number = u16::from_str_radix(&rest[..length], 8).unwrap_or(0);
    let [low, _] = number.to_le_bytes();
    text.push(low);
    length
}

/// One or two hexadecimal digits.
fn hex(rest: &str, text: &mut Vec<u8>) -> Result<usize, InvalidEscape> {
    let length = rest.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
    let byte = u8::from_str_radix(&rest[..length], 16).map_err(|_| InvalidEscape::Invalid)?;
    text.push(byte);
    Ok(length)
}

/// Four hexadecimal digits, or any number of them between braces.
fn unicode(rest: &str, text: &mut Vec<u8>) -> Result<usize, InvalidEscape> {
    let (digits, length) = match rest.strip_prefix('{') {
        Some(inner) => {
            let end = inner.find('}').ok_or(InvalidEscape::Invalid)?;
            (&inner[..end], end + 2)
        }
        None => (rest.get(..4).ok_or(InvalidEscape::Invalid)?, 4),
    };
    let number = u32::from_str_radix(digits, 16).map_err(|_| InvalidEscape::Invalid)?;
    push(text, char::from_u32(number).ok_or(InvalidEscape::Invalid)?);
    Ok(length)
}
