//! Environments of Python, which tasks make for themselves.

use crate::{debian, sh};
use anyhow::Result;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One of them, which need not be there yet.
pub(crate) struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// The one of this name among the build output.
    pub(crate) fn named(name: &str) -> Self {
        Self::at(sh::target_dir().join(name))
    }

    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a program in it.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    pub(crate) fn python(&self) -> Command {
        Command::new(self.program("python3"))
    }

    /// `pip install`, without what to install.
    pub(crate) fn pip_install(&self) -> Command {
        let mut pip = self.python();
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip
    }

    /// Makes it where it is not there.
    pub(crate) fn make(&self) -> Result<()> {
        // Without python3-venv there is a Python in it, and nothing else.
        if !self.program("pip").exists() {
            if debian::can_install() {
                debian::install(&["python3-venv"])?;
            }
            sh::run(Command::new("python3").args(["-m", "venv"]).arg(&self.dir))?;
        }
        Ok(())
    }

    /// The same, and installs packages into it.
    pub(crate) fn install<T: AsRef<OsStr>>(
        &self,
        packages: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        self.make()?;
        sh::run(self.pip_install().args(packages))
    }
}
