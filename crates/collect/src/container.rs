//! The container id in a cgroup path.

/// Length of the ids that Docker, containerd, CRI-O and Podman give.
const ID_LENGTH: usize = 64;

/// The id of the innermost container that a cgroup path names.
///
/// Engines write it as a group of its own (`/docker/ID`, `/kubepods/burstable/podUID/ID`),
/// as a systemd scope behind their name (`docker-ID.scope`, `cri-containerd-ID.scope`), or
/// behind a colon where the two were mixed up (`system.slice:cri-containerd:ID`). The
/// monitors that CRI-O and Podman put beside a container (`crio-conmon-ID.scope`) carry
/// its id but are not inside it.
pub fn container_id(cgroup: &str) -> Option<&str> {
    cgroup.rsplit('/').find_map(|group| {
        let name = group.strip_suffix(".scope").unwrap_or(group);
        let start = name.rfind(['-', ':']).map_or(0, |at| at + 1);
        let (engine, id) = name.split_at_checked(start)?;
        let is_id = id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && !engine.contains("conmon")).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "3f2b8c0d9e1a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9012345678";

    #[test]
    fn every_engine_s_way_to_write_an_id_is_known() {
        for path in [
            "/docker/{}",
            "/system.slice/docker-{}.scope",
            "/system.slice/docker-{}.scope/init",
            "/kubepods/burstable/pod8f5b2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c/{}",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f5b_2c1e.slice/cri-containerd-{}.scope",
            "/kubepods.slice/kubepods-pod8f5b.slice/crio-{}.scope/container",
            "/system.slice/containerd.service/kubepods-besteffort-pod8f5b.slice:cri-containerd:{}",
            "/machine.slice/libpod-{}.scope/container",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{}.scope",
            "/default/{}",
            "/ecs/0123456789abcdef0123456789abcdef/{}",
        ] {
            let path = path.replace("{}", ID);
            assert_eq!(container_id(&path), Some(ID), "{path}");
        }
    }

    #[test]
    fn a_path_without_a_container_has_no_id() {
        for path in [
            "/",
            "/system.slice/ssh.service",
            "/user.slice/user-1000.slice/session-3.scope",
            "/kubepods/burstable/pod8f5b2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c",
            "/machine.slice/machine-web.scope",
        ] {
            assert_eq!(container_id(path), None, "{path}");
        }
    }

    #[test]
    fn the_monitor_of_a_container_is_not_in_it() {
        for monitor in ["crio-conmon", "libpod-conmon"] {
            let path = format!("/machine.slice/{monitor}-{ID}.scope");
            assert_eq!(container_id(&path), None);
        }
    }

    #[test]
    fn a_container_inside_a_container_is_the_inner_one() {
        let inner = ID.replace('3', "4");
        assert_eq!(
            container_id(&format!("/docker/{ID}/docker/{inner}")),
            Some(inner.as_str())
        );
    }

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(path in ".{0,200}") {
            let _ = container_id(&path);
        }
    }
}
