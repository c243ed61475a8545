//! The operations that run while the disk records.

use Step::*;

/// A step of a client.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A table of the families `f` and `g`, split at these keys.
    Create(&'static str, &'static [&'static str]),
    /// A row with a cell in each of these families, with FSYNC_WAL.
    Put(&'static str, &'static str, &'static [&'static str]),
    Flush(&'static str),
    /// Waits until all files of the table are one.
    Compact(&'static str),
    /// Removes files of the archive and `oldWALs` that are no longer needed.
    Clean,
    /// Sets MAX_FILESIZE.
    ModifyTable(&'static str, &'static str),
    Enable(&'static str),
    Disable(&'static str),
    Delete(&'static str),
    /// A table, and true if its region boundaries stay.
    Truncate(&'static str, bool),
    /// The first region.
    TruncateRegion(&'static str),
    AddFamily(&'static str, &'static str),
    /// Sets VERSIONS.
    ModifyFamily(&'static str, &'static str, &'static str),
    DeleteFamily(&'static str, &'static str),
    Split(&'static str, &'static str),
    /// The first two regions.
    Merge(&'static str),
    /// The first region.
    Move(&'static str),
    /// Waits until the janitor has cleaned up a region that was split or merged.
    Janitor,
    Snapshot(&'static str, &'static str),
    DeleteSnapshot(&'static str),
    Clone(&'static str, &'static str),
    Restore(&'static str),
    CreateNamespace(&'static str),
    ModifyNamespace(&'static str, &'static str),
    DeleteNamespace(&'static str),
    /// A file of one row for `f`, in the first region.
    BulkLoad(&'static str, &'static str),
    RollLogs,
    /// The store file tracker of the table.
    ChangeTracker(&'static str, &'static str),
    /// The store file tracker of a family.
    ChangeFamilyTracker(&'static str, &'static str, &'static str),
}

/// Steps, and the unrecorded steps before them.
pub struct Scenario {
    pub name: &'static str,
    pub prepared: &'static [Step],
    pub steps: &'static [Step],
}

const FG: &[&str] = &["f", "g"];

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "create",
        prepared: &[],
        steps: &[
            Create("t", &["m"]),
            Put("t", "a", FG),
            Put("t", "z", FG),
            Create("u", &[]),
            Put("u", "a", FG),
        ],
    },
    Scenario {
        name: "delete",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG)],
        steps: &[Disable("t"), Delete("t"), Create("t", &[]), Put("t", "b", FG)],
    },
    Scenario {
        name: "truncate",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG), Flush("t"), Disable("t")],
        steps: &[
            Truncate("t", true),
            Put("t", "b", FG),
            Disable("t"),
            Truncate("t", false),
            Put("t", "c", FG),
        ],
    },
    Scenario {
        name: "truncate a region",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG), Flush("t"), Put("t", "b", FG)],
        steps: &[
            TruncateRegion("t"),
            Put("t", "c", FG),
            Flush("t"),
            TruncateRegion("t"),
            Split("t", "d"),
            Put("t", "e", FG),
            RollLogs,
        ],
    },
    Scenario {
        name: "enable",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG)],
        steps: &[Put("t", "b", FG), Disable("t"), Enable("t"), Put("t", "c", FG)],
    },
    Scenario {
        name: "alter",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG)],
        steps: &[
            AddFamily("t", "h"),
            Put("t", "b", &["f", "h"]),
            ModifyFamily("t", "h", "5"),
            DeleteFamily("t", "g"),
            Put("t", "y", &["f", "h"]),
        ],
    },
    Scenario {
        name: "alter of a disabled table",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG), Disable("t")],
        steps: &[
            AddFamily("t", "h"),
            ModifyFamily("t", "h", "5"),
            DeleteFamily("t", "g"),
            ModifyTable("t", "3000000"),
            Enable("t"),
            Put("t", "b", &["f", "h"]),
        ],
    },
    Scenario {
        name: "modify",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG)],
        steps: &[
            ModifyTable("t", "3000000"),
            Put("t", "b", FG),
            Flush("t"),
            ModifyTable("t", "4000000"),
            Put("t", "z", FG),
        ],
    },
    Scenario {
        name: "snapshot of a disabled table",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Flush("t"), Put("t", "z", FG), Disable("t")],
        steps: &[
            Snapshot("s", "t"),
            Enable("t"),
            Put("t", "b", FG),
            Disable("t"),
            Restore("s"),
            DeleteSnapshot("s"),
            Enable("t"),
        ],
    },
    Scenario {
        name: "compaction and cleaners",
        prepared: &[Create("t", &[]), Put("t", "a", FG), Flush("t"), Put("t", "z", FG), Create("u", &[])],
        steps: &[
            Flush("t"),
            Compact("t"),
            Put("t", "b", FG),
            Disable("u"),
            Delete("u"),
            RollLogs,
            Flush("t"),
            Clean,
            Put("t", "c", FG),
        ],
    },
    Scenario {
        name: "family again",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Flush("t"), Put("t", "b", FG), Put("t", "z", FG)],
        steps: &[DeleteFamily("t", "g"), AddFamily("t", "g"), Put("t", "c", FG), RollLogs, Flush("t")],
    },
    Scenario {
        name: "split",
        prepared: &[Create("t", &[]), Put("t", "a", FG), Put("t", "z", FG), Flush("t"), Put("t", "b", FG)],
        steps: &[Split("t", "m"), Put("t", "c", FG), Put("t", "y", FG), Janitor, Put("t", "d", FG)],
    },
    Scenario {
        name: "merge",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG), Flush("t"), Put("t", "b", FG)],
        steps: &[Merge("t"), Put("t", "c", FG), Janitor, Put("t", "y", FG)],
    },
    Scenario {
        name: "split of merge",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG), Flush("t")],
        steps: &[Merge("t"), Split("t", "c"), Put("t", "b", FG), Janitor, Merge("t"), Put("t", "d", FG)],
    },
    Scenario {
        name: "move",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG)],
        steps: &[Move("t"), Put("t", "b", FG), RollLogs, Put("t", "y", FG), Flush("t"), Put("t", "z", FG)],
    },
    Scenario {
        name: "snapshot",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG)],
        steps: &[Snapshot("s", "t"), Put("t", "b", FG), Snapshot("r", "t"), DeleteSnapshot("s")],
    },
    Scenario {
        name: "clone",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Put("t", "z", FG), Snapshot("s", "t")],
        steps: &[Clone("s", "c"), Put("c", "b", FG), Disable("t"), Delete("t"), Put("c", "y", FG)],
    },
    Scenario {
        name: "restore",
        prepared: &[
            Create("t", &["m"]),
            Put("t", "a", FG),
            Snapshot("s", "t"),
            Put("t", "z", FG),
            AddFamily("t", "h"),
            Disable("t"),
        ],
        steps: &[Restore("s"), Enable("t"), Put("t", "b", FG)],
    },
    Scenario {
        name: "namespaces",
        prepared: &[],
        steps: &[
            CreateNamespace("n"),
            Create("n:t", &[]),
            Put("n:t", "a", FG),
            ModifyNamespace("n", "x"),
            Disable("n:t"),
            Delete("n:t"),
            DeleteNamespace("n"),
        ],
    },
    Scenario {
        name: "trackers",
        prepared: &[Create("t", &["m"]), Put("t", "a", FG), Flush("t"), Put("t", "z", FG)],
        steps: &[
            ChangeTracker("t", "FILE"),
            Put("t", "b", FG),
            Flush("t"),
            ChangeTracker("t", "DEFAULT"),
            Put("t", "y", FG),
            ChangeFamilyTracker("t", "g", "FILE"),
            Flush("t"),
        ],
    },
    Scenario {
        name: "bulk load",
        prepared: &[Create("t", &[]), Put("t", "a", FG)],
        steps: &[BulkLoad("t", "b"), Put("t", "c", FG), BulkLoad("t", "d")],
    },
];
