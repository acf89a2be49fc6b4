//! How columns and keys of the files of samples name their units.

use std::borrow::Cow;

/// Which names columns and keys have; what stands in them is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Those of the units: `_gib` is 2³⁰ bytes, `_mib` 2²⁰.
    #[default]
    Units,
    /// Those of most scripts that poll: `_gb` and `_mb` for the same units.
    Compat,
}

impl Names {
    /// How a column or key is called.
    pub(super) fn of(self, name: &'static str) -> Cow<'static, str> {
        let widely_used = [("_gib", "_gb"), ("_mib", "_mb")];
        let renamed = widely_used.into_iter().find_map(|(unit, short)| {
            let stem = name.strip_suffix(unit)?;
            Some(Cow::Owned(format!("{stem}{short}")))
        });
        match self {
            Self::Units => Cow::Borrowed(name),
            Self::Compat => renamed.unwrap_or(Cow::Borrowed(name)),
        }
    }
}
