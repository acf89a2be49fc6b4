//! Programs of the object, by name.

use super::error::LoadError;
use aya::Ebpf;
use aya::programs::ProgramError;

pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, LoadError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(LoadError::Absent(name))?;
    program.try_into().map_err(|_| LoadError::Absent(name))
}
