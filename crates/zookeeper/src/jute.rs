//! Jute, ZooKeeper's serialization: big-endian integers, booleans of one byte, buffers and strings
//! with an `int` length (-1 for none), vectors with an `int` count (-1 for none).

/// The error for bytes that are not the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads a record from a packet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(packet: &'a [u8]) -> Self {
        Self { rest: packet }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Malformed> {
        Ok(self.array::<1>()? != [0])
    }

    /// Reads a buffer; a missing one counts as empty.
    pub(super) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Malformed)?),
        }
    }

    pub(super) fn string(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Malformed)
    }

    pub(super) fn strings(&mut self) -> Result<Vec<&'a str>, Malformed> {
        let count = match self.int()? {
            -1 => 0,
            count => usize::try_from(count).map_err(|_| Malformed)?,
        };
        if count > self.rest.len() / 4 {
            return Err(Malformed);
        }
        (0..count).map(|_| self.string()).collect()
    }
}

/// Appends records to a packet.
pub(super) trait Write {
    fn int(&mut self, value: i32);
    fn long(&mut self, value: i64);
    fn boolean(&mut self, value: bool);
    fn buffer(&mut self, value: &[u8]);
    fn strings<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a str>);
}

impl Write for Vec<u8> {
    fn int(&mut self, value: i32) {
        self.extend(value.to_be_bytes());
    }

    fn long(&mut self, value: i64) {
        self.extend(value.to_be_bytes());
    }

    fn boolean(&mut self, value: bool) {
        self.push(value.into());
    }

    fn buffer(&mut self, value: &[u8]) {
        self.int(length(value.len()));
        self.extend(value);
    }

    fn strings<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a str>) {
        self.int(length(values.len()));
        values.for_each(|value| self.buffer(value.as_bytes()));
    }
}

/// A length on the wire. Lengths come from our tree, whose nodes are far smaller than the limit.
pub(super) fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Appends a frame: the bytes of `write` after their length.
pub(super) fn frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.int(0);
    write(out);
    let body = length(out.len() - start - 4);
    if let Some(length) = out.get_mut(start..start + 4) {
        length.copy_from_slice(&body.to_be_bytes());
    }
}
