//! What gives memtrace the rights that it lacks, in lines that a person can type.

use super::facts::HostFacts;
use memtrace_model::quoted;

/// For root without a capability, something else took it away.
pub(super) const CONFINED_ROOT: &str = "this root is confined: grant it where it is started (docker run \
     --cap-add, securityContext.capabilities, CapabilityBoundingSet=)";

/// The command that records as root, where that helps.
pub(super) fn record_as_root(facts: &HostFacts) -> String {
    match facts.euid {
        Some(0) => CONFINED_ROOT.to_owned(),
        _ => format!("run `{}`", sudo_record(facts)),
    }
}

/// The same, or one capability for the program's file.
pub(super) fn record_as_root_or_with(capability: &str, facts: &HostFacts) -> String {
    let as_root = record_as_root(facts);
    match facts.euid {
        Some(0) => as_root,
        _ => format!("{as_root}, or give it {capability}"),
    }
}

/// Names the program by its path: sudo does not look into virtual environments.
pub(super) fn sudo_record(facts: &HostFacts) -> String {
    format!("sudo {} record …", program(facts))
}

/// The file that runs, as a word of a shell's line.
pub(super) fn program(facts: &HostFacts) -> String {
    match &facts.program {
        Some(path) => quoted(path),
        None => "\"$(command -v memtrace)\"".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(euid: u32, program: Option<&str>) -> HostFacts {
        HostFacts {
            euid: Some(euid),
            program: program.map(str::to_owned),
            ..HostFacts::unknown()
        }
    }

    #[test]
    fn the_program_stands_with_its_path_as_a_shell_reads_it() {
        let text = |program| record_as_root(&facts(1000, program));
        assert_eq!(
            text(Some("/venv/bin/memtrace")),
            "run `sudo /venv/bin/memtrace record …`"
        );
        assert_eq!(
            text(Some("/home/ada/it's mine/memtrace")),
            r"run `sudo '/home/ada/it'\''s mine/memtrace' record …`"
        );
        assert_eq!(text(None), "run `sudo \"$(command -v memtrace)\" record …`");
    }

    #[test]
    fn root_that_lacks_a_right_is_not_sent_to_sudo() {
        let confined = facts(0, Some("/usr/bin/memtrace"));
        assert_eq!(record_as_root(&confined), CONFINED_ROOT);
        assert_eq!(
            record_as_root_or_with("cap_syslog", &confined),
            CONFINED_ROOT
        );
    }
}
