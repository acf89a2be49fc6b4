//! memtrace under sudo. The workload `behind-sudo` stands in for it, so that neither the
//! program nor a line in /etc/sudoers is needed: a shell's process of another user, and
//! below it root with the variables that sudo sets. And what is said to who did not call it.

mod needs_root {
    use crate::*;
    use memtrace_tests::{need, workload};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// On every Linux.
    const NOBODY: u32 = 65_534;

    /// Where the calling shell would find its programs.
    fn callers_path(dir: &Path) -> String {
        format!("{}:/usr/bin:/bin", dir.display())
    }

    /// Runs `record OPTIONS -o DIR/recording -- COMMAND` as sudo would for nobody.
    fn behind_sudo(dir: &Path, options: &str, command: &str) -> Result<Output> {
        let words = format!("record --quiet {options} -o recording -- {command}");
        memtrace_behind_sudo(dir, &words)
    }

    /// Runs memtrace in a directory as sudo would for nobody.
    fn memtrace_behind_sudo(dir: &Path, words: &str) -> Result<Output> {
        let script = format!(
            "cd '{}'; PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root LOGNAME=root \
             SUDO_UID={NOBODY} SUDO_GID={NOBODY} SUDO_USER=nobody \
             '{}' {words}; exit $?",
            dir.display(),
            program::memtrace()?.display(),
        );
        let output = workload::command(&["behind-sudo", "--script", &script])?
            .env("PATH", callers_path(dir))
            .stdin(Stdio::null())
            .output()?;
        Ok(output)
    }

    /// A directory that nobody may enter, with a program that is on the caller's path only.
    fn home_of_tools() -> Result<tempfile::TempDir> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir()?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode.clone())?;
        let tool = dir.path().join("only-the-callers");
        std::fs::write(
            &tool,
            "#!/bin/sh\necho $(id -u) $(id -g) $(id -G); echo \"$HOME\"; echo \"$USER $LOGNAME\"; echo \"$PATH\"\n",
        )?;
        std::fs::set_permissions(&tool, mode)?;
        Ok(dir)
    }

    fn lines(output: &Output) -> Vec<String> {
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_is_the_callers_with_groups_home_and_path() -> Result<()> {
        need::require("root");
        let dir = home_of_tools()?;
        let output = behind_sudo(dir.path(), "", "only-the-callers")?;
        assert!(output.status.success(), "{}", words(&output));
        let home = home_of_nobody()?;
        let path = callers_path(dir.path());
        let truth = ["65534 65534 65534", &home, "nobody nobody", &path];
        assert_eq!(lines(&output), truth);
        Ok(())
    }

    fn home_of_nobody() -> Result<String> {
        let users = std::fs::read_to_string("/etc/passwd")?;
        let line = users.lines().find(|line| line.starts_with("nobody:"));
        let home = line.and_then(|line| line.split(':').nth(5));
        Ok(home.context("there is no user nobody")?.to_owned())
    }

    #[test]
    fn as_root_keeps_root_and_its_environment() -> Result<()> {
        need::require("root");
        let dir = home_of_tools()?;
        let tool = dir.path().join("only-the-callers");
        let tool = tool.to_str().context("a path that is text")?;
        let output = behind_sudo(dir.path(), "--as-root", tool)?;
        assert!(output.status.success(), "{}", words(&output));
        let lines = lines(&output);
        assert!(lines[0].starts_with("0 0 "), "{lines:?}");
        assert_eq!(lines[1..3], ["/root", "root root"]);
        assert_eq!(lines[3], "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = behind_sudo(dir.path(), "--as-root", "only-the-callers")?;
        assert_eq!(output.status.code(), Some(127), "{}", words(&output));
        Ok(())
    }

    #[test]
    fn the_recording_belongs_to_the_caller() -> Result<()> {
        need::require("root");
        let dir = home_of_tools()?;
        behind_sudo(dir.path(), "", "sleep 1.2")?;
        let recording = dir.path().join("recording");
        let count = all_are_nobodys(&recording)?;
        assert!(count > 5, "{count} files and directories");
        assert!(recording.join("phase/part-00001.parquet").is_file());
        Ok(())
    }

    #[test]
    fn files_that_are_made_of_a_recording_belong_to_the_caller_too() -> Result<()> {
        need::require("root");
        let dir = home_of_tools()?;
        behind_sudo(dir.path(), "", "sleep 1.2")?;
        for line in [
            "report --format html -o page.html recording",
            "export recording",
        ] {
            let output = memtrace_behind_sudo(dir.path(), line)?;
            assert!(output.status.success(), "{}", words(&output));
        }
        for name in ["page.html", "memory_summary.json"] {
            let metadata = dir.path().join(name).metadata()?;
            assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY), "{name}");
        }
        Ok(())
    }

    fn all_are_nobodys(recording: &Path) -> Result<usize> {
        let mut pending = vec![recording.to_owned()];
        let mut count = 0;
        while let Some(path) = pending.pop() {
            let metadata = std::fs::symlink_metadata(&path)?;
            let owner = (metadata.uid(), metadata.gid());
            assert_eq!(owner, (NOBODY, NOBODY), "{}", path.display());
            count += 1;
            if metadata.is_dir() {
                for entry in path.read_dir()? {
                    pending.push(entry?.path());
                }
            }
        }
        Ok(count)
    }

    #[test]
    fn a_recovery_by_root_leaves_all_to_the_owner_of_the_recording() -> Result<()> {
        need::require("root");
        let mut recorder = Recorder::of_command(&["--kill-child"], &shell("echo; exec sleep 60"))?;
        recorder.line()?;
        recorder.signal(libc::SIGKILL)?;
        let (recorded, _output) = recorder.wait_alone()?;
        let path = recorded.path();
        let owner = format!("{NOBODY}:{NOBODY}");
        let given = Command::new("chown")
            .arg("-R")
            .arg(owner)
            .arg(&path)
            .status()?;
        assert!(given.success());
        let recover = memtrace(["recover".as_ref(), path.as_os_str()])?;
        assert!(recover.status.success(), "{}", words(&recover));
        assert!(all_are_nobodys(&path)? > 5);
        Ok(())
    }

    /// A file that root alone may read, and where anybody may put something.
    fn secret(dir: &Path) -> Result<(std::path::PathBuf, std::path::PathBuf)> {
        use std::os::unix::fs::PermissionsExt;
        let secret = dir.join("secret");
        std::fs::write(&secret, "INFO:     Application startup complete.\n")?;
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
        let open = dir.join("open");
        std::fs::create_dir(&open)?;
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777))?;
        Ok((secret, open))
    }

    #[test]
    fn a_file_that_the_caller_names_is_read_with_the_callers_rights() -> Result<()> {
        need::require("root");
        let dir = home_of_tools()?;
        let (secret, _) = secret(dir.path())?;
        for option in [
            "--marks-from",
            "--roles",
            "--marks-from-output --mark-rules",
        ] {
            let options = format!("{option} '{}'", secret.display());
            let output = behind_sudo(dir.path(), &options, "true")?;
            let text = words(&output);
            assert_eq!(output.status.code(), Some(1), "{option}: {text}");
            assert!(text.contains("opened as nobody, who called sudo"), "{text}");
            assert!(!text.contains("Application"), "{text}");
        }
        let options = format!("--as-root --marks-from '{}'", secret.display());
        let output = behind_sudo(dir.path(), &options, "true")?;
        assert!(output.status.success(), "{}", words(&output));
        Ok(())
    }

    #[test]
    fn a_log_that_becomes_a_link_leads_where_the_caller_may_go() -> Result<()> {
        use memtrace_model::{MarkRow, MarkSource};
        need::require("root");
        let dir = home_of_tools()?;
        let (secret, open) = secret(dir.path())?;
        let own = open.join("own");
        let log = open.join("log");
        let command = format!(
            "sh -c 'ln -s \"{}\" \"{log}\"; sleep 0.5; \
             echo \"INFO:     Application startup complete.\" >\"{own}\"; \
             ln -sfn \"{own}\" \"{log}\"; sleep 0.5'",
            secret.display(),
            log = log.display(),
            own = own.display(),
        );
        let options = format!("--marks-from '{}'", log.display());
        let output = behind_sudo(dir.path(), &options, &command)?;
        assert!(output.status.success(), "{}", words(&output));
        let place = dir.path().join("recording");
        let marks: Vec<MarkRow> = memtrace_store::Recordings::default().open(&place)?.rows()?;
        let marks = marks
            .iter()
            .filter(|row| row.source == Some(MarkSource::File));
        assert_eq!(marks.count(), 1, "of the file that the caller may read");
        Ok(())
    }

    mod needs_bpf {
        use super::*;
        use std::os::unix::process::CommandExt;

        #[test]
        fn who_lacks_the_rights_is_reported_the_command_of_the_program_that_runs() -> Result<()> {
            need::require("root");
            need::require("bpf");
            let dir = home_of_tools()?;
            // As in a virtual environment: where neither sudo nor the shell would look.
            let own = dir.path().join("memtrace of nobody");
            std::fs::copy(program::memtrace()?, &own)?;
            let output = Command::new(&own)
                .args(["record", "--backend", "bpf", "--", "true"])
                .current_dir(dir.path())
                .stdin(Stdio::null())
                .uid(NOBODY)
                .gid(NOBODY)
                .output()?;
            assert_eq!(output.status.code(), Some(1));
            let said = format!("run `sudo '{}' record …`", own.display());
            let text = words(&output);
            assert!(text.contains(&said), "{said}: {text}");
            Ok(())
        }
    }
}
