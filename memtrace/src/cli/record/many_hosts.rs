//! `record --root`: the options for recordings of many hosts, and the place of this one.

use super::keep::{Bounds, parse_bounds};
use crate::cli::values::parse_rotation;
use crate::session::name_by_start;
use anyhow::{Context, bail};
use memtrace_host::{HostFacts, Person, as_person, clock};
use memtrace_model::{
    DurationNs, Framework, PlaceName, PlaceNameError, RunPlace, Target, parse_host_list,
};
use memtrace_store::{make_room, remove_empty_folders};
use std::path::{Path, PathBuf};

/// With a root, rows become parts after this time unless the person says otherwise.
const ROTATION: DurationNs = DurationNs(60_000_000_000);
/// Where root keeps recordings that are on their way.
const OF_ROOT: &str = "/var/lib/memtrace";
/// Where Ray says which session is the newest of this node.
const RAY_SESSION: &str = "/tmp/ray/session_latest";

const HOSTS: &str = "Many hosts";

/// The options for many hosts.
#[derive(Debug, clap::Args)]
pub(super) struct ManyHosts {
    /// Upload the recording to this root while it is made: a directory, s3://…, gs://… or az://…
    ///
    /// A process without privileges does that (docs/hosts.md). The recorder itself writes only to
    /// this host, below -o DIR [default: /var/lib/memtrace; for users other than root
    /// ~/.local/state/memtrace], and removes there at the end what has arrived. If ROOT is that
    /// directory, the recording is made in place and nothing is uploaded.
    #[arg(long, value_name = "ROOT", help_heading = HOSTS, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) root: Option<String>,

    /// What the recordings of all hosts of a job have in common
    ///
    /// [default: MEMTRACE_RUN, SLURM_JOB_ID, with --ray the session of its cluster, else start and
    /// host]
    #[arg(hide_short_help = true, long, value_name = "ID", requires = "root", help_heading = HOSTS)]
    run: Option<PlaceName>,

    /// What reports call this host [default: its name]
    #[arg(hide_short_help = true, long, value_name = "NAME", requires = "root", help_heading = HOSTS)]
    host: Option<PlaceName>,

    /// The hosts that the run should have recordings of: with commas, or node[1-3,7],gpu2
    ///
    /// A report then says which are missing [default: SLURM_JOB_NODELIST].
    #[arg(hide_short_help = true, long, value_name = "LIST", requires = "root", value_parser = parse_hosts, help_heading = HOSTS)]
    expect_hosts: Option<Hosts>,

    /// Close Parquet files after this time, so that others can read them meanwhile
    ///
    /// [default: 60s with --root; else when the recording ends, or a file is full]
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = parse_rotation, help_heading = HOSTS)]
    rotate: Option<DurationNs>,

    /// Remove your older recordings in the same directory: 7d, 36h, 20GiB, or 7d,20GiB
    ///
    /// When the recording starts, and each hour: those (named memtrace-…, or below the -o DIR of
    /// --root) that are older than an age, and the oldest ones while all together exceed a size. A
    /// recording that has not been uploaded to --root is never removed for its age, only to stay
    /// under the size.
    #[arg(long, value_name = "AGE|SIZE", value_parser = parse_bounds, help_heading = HOSTS)]
    pub(super) keep: Option<Bounds>,

    /// Leave out what looks like keys and tokens
    ///
    /// In command lines, titles and marks: values of --api-key, HF_TOKEN= and the like, hf_…, sk-…,
    /// user:password@host.
    #[arg(long, help_heading = HOSTS)]
    pub(super) redact: bool,
}

/// A list of hosts.
#[derive(Clone, Debug)]
struct Hosts(Vec<PlaceName>);

fn parse_hosts(text: &str) -> Result<Hosts, String> {
    let hosts = parse_host_list(text);
    hosts.map(Hosts).map_err(|error| error.to_string())
}

/// Where a recording is made that goes to a root.
#[derive(Debug)]
pub(super) struct Placed {
    /// Its directory on this host.
    pub(super) dir: PathBuf,
    /// Those of all hosts and runs that wait to be carried are below.
    pub(super) local_root: PathBuf,
    /// Its place below the root.
    pub(super) place: RunPlace,
    /// Where it is carried to; `None` where it is made at the root itself.
    pub(super) carried_to: Option<String>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        remove_empty_folders(&self.dir);
    }
}

impl ManyHosts {
    /// After how long rows become parts.
    pub(super) fn rotation(&self) -> Option<DurationNs> {
        let default = self.root.as_ref().map(|_| ROTATION);
        self.rotate.or(default)
    }

    /// Makes the folders for the recording, below the directory that was given for it; `None`
    /// where it goes to no root.
    ///
    /// # Errors
    /// When names can't be used, or the system refuses.
    pub(super) fn place(
        &self,
        local_root: Option<&Path>,
        target: &Target,
        facts: &HostFacts,
        person: Option<&Person>,
    ) -> anyhow::Result<Option<Placed>> {
        let Some(root) = &self.root else {
            return Ok(None);
        };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (local_root, person) = match local_root {
            Some(dir) => (dir.to_path_buf(), person),
            None if facts.euid == Some(0) => (OF_ROOT.into(), None),
            None => (state_dir(variable)?, person),
        };
        let local_root =
            std::path::absolute(local_root).context("failed to find the -o directory")?;
        let carried_to = carried_to(&local_root, root)?;
        let rec = name_by_start(clock::read().wall_ns);
        let host = self.host.clone();
        let host = host.unwrap_or_else(|| PlaceName::nearest(&facts.hostname));
        let mut place = RunPlace {
            run: match &self.run {
                Some(run) => run.clone(),
                None => named_run(variable, || ray_session(target))?
                    .unwrap_or_else(|| PlaceName::nearest(&format!("{rec}-{host}"))),
            },
            host,
            rec: PlaceName::nearest(&rec),
            rotate_ns: self.rotation().unwrap_or(ROTATION),
            expected_hosts: match &self.expect_hosts {
                Some(Hosts(hosts)) => Some(hosts.clone()),
                None => variable("SLURM_JOB_NODELIST")
                    .map(|list| parse_host_list(&list))
                    .transpose()
                    .context("SLURM_JOB_NODELIST can't be read; give --expect-hosts instead")?,
            },
        };
        let made = as_person(person, || Ok(make_room(&local_root, &mut place)));
        let dir = made.context("failed to become the caller")?;
        let dir = dir.context("failed to make room for the recording")?;
        Ok(Some(Placed {
            dir,
            local_root,
            place,
            carried_to,
        }))
    }
}

/// The run's name as the environment, or else Ray, gives it.
fn named_run(
    variable: impl Fn(&str) -> Option<String>,
    ray_session: impl FnOnce() -> Option<PlaceName>,
) -> anyhow::Result<Option<PlaceName>> {
    for name in ["MEMTRACE_RUN", "SLURM_JOB_ID"] {
        if let Some(value) = variable(name) {
            let run = value.parse::<PlaceName>();
            let can = |error: PlaceNameError| format!("{name} can't be the run's name: {error}");
            return Ok(Some(run.map_err(|error| anyhow::anyhow!(can(error)))?));
        }
    }
    Ok(ray_session())
}

/// The name of the session of a Ray cluster, which all its nodes have in common.
fn ray_session(target: &Target) -> Option<PlaceName> {
    let Target::Framework {
        framework: Framework::Ray,
        session,
    } = target
    else {
        return None;
    };
    let session = Path::new(session.as_deref().unwrap_or(RAY_SESSION));
    let real = session.canonicalize().ok()?;
    real.file_name()?.to_str()?.parse().ok()
}

/// Where a person's own recordings are that are on their way.
fn state_dir(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<PathBuf> {
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
    match state.filter(|state| state.is_absolute()).or_else(home) {
        Some(state) => Ok(state.join("memtrace")),
        None => {
            bail!("there is no HOME to keep the recording in until it is uploaded: give -o DIR")
        }
    }
}

/// The directory that a root is, where it is one: what stands for itself, or after `file://`.
pub(super) fn directory_of(root: &str) -> Option<&Path> {
    match root.strip_prefix("file://") {
        Some(path) => Some(Path::new(path)),
        None if root.contains("://") => None,
        None => Some(Path::new(root)),
    }
}

/// The root as it was given, unless recordings are made there: where it is `-o DIR` too. All by
/// their names, since a root that hangs is not to be asked.
fn carried_to(local_root: &Path, root: &str) -> anyhow::Result<Option<String>> {
    let to = Some(root.to_owned());
    let Some(root_dir) = directory_of(root) else {
        return Ok(to);
    };
    let root_dir = std::path::absolute(root_dir).context("failed to find --root")?;
    if root_dir == local_root {
        return Ok(None);
    }
    if root_dir.starts_with(local_root) || local_root.starts_with(&root_dir) {
        bail!(
            "--root {} and {}, where the recording is until it is uploaded, lie within each \
             other: give another -o DIR, or the same one to record there at once",
            root_dir.display(),
            local_root.display()
        );
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(variables: &[(&str, &str)]) -> anyhow::Result<Option<PlaceName>> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        named_run(variable, || "session_1".parse().ok())
    }

    #[test]
    fn a_run_is_named_by_the_environment_and_then_by_ray() {
        let name = |variables: &[(&str, &str)]| run_of(variables).unwrap().unwrap().to_string();
        assert_eq!(
            name(&[("SLURM_JOB_ID", "4711"), ("MEMTRACE_RUN", "mine")]),
            "mine"
        );
        assert_eq!(name(&[("SLURM_JOB_ID", "4711")]), "4711");
        assert_eq!(name(&[]), "session_1");
        let refused = run_of(&[("MEMTRACE_RUN", "a/b")]).unwrap_err().to_string();
        assert!(refused.contains("MEMTRACE_RUN"), "{refused}");
    }

    #[test]
    fn a_session_of_ray_is_named_by_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("session_2026-11-23_1");
        std::fs::create_dir(&real).unwrap();
        let latest = dir.path().join("session_latest");
        std::os::unix::fs::symlink(&real, &latest).unwrap();
        let target = |session: &Path| Target::Framework {
            framework: Framework::Ray,
            session: Some(session.display().to_string()),
        };
        let name = ray_session(&target(&latest)).map(String::from);
        assert_eq!(name.as_deref(), Some("session_2026-11-23_1"));
        assert_eq!(ray_session(&target(&dir.path().join("none"))), None);
        assert_eq!(ray_session(&Target::All), None);
    }

    #[test]
    fn a_root_and_where_recordings_wait_for_it_are_apart() {
        let refused = |local: &str, root: &str| carried_to(Path::new(local), root).is_err();
        let is_made_there =
            |local: &str, root: &str| carried_to(Path::new(local), root).unwrap().is_none();
        assert!(is_made_there("/a/b", "/a/b"));
        assert!(is_made_there("/a/b", "file:///a/b/"));
        assert!(!is_made_there("/a/b", "s3://a/b"));
        assert!(refused("/a/b", "/a"));
        assert!(refused("/a", "/a/b"));
        assert!(refused("/a", "file:///a/b"));
        assert!(!refused("/a/b", "/a/bc"));
        assert!(!refused("/a", "s3://a/b"));
    }

    #[test]
    fn state_is_kept_where_the_person_keeps_it() {
        let of = |variables: &[(&str, &str)]| {
            let variables: Vec<(String, String)> = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let found = state_dir(move |name| {
                let found = variables.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone())
            });
            found.ok()
        };
        let home = ("HOME", "/home/a");
        assert_eq!(of(&[home]), Some("/home/a/.local/state/memtrace".into()));
        assert_eq!(
            of(&[home, ("XDG_STATE_HOME", "/s")]),
            Some("/s/memtrace".into())
        );
        assert_eq!(
            of(&[home, ("XDG_STATE_HOME", "s")]),
            Some("/home/a/.local/state/memtrace".into())
        );
        assert_eq!(of(&[]), None);
    }
}
