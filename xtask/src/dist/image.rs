//! The container image, as an archive that Docker, Podman and containerd load.

use super::tarball::archive;
use super::{Release, emptied};
use crate::sh;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the image has beside memtrace: the directories of a Debian, and glibc, which NVML needs too. The NVIDIA container toolkit mounts
/// NVML itself.
const PACKAGES: &str = "--include=base-files,libc6";
const SUITE: &str = "trixie";
/// Only what the packages contain, unpacked.
const VARIANT: &str = "--variant=extract";

/// Makes it of a staged tree.
pub(super) fn pack(staged: &Path, release: &Release) -> Result<PathBuf> {
    let root = release.dir.join("image-root.tar");
    sh::run(
        Command::new("mmdebstrap")
            .args([VARIANT, PACKAGES, SUITE])
            .arg(&root)
            .env("SOURCE_DATE_EPOCH", &release.epoch),
    )?;
    let container = buildah(&["from", "scratch"])?;
    let made = fill(&container, &root, staged, release);
    buildah(&["rm", &container])?;
    made
}

fn fill(container: &str, root: &Path, staged: &Path, release: &Release) -> Result<PathBuf> {
    let name = format!("localhost/memtrace:{}", release.version);
    let file = format!("memtrace-{}-image-x86_64.tar", release.version);
    let packed = release.dir.join(file);
    let (root, staged) = (root.display().to_string(), staged.display().to_string());
    buildah(&["add", "--quiet", container, &root, "/"])?;
    buildah(&["add", "--quiet", container, &staged, "/usr"])?;
    buildah(&[
        "config",
        "--entrypoint",
        r#"["/usr/bin/memtrace"]"#,
        "--cmd",
        "--help",
        "--workingdir",
        "/data",
        "--env",
        "NVIDIA_VISIBLE_DEVICES=all",
        "--env",
        "NVIDIA_DRIVER_CAPABILITIES=utility",
        "--label",
        &format!("org.opencontainers.image.version={}", release.version),
        "--label",
        &format!("org.opencontainers.image.revision={}", release.commit),
        "--label",
        "org.opencontainers.image.licenses=Apache-2.0",
        container,
    ])?;
    buildah(&[
        "commit",
        "--quiet",
        "--timestamp",
        &release.epoch,
        container,
        &name,
    ])?;
    // The archive that buildah makes has the time of each file in it.
    let layout = emptied(release.dir.join("image"))?;
    let destination = format!("oci:{}:{name}", layout.display());
    buildah(&["push", "--quiet", &name, &destination])?;
    sh::run(archive(&packed, &layout, release).args(["blobs", "index.json", "oci-layout"]))?;
    Ok(packed)
}

fn buildah(words: &[&str]) -> Result<String> {
    // vfs needs nothing of the kernel, and chroot no other program.
    let mut command = Command::new("buildah");
    command.args(["--storage-driver", "vfs"]).args(words);
    Ok(sh::capture(&mut command)?.trim().to_owned())
}
