//! The views, and the list of them.

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Processes below those that started them.
    Tree,
    /// Processes of one role together.
    Roles,
    /// Processes one by one.
    Processes,
    /// What is in use, line by line.
    Ledger,
    /// The memory of GPUs.
    Gpus,
    /// What was named.
    Phases,
    /// The lines that allocated.
    Stacks,
}

impl View {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 7] = [
        Self::Tree,
        Self::Roles,
        Self::Processes,
        Self::Ledger,
        Self::Gpus,
        Self::Phases,
        Self::Stacks,
    ];

    /// Its name, on the screen and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Roles => "roles",
            Self::Processes => "processes",
            Self::Ledger => "ledger",
            Self::Gpus => "gpus",
            Self::Phases => "phases",
            Self::Stacks => "stacks",
        }
    }

    /// What it shows, in a line.
    pub fn doc(self) -> &'static str {
        match self {
            Self::Tree => "processes below those that started them, with the sum of each branch",
            Self::Roles => "processes that do the same, together",
            Self::Processes => "every process, also those that have ended",
            Self::Ledger => "what is in use, line by line, with what nothing explains",
            Self::Gpus => "the memory of GPUs, and who holds it",
            Self::Phases => "what marks and log lines named, and what it cost",
            Self::Stacks => "the lines that allocated what is held (top --stacks)",
        }
    }

    /// Its place among all.
    pub(super) fn place(self) -> usize {
        Self::ALL.iter().position(|view| *view == self).unwrap_or(0)
    }

    /// The one behind it, or before it.
    pub(super) fn beside(self, is_back: bool) -> Self {
        let step = if is_back { Self::ALL.len() - 1 } else { 1 };
        Self::ALL[(self.place() + step) % Self::ALL.len()]
    }

    /// Whether it is text of the report, not a list.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Ledger | Self::Gpus | Self::Stacks)
    }

    /// Whether it is of what the report finds, which takes longer, and only of now.
    pub(super) fn is_deep(self) -> bool {
        self.is_text() || self == Self::Phases
    }
}
