//! What a recording left behind, in a line or two.

use crate::session::{Leftovers, Outlived};
use memtrace_model::tables::Fate;
use memtrace_model::{Bytes, MappingKind};
use memtrace_report::words::bytes as amount;

/// Named in a line; the report has all.
const MAX_NAMED: usize = 5;

/// The lines; none where nothing is left. `can_end`: `--kill-survivors` could have ended them.
pub(super) fn words(left: &Leftovers, can_end: bool) -> Vec<String> {
    let (lives_on, ended): (Vec<&Outlived>, Vec<&Outlived>) = left
        .outlived
        .iter()
        .partition(|one| !matches!(one.row.fate, Some(Fate::Terminated | Fate::Killed)));
    let mut lines = Vec::new();
    if !ended.is_empty() {
        let named = named(&ended, |one| match one.row.fate {
            Some(Fate::Killed) => format!("{}{} (by SIGKILL)", name(one), gpu("with", one)),
            _ => format!("{}{}", name(one), gpu("with", one)),
        });
        lines.push(format!(
            "ended {} that had outlived the root of the tree: {named}",
            processes(ended.len())
        ));
    }
    if !lives_on.is_empty() {
        let all: Bytes = lives_on.iter().filter_map(|one| one.row.held_bytes()).sum();
        let named = named(&lives_on, |one| {
            let held = one.row.held_bytes();
            let held = held.map_or_else(String::new, |held| format!(" {}", amount(held)));
            let gpu = gpu("and", one);
            format!("{}{held}{gpu}{}", name(one), why(one.row.fate))
        });
        let are_left = lives_on.iter().all(|one| one.row.fate == Some(Fate::Left));
        let advice = match are_left && can_end {
            true => "; --kill-survivors ends such",
            false => "",
        };
        lines.push(format!(
            "{} outlived the root of the tree, up to {} in all: {named}{advice}",
            processes(lives_on.len()),
            amount(all)
        ));
    }
    if !left.objects.is_empty() {
        let taken: Bytes = left
            .objects
            .iter()
            .filter_map(|row| row.allocated_bytes)
            .sum();
        let objects: Vec<_> = left.objects.iter().collect();
        let named = named(&objects, |row| match row.kind {
            Some(MappingKind::Sysv) => format!("segment {} (ipcrm -m {0})", row.inode),
            _ => row.name.clone(),
        });
        let count = match objects.len() {
            1 => "1 object of shared memory is".to_owned(),
            count => format!("{count} objects of shared memory are"),
        };
        lines.push(format!(
            "{count} left without an owner, {} in all: {named}",
            amount(taken)
        ));
    }
    lines
}

fn processes(count: usize) -> String {
    match count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

fn name(one: &Outlived) -> String {
    format!("{} {}", one.row.tgid, one.name)
}

/// What it held on GPUs, where it held anything.
fn gpu(and: &str, one: &Outlived) -> String {
    match one.row.gpu_bytes {
        None | Some(Bytes(0)) => String::new(),
        Some(held) => format!(" {and} {} on a GPU", amount(held)),
    }
}

/// Why it lives on although it was to be ended.
fn why(fate: Option<Fate>) -> &'static str {
    match fate {
        Some(Fate::Refused) => " (the kernel refused the signal)",
        Some(Fate::Unsure) => " (not ended: its identity is uncertain)",
        Some(Fate::Stuck) => " (still there after SIGKILL)",
        _ => "",
    }
}

fn named<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    let mut names: Vec<String> = all.iter().take(MAX_NAMED).map(name).collect();
    if all.len() > MAX_NAMED {
        names.push(format!("{} more", all.len() - MAX_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::{BootNs, OrphanedShmRow, SurvivorRow, Tgid, Upid, WallNs};

    fn outlived(tgid: u32, name: &str, fate: Fate) -> Outlived {
        Outlived {
            row: SurvivorRow {
                ts: WallNs(0),
                boot_ns: BootNs(0),
                upid: Upid(i64::from(tgid)),
                tgid: Tgid(tgid),
                has_root_ended: true,
                parent_tgid: Some(Tgid(1)),
                parent_comm: Some("systemd".to_owned()),
                rss_anon_bytes: Some(Bytes(1 << 30)),
                rss_file_bytes: Some(Bytes(256 << 20)),
                rss_shmem_bytes: Some(Bytes(0)),
                fate: Some(fate),
                ..SurvivorRow::default()
            },
            name: name.to_owned(),
        }
    }

    fn object(name: &str, kind: MappingKind) -> OrphanedShmRow {
        OrphanedShmRow {
            ts: WallNs(0),
            boot_ns: BootNs(0),
            inode: 65,
            kind: Some(kind),
            name: name.to_owned(),
            allocated_bytes: Some(Bytes(64 << 20)),
            is_certain: true,
            ..OrphanedShmRow::default()
        }
    }

    #[test]
    fn each_kind_of_what_is_left_has_a_line_and_nothing_has_none() {
        assert_eq!(words(&Leftovers::default(), true), [""; 0]);
        let left = Leftovers {
            outlived: vec![
                outlived(7, "VLLM::EngineCor", Fate::Left),
                outlived(8, "VLLM::Worker_TP", Fate::Left),
            ],
            objects: vec![
                object("/dev/shm/psm_1", MappingKind::Tmpfs),
                object("0x0", MappingKind::Sysv),
            ],
        };
        assert_eq!(
            words(&left, true),
            [
                "2 processes outlived the root of the tree, up to 2.5 GiB in all: 7 \
                 VLLM::EngineCor 1.2 GiB, 8 VLLM::Worker_TP 1.2 GiB; --kill-survivors ends such",
                "2 objects of shared memory are left without an owner, 128 MiB in all: \
                 /dev/shm/psm_1, segment 65 (ipcrm -m 65)",
            ]
        );
    }

    #[test]
    fn who_was_ended_and_who_could_not_be_are_distinguished() {
        let fates = [Fate::Terminated, Fate::Killed, Fate::Stuck];
        let left = Leftovers {
            outlived: fates.map(|fate| outlived(7, "x", fate)).to_vec(),
            objects: Vec::new(),
        };
        assert_eq!(
            words(&left, true),
            [
                "ended 2 processes that had outlived the root of the tree: 7 x, 7 x (by SIGKILL)",
                "1 process outlived the root of the tree, up to 1.2 GiB in all: 7 x 1.2 GiB \
                 (still there after SIGKILL)",
            ]
        );
    }

    #[test]
    fn who_holds_memory_of_a_gpu_is_reported_with_it() {
        let on_gpu = |fate| {
            let mut one = outlived(7, "x", fate);
            one.row.gpu_bytes = Some(Bytes(70 << 30));
            one
        };
        let left = Leftovers {
            outlived: vec![on_gpu(Fate::Killed), on_gpu(Fate::Left)],
            objects: Vec::new(),
        };
        assert_eq!(
            words(&left, true),
            [
                "ended 1 process that had outlived the root of the tree: 7 x with 70.0 GiB on a \
                 GPU (by SIGKILL)",
                "1 process outlived the root of the tree, up to 1.2 GiB in all: 7 x 1.2 GiB and \
                 70.0 GiB on a GPU; --kill-survivors ends such",
            ]
        );
    }

    #[test]
    fn a_crowd_is_named_in_part() {
        let left = Leftovers {
            outlived: vec![outlived(7, "x", Fate::Terminated); 8],
            objects: Vec::new(),
        };
        assert!(
            words(&left, true)[0].ends_with("7 x, 3 more"),
            "{:?}",
            words(&left, true)
        );
    }
}
