//! [`Command`]: PerformanceEvaluation's commands and YCSB's mixes.

/// A command: the operation for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Gets of rows in order.
    SequentialRead,
    /// Gets of random rows.
    RandomRead,
    /// Puts of rows in order.
    SequentialWrite,
    /// Puts of random rows.
    RandomWrite,
    /// Deletes of rows in order.
    SequentialDelete,
    /// Deletes of random rows.
    RandomDelete,
    /// One scan that starts at the client's first row; a row is one `next`.
    Scan,
    /// One scan backwards from the table's end; a row is one `next`.
    ReverseScan,
    /// Scans of 120 rows from a random one.
    RandomSeekScan,
    /// Scans from a random row to the one this number of rows after it.
    ScanRange(i64),
    /// Scans of the whole table for one value.
    FilterScan,
    /// Increments; all clients use the same rows.
    Increment,
    /// Appends; all clients use the same rows.
    Append,
    /// A Put, then a checked RowMutations; all clients use the same rows.
    CheckAndMutate,
    /// A Put, then a checked Put; all clients use the same rows.
    CheckAndPut,
    /// A Put, then a checked Delete; all clients use the same rows.
    CheckAndDelete,
    /// Lookups of locations in hbase:meta.
    MetaRandomRead,
    /// A YCSB mix.
    Ycsb(Ycsb),
}

/// YCSB's core workloads: the mix of requests, and the distribution of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ycsb {
    /// Half reads, half updates.
    A,
    /// 95% reads, 5% updates.
    B,
    /// Reads.
    C,
    /// 95% reads of the newest rows, 5% inserts.
    D,
    /// 95% scans of 1 to 100 rows, 5% inserts.
    E,
    /// Half reads, half reads followed by an update of the same row.
    F,
}

/// Names and descriptions. The form of a name with the prefix `async` is a synonym.
const COMMANDS: &[(&str, Command, &str)] = &[
    ("append", Command::Append, "append to each row; clients share their rows"),
    ("checkAndDelete", Command::CheckAndDelete, "put, then delete if unchanged; clients share their rows"),
    ("checkAndMutate", Command::CheckAndMutate, "put, then mutate if unchanged; clients share their rows"),
    ("checkAndPut", Command::CheckAndPut, "put, then put if unchanged; clients share their rows"),
    ("filterScan", Command::FilterScan, "full scans that filter by one value (use --rows=20)"),
    ("increment", Command::Increment, "increment on each row; clients share their rows"),
    ("metaRandomRead", Command::MetaRandomRead, "look up locations of random keys in hbase:meta"),
    ("randomDelete", Command::RandomDelete, "delete random rows"),
    ("randomRead", Command::RandomRead, "get random rows"),
    ("randomSeekScan", Command::RandomSeekScan, "scans of up to 120 rows from a random row"),
    ("randomWrite", Command::RandomWrite, "put random rows"),
    ("reverseScan", Command::ReverseScan, "scan backwards, one row after the other"),
    ("scan", Command::Scan, "scan forwards, one row after the other"),
    ("scanRange10", Command::ScanRange(10), "scans of random ranges of up to 10 rows"),
    ("scanRange100", Command::ScanRange(100), "scans of random ranges of up to 100 rows"),
    ("scanRange1000", Command::ScanRange(1000), "scans of random ranges of up to 1000 rows"),
    ("scanRange10000", Command::ScanRange(10_000), "scans of random ranges of up to 10000 rows"),
    ("sequentialDelete", Command::SequentialDelete, "delete rows in order"),
    ("sequentialRead", Command::SequentialRead, "get rows in order"),
    ("sequentialWrite", Command::SequentialWrite, "put rows in order"),
    ("ycsbA", Command::Ycsb(Ycsb::A), "YCSB A: half reads, half updates, zipfian"),
    ("ycsbB", Command::Ycsb(Ycsb::B), "YCSB B: 95% reads, 5% updates, zipfian"),
    ("ycsbC", Command::Ycsb(Ycsb::C), "YCSB C: reads, zipfian"),
    ("ycsbD", Command::Ycsb(Ycsb::D), "YCSB D: 95% reads of the newest rows, 5% inserts"),
    ("ycsbE", Command::Ycsb(Ycsb::E), "YCSB E: 95% scans of 1 to 100 rows, 5% inserts"),
    ("ycsbF", Command::Ycsb(Ycsb::F), "YCSB F: half reads, half read-modify-writes, zipfian"),
];

/// Commands that have an `async` form in HBase's tool.
const ASYNC: [&str; 5] = ["randomRead", "randomWrite", "sequentialRead", "sequentialWrite", "scan"];

impl Command {
    /// The command with a name, such as `randomRead` or `asyncRandomRead`.
    pub fn of_name(name: &str) -> Option<Self> {
        let plain = name.strip_prefix("async").map(|rest| {
            let (first, rest) = rest.split_at(rest.chars().next().map_or(0, char::len_utf8));
            format!("{}{rest}", first.to_ascii_lowercase())
        });
        let name = match &plain {
            Some(plain) if ASYNC.contains(&plain.as_str()) => plain,
            _ => name,
        };
        COMMANDS.iter().find(|(known, ..)| *known == name).map(|(_, command, _)| *command)
    }

    /// Its plain name.
    pub fn name(self) -> &'static str {
        COMMANDS.iter().find(|(_, command, _)| *command == self).map_or("", |(name, ..)| name)
    }

    /// The names and descriptions of all commands, in order.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        COMMANDS.iter().map(|(name, _, description)| (*name, *description))
    }

    /// Returns true if the table must exist: reads, scans, deletes and YCSB's mixes.
    pub fn needs_data(self) -> bool {
        let name = self.name().to_ascii_lowercase();
        ["read", "scan", "delete", "ycsb"].iter().any(|part| name.contains(part))
    }

    /// Returns true if all clients use the same rows, from 0, for contention.
    pub fn shares_rows(self) -> bool {
        use Command::{Append, CheckAndDelete, CheckAndMutate, CheckAndPut, Increment};
        matches!(self, Increment | Append | CheckAndMutate | CheckAndPut | CheckAndDelete)
    }

    /// The column of commands on shared rows: the name of HBase's test class.
    pub(crate) fn qualifier(self) -> &'static [u8] {
        match self {
            Self::Increment => b"IncrementTest",
            Self::Append => b"AppendTest",
            Self::CheckAndMutate => b"CheckAndMutateTest",
            Self::CheckAndPut => b"CheckAndPutTest",
            Self::CheckAndDelete => b"CheckAndDeleteTest",
            _ => b"0",
        }
    }

    /// Returns true if `--rows` is the number of requests and `--size` that of the table, if both
    /// are given.
    pub(crate) fn reads_within_size(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomSeekScan | Self::Ycsb(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_round_trip() {
        for (name, _) in Command::all() {
            assert_eq!(Command::of_name(name).expect("known").name(), name);
        }
        assert_eq!(Command::of_name("asyncRandomRead"), Some(Command::RandomRead));
        assert_eq!(Command::of_name("asyncScan"), Some(Command::Scan));
        assert_eq!(Command::of_name("asyncIncrement"), None);
        assert_eq!(Command::of_name("randomread"), None);
        assert_eq!(Command::of_name("async"), None);
    }

    #[test]
    fn commands_state_whether_they_need_data() {
        let needs = |name| Command::of_name(name).expect("known").needs_data();
        assert!(["scan", "randomRead", "metaRandomRead", "checkAndDelete", "ycsbA"].into_iter().all(needs));
        assert!(!["sequentialWrite", "increment", "checkAndPut", "append"].into_iter().any(needs));
    }
}
