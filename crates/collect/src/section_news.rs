//! What a process tells or asks of a section of its.

use memtrace_model::{BootNs, DescendantsAnswer, Upid};

/// Where an answer goes. It is taken for granted that this does not wait.
pub type Reply = Box<dyn FnOnce(&DescendantsAnswer) + Send>;

/// What a process tells or asks of a section of its.
pub enum SectionNews {
    /// The section begins.
    Begin {
        /// Whose it is.
        owner: Upid,
        /// Its name among all sections of that process.
        span: i64,
        /// When it begins.
        at: BootNs,
    },
    /// The section ends.
    End {
        /// Whose it is.
        owner: Upid,
        /// Which section it is.
        span: i64,
        /// When it ends.
        at: BootNs,
    },
    /// What did the descendants hold in it?
    Question {
        /// Whose it is, who asks.
        owner: Upid,
        /// Which section it is.
        span: i64,
        /// When it was asked.
        at: BootNs,
        /// Who waits for the answer.
        reply: Reply,
    },
}

impl std::fmt::Debug for SectionNews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (word, owner, span, at) = match self {
            Self::Begin { owner, span, at } => ("begin", owner, span, at),
            Self::End { owner, span, at } => ("end", owner, span, at),
            Self::Question {
                owner, span, at, ..
            } => ("question", owner, span, at),
        };
        write!(f, "{word} of section {span} of {owner:?} at {at:?}")
    }
}
