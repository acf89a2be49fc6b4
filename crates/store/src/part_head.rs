//! What a part says of other files of its table, in its metadata.

/// Key of its cut; see the rule in the room's head.
pub(super) const CUT_KEY: &str = "memtrace.cut_boot_ns";
/// Key of the number from which on parts before it are in it too.
pub(super) const REPLACES_KEY: &str = "memtrace.replaces_from";

/// What a part says of other files of its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartHead {
    /// The time up to which it and the parts before it hold the rows of segments with a number up
    /// to its own; `None` when they hold all.
    pub(super) cut_ns: Option<i64>,
    /// The rows of the parts from this number on up to its own are in it.
    pub(super) replaces_from: Option<u32>,
}
