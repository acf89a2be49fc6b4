//! What /proc hides from whoever polls it.

use super::capability::Capability;
use super::facts::{HidePid, HostFacts};
use super::remedy::record_as_root_or_with;
use memtrace_model::Tgid;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Whether there is a process with an id, as this process counts them: also one that /proc hides.
pub fn is_running(tgid: Tgid) -> bool {
    let asked = Pid::from_raw(tgid.0.cast_signed()).map(test_kill_process);
    // One that may not be asked is there.
    asked.is_some_and(|asked| asked != Err(Errno::SRCH))
}

impl HostFacts {
    /// How /proc hides processes of other users from this one; `None` where it does not.
    pub fn hides_processes(&self) -> Option<HidePid> {
        let hides = self.hidepid.filter(|hidepid| *hidepid != HidePid::Off)?;
        let capabilities = self.capabilities;
        let sees_all = capabilities.is_some_and(|held| held.has(Capability::SYS_PTRACE));
        (!sees_all).then_some(hides)
    }

    /// The same for a person who polls, with the way out.
    pub fn hidden_processes(&self) -> Option<String> {
        let hidepid = self.hides_processes()?.as_str();
        let remedy = self.to_see_hidden();
        Some(format!(
            "processes of other users are hidden (hidepid={hidepid}) and missing here, children of \
             recorded ones too; {remedy}"
        ))
    }

    /// What shows hidden processes.
    pub fn to_see_hidden(&self) -> String {
        record_as_root_or_with("cap_sys_ptrace", self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Capabilities;

    #[test]
    fn what_is_hidden_is_reported_with_the_way_out_only_where_it_is() {
        let mut facts = HostFacts {
            hidepid: Some(HidePid::Invisible),
            euid: Some(1000),
            program: Some("/usr/bin/memtrace".to_owned()),
            capabilities: Some(Capabilities::default()),
            ..HostFacts::unknown()
        };
        let words = facts.hidden_processes().unwrap();
        assert!(words.contains("hidepid=invisible"), "{words}");
        assert!(words.contains("sudo /usr/bin/memtrace record"), "{words}");
        assert!(words.contains("cap_sys_ptrace"), "{words}");
        facts.capabilities = Some(Capabilities::default().with(Capability::SYS_PTRACE));
        assert_eq!(facts.hidden_processes(), None);
        facts.capabilities = Some(Capabilities::default());
        facts.hidepid = Some(HidePid::Off);
        assert_eq!(facts.hidden_processes(), None);
    }
}
