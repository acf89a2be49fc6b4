//! `memtrace ray`: what it goes on as. What that does is tested with a real cluster (tests/hosts).

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn ray_goes_on_as_the_python_on_the_path() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let python = dir.path().join("python3");
    std::fs::write(&python, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 3\n")?;
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755))?;
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH")?);
    let words = ["ray", "start", "--root", "s3://b", "--", "--rotate", "5s"];
    let run = Command::new(program::memtrace()?)
        .args(words)
        .env("PATH", path)
        .env_remove("SUDO_UID")
        .output()?;
    assert_eq!(run.status.code(), Some(3));
    let given = String::from_utf8(run.stdout)?;
    assert_eq!(
        given.lines().collect::<Vec<_>>(),
        [
            "-m",
            "memtrace.ray",
            "start",
            "--root",
            "s3://b",
            "--",
            "--rotate",
            "5s"
        ]
    );
    Ok(())
}

#[test]
fn without_python_ray_says_so() -> Result<()> {
    let run = Command::new(program::memtrace()?)
        .args(["ray", "status"])
        .env("PATH", "/nowhere")
        .env_remove("SUDO_UID")
        .output()?;
    assert_eq!(run.status.code(), Some(1));
    assert!(words(&run).contains("failed to execute python3 -m memtrace.ray"));
    Ok(())
}

#[test]
fn without_its_package_ray_says_what_to_install() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let python = dir.path().join("python3");
    std::fs::write(&python, "#!/bin/sh\nexit 44\n")?;
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755))?;
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH")?);
    let run = Command::new(program::memtrace()?)
        .args(["ray", "status"])
        .env("PATH", path)
        .env_remove("SUDO_UID")
        .output()?;
    assert_eq!(run.status.code(), Some(1));
    assert!(
        words(&run).contains("install the Python package"),
        "{run:?}"
    );
    Ok(())
}
