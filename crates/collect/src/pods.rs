//! Which pod of Kubernetes a process is in, and which container of it: from the names of the folders
//! and links in which a node keeps logs. The API is not asked.

use super::{CollectError, Collector, Pass, ProcessTable};
use memtrace_model::{BootNs, DurationNs, ProcessRow, Upid, pod_of_cgroup};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the kubelet keeps logs: `pods/NAMESPACE_POD_UID`, a folder for each, and for each container a
/// link, `containers/POD_NAMESPACE_CONTAINER-ID.log`. No name has an underscore.
const LOGS: &str = "/var/log";
const PODS: &str = "pods";
const CONTAINERS: &str = "containers";
/// The link of a container is made a moment after its first process.
const PERIOD: DurationNs = DurationNs(2_000_000_000);
/// What was not found is looked for again after so long: the container that holds a pod's
/// namespaces never has a link.
const AGAIN: DurationNs = DurationNs(10_000_000_000);

/// Finds the pods and containers of processes.
#[derive(Debug)]
pub struct PodCollector {
    logs: PathBuf,
    /// `NAMESPACE/POD` by uid.
    pods: HashMap<String, Arc<str>>,
    /// The names of containers by their ids.
    containers: HashMap<String, Arc<str>>,
    /// Containers of which the last look did not find all.
    unfound: HashSet<Arc<str>>,
    next_look: BootNs,
}

impl PodCollector {
    /// A collector for this machine; `None` where it is no node of Kubernetes.
    pub fn find() -> Option<Self> {
        Self::of(Path::new(LOGS))
    }

    fn of(logs: &Path) -> Option<Self> {
        logs.join(PODS).is_dir().then(|| Self {
            logs: logs.to_path_buf(),
            pods: HashMap::new(),
            containers: HashMap::new(),
            unfound: HashSet::new(),
            next_look: BootNs(0),
        })
    }

    /// Gives processes of a pod its name, where they do not have it yet.
    fn name_processes(&mut self, table: &mut ProcessTable, now: BootNs) {
        let rows = table.processes().map(|process| process.row());
        let unnamed: Vec<(Upid, String, Arc<str>)> = rows.filter_map(lacking).collect();
        if unnamed.is_empty() {
            return;
        }
        let is_new = |id: &Arc<str>| now >= self.next_look || !self.unfound.contains(id);
        let mut unknown = unnamed.iter().filter(|one| !self.knows(one));
        if unknown.any(|(_, _, id)| is_new(id)) {
            self.look();
            self.next_look = now + AGAIN;
            let unknown = unnamed.iter().filter(|one| !self.knows(one));
            self.unfound = unknown.map(|(_, _, id)| Arc::clone(id)).collect();
        }
        for (upid, uid, id) in unnamed {
            let Some(row) = table.process(upid).map(|process| process.row()) else {
                continue;
            };
            // A name that was known stays where its folder is gone.
            let pod = row.pod.as_ref().or_else(|| self.pods.get(&uid)).cloned();
            let container = row.container.as_ref();
            let container = container.or_else(|| self.containers.get(&*id)).cloned();
            if (&row.pod, &row.container) == (&pod, &container) {
                continue;
            }
            if let Some(process) = table.process_mut(upid) {
                let row = process.row_mut();
                (row.pod, row.container) = (pod, container);
            }
        }
    }

    fn knows(&self, (_, uid, id): &(Upid, String, Arc<str>)) -> bool {
        self.pods.contains_key(uid) && self.containers.contains_key(&**id)
    }

    /// Reads the names that there are.
    fn look(&mut self) {
        // What can't be listed now is as it was.
        if let Some(names) = names(&self.logs.join(PODS)) {
            let pods = names.filter_map(|name| {
                let [namespace, pod, uid] = name.split('_').collect::<Vec<_>>()[..] else {
                    return None;
                };
                Some((uid.to_owned(), format!("{namespace}/{pod}").into()))
            });
            self.pods = pods.collect();
        }
        if let Some(names) = names(&self.logs.join(CONTAINERS)) {
            let containers = names.filter_map(|name| {
                let of_pod = name.strip_suffix(".log")?;
                let [_, _, container] = of_pod.split('_').collect::<Vec<_>>()[..] else {
                    return None;
                };
                let (container, id) = container.rsplit_once('-')?;
                Some((id.to_owned(), container.into()))
            });
            self.containers = containers.collect();
        }
    }
}

/// A process of a pod that lacks a name, with what that is found by.
fn lacking(row: &ProcessRow) -> Option<(Upid, String, Arc<str>)> {
    let id = row.container_id.as_ref()?;
    if row.pod.is_some() && row.container.is_some() {
        return None;
    }
    let (_, uid) = pod_of_cgroup(row.cgroup.as_deref()?)?;
    Some((row.upid, uid, Arc::clone(id)))
}

/// The names in a folder; `None` where it can't be listed.
fn names(folder: &Path) -> Option<impl Iterator<Item = String> + use<>> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    Some(entries.filter_map(|entry| OsString::into_string(entry.file_name()).ok()))
}

impl Collector for PodCollector {
    fn name(&self) -> &'static str {
        "pods"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.name_processes(pass.table, pass.tick.boot);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use crate::procfs::set_cgroup;
    use memtrace_model::{FirstSeenBy, Tgid};

    const UID: &str = "8f5b2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c";
    const MAIN: &str = "3f2b8c0d9e1a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9012345678";
    const PAUSE: &str = "4f2b8c0d9e1a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9012345678";

    fn enter(table: &mut ProcessTable, tgid: u32, parent: Option<Upid>) -> Upid {
        let birth = Birth {
            tgid: Tgid(tgid),
            start: BootNs(1),
            seen_by: FirstSeenBy::Poll,
            parent,
            comm: "python3".to_owned(),
        };
        table.enter(birth, BootNs(1))
    }

    fn named(table: &ProcessTable, upid: Upid) -> [Option<String>; 2] {
        let row = table.row(upid).expect("a row");
        [&row.pod, &row.container].map(|name| name.as_deref().map(str::to_owned))
    }

    fn some(pod: &str, container: &str) -> [Option<String>; 2] {
        [pod, container].map(|name| Some(name.to_owned()))
    }

    #[test]
    fn processes_are_named_as_soon_as_their_logs_are_there_with_either_driver() {
        let logs = tempfile::tempdir().expect("a directory");
        assert!(PodCollector::of(logs.path()).is_none(), "no node");
        let pods = logs.path().join(PODS);
        std::fs::create_dir_all(pods.join(format!("ml_trainer-0_{UID}/main"))).expect("a pod");
        std::fs::create_dir_all(pods.join("not one of them")).expect("a folder");
        let mut collector = PodCollector::of(logs.path()).expect("a node");
        let mut table = ProcessTable::default();
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        let groups = [
            format!("/kubepods/burstable/pod{UID}/{MAIN}"),
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{MAIN}.scope"),
            format!("/kubepods/burstable/pod{UID}/{PAUSE}"),
            "/system.slice/kubelet.service".to_owned(),
            format!("/system.slice/docker-{MAIN}.scope"),
        ];
        let upids: Vec<Upid> = (10..)
            .zip(&groups)
            .map(|(tgid, group)| {
                let upid = enter(&mut table, tgid, None);
                set_cgroup(table.process_mut(upid).expect("a process").row_mut(), group);
                upid
            })
            .collect();
        let (nothing, pod) = ([None, None], Some("ml/trainer-0".to_owned()));
        let mut turns = (0..).map(|turn| BootNs(turn * PERIOD.0));
        let mut turn = |collector: &mut PodCollector, table: &mut ProcessTable| {
            collector.name_processes(table, turns.next().expect("a time"));
        };
        turn(&mut collector, &mut table);
        assert_eq!(
            named(&table, upids[0]),
            [pod.clone(), None],
            "its container has no link yet"
        );
        let containers = logs.path().join(CONTAINERS);
        std::fs::create_dir_all(&containers).expect("a folder");
        let link = containers.join(format!("trainer-0_ml_data-loader-{MAIN}.log"));
        std::os::unix::fs::symlink("/nowhere", link).expect("a link");
        turn(&mut collector, &mut table);
        assert_eq!(
            named(&table, upids[0]),
            [pod.clone(), None],
            "looked for a moment ago"
        );
        for _ in 0..AGAIN.0 / PERIOD.0 {
            turn(&mut collector, &mut table);
        }
        let expected = [
            some("ml/trainer-0", "data-loader"),
            some("ml/trainer-0", "data-loader"),
            [pod, None],
            nothing.clone(),
            nothing.clone(),
        ];
        let text: Vec<_> = upids.iter().map(|upid| named(&table, *upid)).collect();
        assert_eq!(text, expected);
        // A child has them from its birth on, and not in another group.
        let child = enter(&mut table, 99, Some(upids[0]));
        assert_eq!(named(&table, child), expected[0]);
        set_cgroup(table.process_mut(child).expect("it").row_mut(), &groups[3]);
        assert_eq!(named(&table, child), nothing);
        // Nobody's row is written anew for what is known.
        table.write_changes(false, &mut Vec::new());
        let mut again = Vec::new();
        turn(&mut collector, &mut table);
        // Nor where its folder is gone.
        std::fs::remove_dir_all(pods.join(format!("ml_trainer-0_{UID}"))).expect("a pod");
        for _ in 0..AGAIN.0 / PERIOD.0 {
            turn(&mut collector, &mut table);
        }
        table.write_changes(false, &mut again);
        assert!(again.is_empty(), "{again:?}");
    }
}
