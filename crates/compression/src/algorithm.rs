//! The names and numbers of the codecs (`Compression.Algorithm`).

/// A compression codec (`COMPRESSION`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZO: not implemented.
    Lzo,
    /// A gzip stream.
    Gz,
    /// No compression.
    None,
    /// Raw Snappy in Hadoop's block framing.
    Snappy,
    /// Raw LZ4 in Hadoop's block framing.
    Lz4,
    /// A bzip2 stream.
    Bzip2,
    /// A Zstandard stream, with or without the block framing. Readers detect it.
    Zstd,
    /// LZMA: not implemented.
    Lzma,
    /// Brotli: not implemented.
    Brotli,
}

impl Compression {
    /// All codecs, by number.
    pub const ALL: &'static [Self] = &[
        Self::Lzo,
        Self::Gz,
        Self::None,
        Self::Snappy,
        Self::Lz4,
        Self::Bzip2,
        Self::Zstd,
        Self::Lzma,
        Self::Brotli,
    ];

    /// HBase's name, as in a column family's attributes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lzo => "LZO",
            Self::Gz => "GZ",
            Self::None => "NONE",
            Self::Snappy => "SNAPPY",
            Self::Lz4 => "LZ4",
            Self::Bzip2 => "BZIP2",
            Self::Zstd => "ZSTD",
            Self::Lzma => "LZMA",
            Self::Brotli => "BROTLI",
        }
    }

    /// The number in files: in an HFile's trailer, and in a WAL's header.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The codec with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// The codec with this number.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for (number, one) in Compression::ALL.iter().enumerate() {
            assert_eq!(one.code() as usize, number);
            assert_eq!(Compression::from_code(one.code()), Some(*one));
            assert_eq!(Compression::from_name(&one.name().to_lowercase()), Some(*one));
        }
        assert_eq!((Compression::from_code(9), Compression::from_name("ZIP")), (None, None));
        assert_eq!((Compression::Gz.code(), Compression::Zstd.code()), (1, 6));
    }
}
