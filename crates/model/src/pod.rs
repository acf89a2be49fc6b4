//! The pod of Kubernetes that a cgroup's path names.

/// What stands before the uid of a pod, in the name of its group.
const POD: &str = "pod";
/// A uid with dashes, and that of a pod that the node starts by itself, which is a hash.
const UID_LENGTHS: [usize; 2] = [36, 32];

/// The group of a pod as a path of its own, and the pod's uid, where a cgroup is that or below it.
///
/// The kubelet calls it `/kubepods/burstable/podUID`, or with systemd's driver
/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice`, where the dashes of the
/// uid are underscores; behind a colon stands the container where the two were mixed up.
pub fn pod_of_cgroup(path: &str) -> Option<(&str, String)> {
    let mut end = 0;
    path.split_inclusive('/').find_map(|part| {
        end += part.len();
        let name = part.trim_end_matches('/');
        let group = name.split(':').next().unwrap_or(name);
        let group = group.strip_suffix(".slice").unwrap_or(group);
        let (above, uid) = group.rsplit_once(POD)?;
        let uid = uid.replace('_', "-");
        let is_uid = UID_LENGTHS.contains(&uid.len())
            && uid
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let is_pod = is_uid && (above.is_empty() || above.ends_with('-'));
        is_pod.then(|| (path[..end].trim_end_matches('/'), uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "8f5b2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c";

    #[test]
    fn every_driver_s_way_to_write_a_pod_is_known() {
        let with_underscores = UID.replace('-', "_");
        for (group, below) in [
            ("/kubepods/burstable/pod{}", "/3f2b8c0d"),
            ("/kubepods/pod{}", ""),
            ("/../../kubepods/besteffort/pod{}", "/3f2b8c0d/init"),
        ] {
            let group = group.replace("{}", UID);
            let path = format!("{group}{below}");
            assert_eq!(
                pod_of_cgroup(&path),
                Some((&*group, UID.to_owned())),
                "{path}"
            );
        }
        for (group, below) in [
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
                "/cri-containerd-3f2b8c0d.scope",
            ),
            (
                "/kubepods.slice/kubepods-pod{}.slice",
                "/crio-3f2b8c0d.scope/container",
            ),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice",
                "",
            ),
            (
                "/system.slice/containerd.service/kubepods-pod{}.slice:cri-containerd:3f2b8c0d",
                "",
            ),
        ] {
            let group = group.replace("{}", &with_underscores);
            let path = format!("{group}{below}");
            assert_eq!(
                pod_of_cgroup(&path),
                Some((&*group, UID.to_owned())),
                "{path}"
            );
        }
        let hash = "5f4dcc3b5aa765d61d8327deb882cf99";
        let path = format!("/kubepods/burstable/pod{hash}/3f2b8c0d");
        assert_eq!(
            pod_of_cgroup(&path).map(|(_, uid)| uid),
            Some(hash.to_owned())
        );
    }

    #[test]
    fn other_groups_are_of_no_pod() {
        for path in [
            "/",
            "/kubepods/burstable",
            "/kubepods.slice/kubepods-burstable.slice",
            "/machine.slice/libpod-3f2b8c0d.scope",
            "/podman/8f5b2c1e",
            "/user.slice/tripod8f5b2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c",
        ] {
            assert_eq!(pod_of_cgroup(path), None, "{path}");
        }
    }
}
