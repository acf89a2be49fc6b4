//! A cgroup as a person knows it: by the pod of Kubernetes whose it is, where the recording has its
//! name.

use super::surroundings::is_within;
use super::{Analysis, Process};
use memtrace_model::pod_of_cgroup;
use memtrace_report::visible;

impl Analysis {
    /// `cgroup PATH`; of a pod, or of a container in one, their names before it.
    pub fn cgroup_in_words(&self, path: &str) -> String {
        let cgroup = format!("cgroup {}", visible(path));
        match self.pod_in_words(path) {
            None => cgroup,
            Some(pod) => format!("{pod} ({cgroup})"),
        }
    }

    /// The same, by those names alone where they are known.
    pub fn cgroup_in_short(&self, path: &str) -> String {
        let pod = self.pod_in_words(path);
        pod.unwrap_or_else(|| self.cgroup_in_words(path))
    }

    /// The pod that a cgroup is, or the container in one, by their names.
    pub fn pod_in_words(&self, path: &str) -> Option<String> {
        let name_in = |group: &str, name: fn(&Process) -> Option<&str>| {
            let is_in =
                |one: &&Process| one.cgroup.as_deref().is_some_and(|of| is_within(of, group));
            self.processes.iter().filter(is_in).find_map(name)
        };
        let (group, _) = pod_of_cgroup(path)?;
        let pod = name_in(group, |one| one.pod.as_deref())?;
        let container = match group == path {
            true => None,
            false => name_in(path, |one| one.container.as_deref()),
        };
        let pod = format!("pod {}", visible(pod));
        Some(match container {
            Some(name) => format!("container {} of {pod}", visible(name)),
            None => pod,
        })
    }
}
