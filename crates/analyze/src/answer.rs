//! The first lines of a report: what a person should know before anything else.

use memtrace_model::{Label, labels};
use memtrace_report::{Block, Chapter, Tone};
use schemars::JsonSchema;
use serde::Serialize;

labels! {
    /// What a sentence of the answer is about.
    pub enum Topic {
        /// How it ended; of a run who ended first, and who followed.
        WhatHappened = "what_happened" | "What happened",
        /// Hosts that are missing, or were not heard from any more.
        Hosts = "hosts" | "Hosts",
        /// How much was held at most, and who held most of it.
        MostHeld = "most_held" | "Most held",
        /// Who stands out from others that do the same.
        StandsOut = "stands_out" | "Stands out",
        /// What grows, and how fast.
        Growth = "growth" | "Growth",
        /// What memory is inside of the process that matters most, and why it came.
        Inside = "inside" | "Inside",
        /// Which line the memory of the process that grew most came by.
        Allocated = "allocated" | "Allocated",
        /// How near a limit was; of a run the host that is nearest to its limit.
        Limit = "limit" | "Limit",
        /// Clocks that nobody synchronized.
        Clocks = "clocks" | "Clocks",
        /// What is not known, or could not be used.
        Missing = "missing" | "Not known",
        /// The command that shows more.
        LookNext = "look_next" | "Look next",
    }
}

/// A sentence of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AnswerLine {
    /// What it is about.
    pub about: Topic,
    /// The sentence, in words of the text report.
    pub text: String,
    /// The command that it is about, as a shell reads it; of a run ROOT stands for the folder of the
    /// runs. `None` for all but `look_next`.
    pub command: Option<String>,
    /// Whether something is wrong.
    pub is_alarming: bool,
}

impl AnswerLine {
    pub(super) fn of(about: Topic, text: String, is_alarming: bool) -> Self {
        Self {
            about,
            text,
            command: None,
            is_alarming,
        }
    }
}

/// Says the answer.
pub(super) fn tell(chapter: &mut Chapter, lines: Vec<AnswerLine>) {
    for line in lines {
        let tone = match (line.about, line.is_alarming) {
            (_, true) => Tone::Alert,
            (Topic::WhatHappened | Topic::MostHeld, _) => Tone::Strong,
            _ => Tone::Plain,
        };
        chapter.tell(tone, [format!("{}: {}", line.about.shown(), line.text)]);
        chapter.blocks.extend(line.command.map(Block::Command));
    }
}
