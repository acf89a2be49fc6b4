//! The one list of names by which shared memory is recognised.

use memtrace_model::{ShmFamily, Tgid};

/// A beginning of a name, and whether the creator's process id follows it.
struct Known {
    prefix: &'static str,
    family: ShmFamily,
    has_creator: bool,
}

const fn known(prefix: &'static str, family: ShmFamily, has_creator: bool) -> Known {
    Known {
        prefix,
        family,
        has_creator,
    }
}

const KNOWN: &[Known] = &[
    known("plasma", ShmFamily::RayPlasma, false),
    known("psm_", ShmFamily::Python, false),
    known("sem.mp-", ShmFamily::Python, false),
    known("pym-", ShmFamily::Python, true),
    known("torch_", ShmFamily::Torch, true),
    known("vllm", ShmFamily::Vllm, false),
    known("sgl_shm_mm_", ShmFamily::Sglang, true),
    known("sgl", ShmFamily::Sglang, false),
    known("nccl-", ShmFamily::Nccl, false),
    known("cuda.shm.", ShmFamily::Cuda, false),
    known("ucx_shm_", ShmFamily::Mpi, false),
    known("vader_segment.", ShmFamily::Mpi, false),
    known("sm_segment.", ShmFamily::Mpi, false),
];

/// Whose an object is, and who made it, as far as its name tells.
pub(crate) fn recognise(name: &str) -> (Option<ShmFamily>, Option<Tgid>) {
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_prefix("memfd:").unwrap_or(name);
    let Some(known) = KNOWN.iter().find(|known| name.starts_with(known.prefix)) else {
        return (None, None);
    };
    let rest = name.get(known.prefix.len()..).unwrap_or_default();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    let creator = digits
        .filter(|_| known.has_creator)
        .and_then(|digits| digits.parse().ok())
        .map(Tgid);
    (Some(known.family), creator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_known_programs_are_recognised() {
        let cases = [
            ("/dev/shm/plasma3x8Zq1", ShmFamily::RayPlasma, None),
            ("/dev/shm/psm_21467a2b", ShmFamily::Python, None),
            (
                "/dev/shm/torch_4711_93_0",
                ShmFamily::Torch,
                Some(Tgid(4711)),
            ),
            ("/dev/shm/vllm_offload_7.mmap", ShmFamily::Vllm, None),
            (
                "/dev/shm/sgl_shm_mm_88_a1",
                ShmFamily::Sglang,
                Some(Tgid(88)),
            ),
            ("/dev/shm/nccl-Y2k3xJ", ShmFamily::Nccl, None),
        ];
        for (name, family, creator) in cases {
            assert_eq!(recognise(name), (Some(family), creator), "{name}");
        }
        assert_eq!(recognise("/dev/shm/mine"), (None, None));
        assert_eq!(
            recognise("/dev/shm/torch_x"),
            (Some(ShmFamily::Torch), None)
        );
    }

    #[test]
    fn no_beginning_hides_one_that_comes_later() {
        for (place, later) in KNOWN.iter().enumerate() {
            let hider = KNOWN[..place]
                .iter()
                .find(|earlier| later.prefix.starts_with(earlier.prefix));
            assert!(hider.is_none(), "{}", later.prefix);
        }
    }
}
