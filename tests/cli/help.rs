//! `--help`, completions and manual pages: what they show works as it is typed.

use super::links::pages_in;
use super::load::Server;
use super::{traces, *};
use memtrace_tests::beside::{at_once, beside};
use std::path::Path;

/// The examples of a command's help: its lines that begin with two blanks and the command.
fn examples(command: &str) -> Result<Vec<String>> {
    let help = memtrace([command, "--help"])?;
    let text = String::from_utf8(help.stdout)?;
    let after = text.split_once("\nExample").map(|(_, after)| after);
    let lines = after.unwrap_or_default().lines();
    let shown = lines.filter(|line| line.starts_with("  memtrace "));
    Ok(shown.map(|line| line.trim().to_owned()).collect())
}

/// Runs a line as a person types it, in a directory, with memtrace on the PATH.
fn typed(dir: &Path, line: &str) -> Result<Output> {
    let program = program::memtrace()?;
    let own = program.parent().context("a directory")?.display();
    let path = std::env::var("PATH")?;
    let output = Command::new("bash")
        // A shell that has nothing left to do would become the command.
        .args(["-c", &format!("{line}\nexit $?")])
        .current_dir(dir)
        .env("PATH", format!("{own}:{path}"))
        .stdin(Stdio::null())
        .output()?;
    let text = words(&output);
    assert!(output.status.success(), "{line}: {text}");
    Ok(output)
}

/// The same where there is a terminal, whose reader quits when there is something to see.
fn at_a_terminal(line: &str) -> String {
    let shown = line.split("  #").next().unwrap_or(line);
    if shown.contains("--once") {
        return line.to_owned();
    }
    let keys = "(until grep -qs quit screen; do sleep 0.05; done; printf q; sleep 1)";
    let typed = shown.replace('\'', "'\\''");
    let seen =
        format!("rm -f screen; {keys} | script -qfec 'stty rows 24 columns 100; {typed}' screen");
    match shown.trim() == "memtrace top" {
        true => format!("cat > seen <<'END'\n{seen}\nEND\nmemtrace record -q -o shown -- sh seen"),
        false => seen,
    }
}

fn commands() -> Result<Vec<String>> {
    let help = memtrace(["--help"])?;
    let text = String::from_utf8(help.stdout)?;
    let listed = text.split("Commands:").nth(1).context("a list")?;
    let listed = listed.split("Options:").next().context("a list")?;
    let lines = listed.lines().filter(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    // What `ray` says is said by the Python package.
    Ok(names
        .filter(|name| !["help", "ray"].contains(name))
        .map(str::to_owned)
        .collect())
}

#[test]
fn every_command_shows_an_example_and_those_of_record_work_as_typed() -> Result<()> {
    let commands = commands()?;
    assert!(commands.len() >= 9, "{commands:?}");
    for command in &commands {
        assert!(!examples(command)?.is_empty(), "{command}");
    }
    let lines = examples("record")?;
    assert_eq!(lines.len(), 3, "{lines:?}");
    // Most of them wait.
    at_once(lines.len(), &lines, |line| {
        let dir = tempfile::tempdir()?;
        typed(dir.path(), line)?;
        assert_eq!(dir.path().read_dir()?.count(), 1, "{line}");
        typed(dir.path(), "memtrace report")
    })?;
    Ok(())
}

#[test]
fn the_examples_of_the_other_commands_work_as_typed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = format!("{{\"torch_profiler_dir\":\"{}\"}}", dir.path().display());
    let server = Server::start_with(&["--profiler-config", &config], &[])?;
    // Some examples are about traces, some about steps.
    std::fs::create_dir(dir.path().join("profile"))?;
    std::fs::write(dir.path().join("profile/rank0.json"), traces::SMALL)?;
    let step = "memtrace mark -q step_1 --begin; memtrace mark -q step_1 --end";
    let of_hosts = ["root/run=4711/host=node1", "root/run=4712/host=node1"];
    for host in of_hosts {
        std::fs::create_dir_all(dir.path().join(host))?;
    }
    let [of_host, later] = of_hosts.map(|host| format!("{host}/rec=20261123T121913Z"));
    beside(&["before", "after", &of_host, &later], |name| {
        let line = format!("memtrace record --quiet -o {name} -- sh -c '{step}'");
        typed(dir.path(), &line)
    })?;
    // Most of those of some commands wait.
    at_once(4, &commands()?, |command| {
        let own = tempfile::tempdir()?;
        typed(own.path(), &format!("cp -a {}/. .", dir.path().display()))?;
        let mut recorded = 0;
        for line in examples(command)? {
            let line = match command.as_str() {
                "record" => continue,
                // Needs a recording that runs.
                "mark" => format!("memtrace record -o marked -- {line}"),
                // Needs a recording that runs too, and a terminal.
                "top" => at_a_terminal(&line),
                // Needs a server, and tells the recording that it is in: others run beside it.
                "engine" => {
                    recorded += 1;
                    let line = line.replace("http://localhost:8000", &server.url);
                    format!("memtrace record -q -o engine-{recorded} -- {line}")
                }
                // Needs a recording that runs, and goes on for as long.
                "export" | "watch"
                    if ["--every", "--listen", "memtrace watch"]
                        .iter()
                        .any(|word| line.contains(word)) =>
                {
                    recorded += 1;
                    let line = line.replace("/var/lib/prometheus/node-exporter", "metrics");
                    let line = line.replace("/var/lib/memtrace", ".").replace("9847", "0");
                    let stopped = format!("timeout 3 {line}; test $? = 124");
                    format!("memtrace record -q -o export-{recorded} -- sh -c '{stopped}'")
                }
                // Needs a bucket.
                "push" => {
                    let line = line.replace("/var/lib/memtrace", "before");
                    line.replace("s3://bucket/memory", "root")
                }
                "downsample" => line.replace("/var/lib/memtrace", "."),
                // Two runs of one command differ where the machine is busy.
                "diff" => format!("{line} || test $? = 3"),
                // Opens a pager.
                "man" => line.replace("man ./", "test -s ./"),
                _ => line,
            };
            typed(own.path(), &line)?;
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn every_page_shows_lines_that_are_understood() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let dir = tempfile::tempdir()?;
    let of_packages = ["", "python", "python/recorder", "python/remote"];
    let mut pages = of_packages
        .map(|dir| root.join(dir).join("README.md"))
        .to_vec();
    pages.extend(pages_in(&root.join("docs"))?);
    let mut count = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page)?;
        for line in commands_of(&text) {
            is_understood(dir.path(), &line).with_context(|| page.display().to_string())?;
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
    Ok(())
}

#[test]
fn the_service_starts_a_line_that_is_understood_and_keeps_what_the_recipes_say() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let unit = std::fs::read_to_string(root.join("xtask/dist/deb/memtrace.service"))?;
    let lines = unit.lines();
    let mut started = lines.filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
    let line = started.next().context("the unit starts nothing")?;
    is_understood(tempfile::tempdir()?.path(), line)?;
    let recipes = std::fs::read_to_string(root.join("docs/recipes.md"))?;
    for option in ["--keep", "--downsample"] {
        let (_, rest) = line
            .split_once(option)
            .context("the unit lacks an option")?;
        let value = rest.split_whitespace().next().context("no value")?;
        assert!(recipes.contains(&format!("`{option} {value}`")), "{option}");
    }
    Ok(())
}

/// Options are read from left to right, and what is wrong before --help is an error.
fn is_understood(dir: &Path, line: &str) -> Result<()> {
    let (own, command) = match line.split_once(" -- ") {
        Some((own, command)) => (own, format!("-- {command}")),
        None => (
            line.split(['#', '|', ';']).next().unwrap_or_default(),
            String::new(),
        ),
    };
    let shown = typed(dir, &format!("{own} --help {command}"))?;
    let help = String::from_utf8(shown.stdout)?;
    assert!(help.contains("Usage: memtrace"), "{line}: {help}");
    Ok(())
}

/// The command lines of memtrace on a page: indented ones, those of shell scripts, and those within a
/// sentence or a table. Not those that the Python package understands.
fn commands_of(page: &str) -> Vec<String> {
    let page = page
        .replace("\\\n", " ")
        .replace(r#""$(command -v memtrace)""#, "memtrace")
        // A variable of a script has no value here, and any will do.
        .replace("\"$", "\"");
    let mut is_script = false;
    let typed = page.lines().filter_map(|line| {
        if line.starts_with("```") {
            is_script = line == "```sh";
        }
        match is_script {
            true => Some(line.trim_start()),
            false => line.strip_prefix("    "),
        }
    });
    let quoted = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let commands = typed.chain(quoted);
    let commands = commands.map(|line| line.strip_prefix("sudo ").unwrap_or(line));
    commands
        .filter(|line| line.starts_with("memtrace ") && !line.starts_with("memtrace ray"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn both_programs_say_of_which_commit_they_are_and_how_they_were_built() -> Result<()> {
    let lines = |program: std::path::PathBuf| -> Result<Vec<String>> {
        let output = Command::new(program).arg("--version").output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let own = lines(program::memtrace()?)?;
    let remote = lines(program::memtrace_remote()?)?;
    assert_eq!(own[1..3], remote[1..], "{own:?}");
    assert!(own[0].ends_with(env!("CARGO_PKG_VERSION")), "{own:?}");
    assert!(own[1].starts_with("commit: "), "{own:?}");
    assert!(own[2].starts_with("build: profile "), "{own:?}");
    Ok(())
}

#[test]
fn the_help_of_record_has_groups() -> Result<()> {
    let help = memtrace(["record", "--help"])?;
    let text = String::from_utf8(help.stdout)?;
    let heading = |line: &&str| line.ends_with(':') && !line.starts_with([' ', 'U', 'E']);
    let headings: Vec<&str> = text.lines().filter(heading).collect();
    assert_eq!(
        headings,
        [
            "What to record:",
            "Where to, and for how long:",
            "Many hosts:",
            "How to observe:",
            "GPUs:",
            "Marks and roles:",
            "The command:",
            "Load on the command, a server:",
            "Other options:"
        ]
    );
    Ok(())
}

#[test]
fn completions_and_manual_pages_know_every_command() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let pages = dir.path().join("man1");
    typed(dir.path(), "memtrace man man1")?;
    for shell in ["bash", "zsh", "fish"] {
        let printed = memtrace(["completions", shell])?;
        let text = String::from_utf8(printed.stdout)?;
        for command in commands()? {
            assert!(text.contains(&command), "{shell}: {command}");
        }
        assert!(text.contains("gpu-interval"), "{shell}");
    }
    typed(
        dir.path(),
        "memtrace completions bash > own && . ./own && complete -p memtrace",
    )?;
    for command in commands()? {
        let page = std::fs::read_to_string(pages.join(format!("memtrace-{command}.1")))?;
        assert!(page.contains(".TH memtrace"), "{page}");
    }
    let own = memtrace(["man"])?;
    assert!(own.stdout == std::fs::read(pages.join("memtrace.1"))?);
    Ok(())
}
