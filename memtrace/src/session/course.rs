//! The course of a recording: facts, plan, the command, the loop, who is left, the end.

#[cfg(not(target_os = "linux"))]
use super::Leftovers;
use super::outcome::{Outcome, Progress, RecordError};
use super::record::Session;
use super::signals::Signals;
#[cfg(target_os = "linux")]
use super::survivors::Watch;
use super::{Held, Marks, Options, StartError, gpus, limits, start};
#[cfg(target_os = "linux")]
use memtrace_host::Capability;
use memtrace_host::{HostFacts, Plan};
use memtrace_model::RunInfo;

/// Makes a recording. `held` is the command of [`Target::Command`]; `announce` is reported
/// where the recording goes and what was decided, `progress` once a second how far it is.
///
/// # Errors
/// When the recording can't be started, or not closed. A disk that fills up in between is
/// no error: the recording stops there, the command goes on, and the outcome tells.
pub fn record(
    options: &Options,
    facts: &HostFacts,
    mut held: Option<Held>,
    marks: Marks,
    owner: Option<(u32, u32)>,
    announce: impl FnOnce(&RunInfo, &std::path::Path, usize),
    mut progress: impl FnMut(&Progress),
) -> Result<Outcome, RecordError> {
    let plan =
        Plan::from_facts(facts, options.backend, options.probes).map_err(StartError::from)?;
    let command = held.as_ref().map(Held::tgid);
    let targets = start::targets(&options.target, command, facts, &plan)?;
    limits::protect();
    // Before signals are taken over, and before there are events to drain: it can wait.
    let gpus = gpus::Starting::begin(options, facts);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RecordError::Loop)?;
    runtime.block_on(async {
        let mut signals =
            Signals::listen(held.is_some(), options.ends_with_stdin).map_err(RecordError::Loop)?;
        let mut session = Session::start(
            options,
            facts,
            &plan,
            &targets,
            held.as_ref(),
            gpus,
            marks,
            owner,
        )?;
        #[cfg(target_os = "linux")]
        let watch = {
            let is_exact = start::has_exact_identities(&session.info.backend, facts);
            Watch::start(is_exact, targets.clone())
        };
        // Under a limit a mapping beyond it would be refused later, in the middle of a recording.
        #[cfg(target_os = "linux")]
        if facts
            .capabilities
            .is_some_and(|held| held.has(Capability::IPC_LOCK))
        {
            limits::lock();
        }
        let found = session.table().processes().count();
        announce(&session.info, session.output.dir(), found);
        if let Some(held) = &mut held
            && let Err(error) = held.release()
        {
            session.abandon();
            return Err(error.into());
        }
        let end = session
            .run(options, command, &mut signals, &mut progress)
            .await?;
        #[cfg(target_os = "linux")]
        let leftovers = watch
            .look(
                &mut session,
                &options.target,
                options.kills_survivors,
                &mut signals,
            )
            .await;
        #[cfg(not(target_os = "linux"))]
        let leftovers = Leftovers::default();
        session
            .finish(end, leftovers, command, &mut signals, &mut progress)
            .await
    })
}
