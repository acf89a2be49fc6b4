//! What `memtrace record` starts before the recording begins: the command, stopped, and what
//! belongs to it.

use super::Args;
use super::load::Sender;
use super::named_files::{check_log, mark_rules};
use crate::session::{CommandUser, Held, Marks, Scope};
use anyhow::Context;
use memtrace_host::{HostFacts, Person};

/// The command, which waits for the recording, and what goes along with it.
pub(super) struct Started {
    pub(super) marks: Marks,
    /// Nothing where processes are recorded that run already.
    pub(super) held: Option<Held>,
    pub(super) scope: Option<Scope>,
    /// Who sends it the load of a plan.
    pub(super) sender: Option<Sender>,
}

impl Started {
    /// Starts it before any thread is started and before anything large is read: until it runs, the
    /// command is a copy of this process.
    ///
    /// # Errors
    /// [`CommandError`](crate::session::CommandError) when there is no such command, and others.
    pub(super) fn start(
        args: &mut Args,
        user: CommandUser,
        person: Option<&Person>,
        facts: &HostFacts,
    ) -> anyhow::Result<Self> {
        // What stands beneath the lines of the command is read from them.
        let has_output = !args.targets.command.is_empty() && cfg!(target_os = "linux");
        args.marks_from_output |= args.inline && has_output;
        let passing_on = "failed to pass on what the command writes";
        let mut marks = match args.gpu_only {
            true => Marks::none(),
            false => Marks::bind(user.owner(), args.marks_from_output).context(passing_on)?,
        };
        let command = &args.targets.command;
        let held = match command.is_empty() {
            true => None,
            false => Some(Held::fork(command, user, &marks, args.kill_child)?),
        };
        let (mut scope, mut sender) = (None, None);
        if let Some(held) = &held {
            let hierarchy = facts.memory_hierarchy.as_ref();
            scope = Scope::start(args.scope, hierarchy, held.tgid()).context(
                "failed to give the command a cgroup of its own (--scope never does without)",
            )?;
            marks.pass_on(held.tgid()).context(passing_on)?;
            if let Some(plan) = &args.load {
                sender = Some(Sender::start(args, plan, held.tgid(), &marks)?);
            }
        }
        if args.marks_from_output || !args.marks_from.is_empty() {
            let rules = mark_rules(args.mark_rules.as_deref(), person)?;
            args.marks_from
                .iter()
                .try_for_each(|file| check_log(file, person))?;
            let logs = std::mem::take(&mut args.marks_from);
            marks.read_lines(rules, logs, person.cloned());
        }
        Ok(Self {
            marks,
            held,
            scope,
            sender,
        })
    }
}
