//! The resolver on what real kernels say of themselves: `kernels/` holds the part of their
//! BTF that it looks at, written by `cargo xtask vm --btf`.

use super::*;

/// Ubuntu's kernel: hashes are not allocated as they fill (6.1).
const LINUX_5_15: &[u8] = include_bytes!("../kernels/5.15.btf");
/// Debian's kernel: counters are one atomic number each, the exit tracepoint comes after
/// the address space is gone.
const LINUX_6_1: &[u8] = include_bytes!("../kernels/6.1.btf");
/// Debian's kernel: per-CPU counters (6.2).
const LINUX_6_12: &[u8] = include_bytes!("../kernels/6.12.btf");
/// A kernel built for small virtual machines: the exit tracepoint comes before the address
/// space is gone and tells whether the group is dead (6.16).
const LINUX_6_18: &[u8] = include_bytes!("../kernels/6.18.btf");

const KERNELS: [&[u8]; 4] = [LINUX_5_15, LINUX_6_1, LINUX_6_12, LINUX_6_18];
const CPUS: u32 = 4;

/// The same kernel without a type, field, enumerator or function of this name.
fn without(kernel: &[u8], name: &str) -> Vec<u8> {
    let text = format!("\0{name}\0").into_bytes();
    let mut changed = kernel.to_vec();
    let mut count = 0;
    for at in 0..=changed.len() - text.len() {
        if changed[at..].starts_with(&text) {
            changed[at + 1] = b'#';
            count += 1;
        }
    }
    assert!(count > 0, "this kernel never had {name}");
    changed
}

fn resolved(kernel: &[u8]) -> Resolved {
    resolve(kernel, CPUS).unwrap()
}

fn programs(resolved: &Resolved) -> Vec<&str> {
    resolved.offered.iter().map(|probe| probe.program).collect()
}

/// The features that a change turned off.
fn lost(kernel: &[u8], name: &str) -> Vec<String> {
    let before = resolved(kernel).missing;
    let mut after = resolved(&without(kernel, name)).missing;
    after.retain(|what| !before.contains(what));
    after
}

#[test]
fn what_depends_on_the_kernel_is_found_in_each() {
    for (kernel, allocates) in KERNELS.into_iter().zip([false, true, true, true]) {
        let found = resolved(kernel);
        assert_eq!(found.allocates_elements, allocates);
        assert_ne!(found.layout.task_fsbase, 0);
        assert_ne!(found.layout.shmem_used, 0);
    }
    for kernel in [LINUX_6_1, LINUX_6_12, LINUX_6_18] {
        assert_ne!(resolved(kernel).layout.anon_mappings, 0);
        let changed = without(kernel, "num_active_vmas");
        assert_eq!(resolved(&changed).layout.vma_anon, 0);
        let changed = without(kernel, "bpf_find_vma");
        assert_eq!(resolved(&changed).layout.vma_anon, 0);
    }
}

#[test]
fn before_6_2_counters_are_atomic_numbers_in_a_row() {
    let found = resolved(LINUX_6_1);
    let layout = found.layout;
    assert_eq!(found.counting, Counting::WithoutThreads);
    assert_eq!(layout.counter_to_percpu, 0);
    assert_eq!(layout.cpu_count, 0);
    let places = [
        layout.mm_rss_file,
        layout.mm_rss_anon,
        layout.mm_rss_swap,
        layout.mm_rss_shmem,
    ];
    assert_eq!(
        places.map(|place| place - layout.mm_rss_file),
        [0, 8, 16, 24]
    );
    assert!(found.missing[0].starts_with("exact counters while a process runs"));
}

#[test]
fn since_6_2_counters_have_parts_on_each_cpu() {
    for kernel in [LINUX_6_12, LINUX_6_18] {
        let found = resolved(kernel);
        let layout = found.layout;
        assert_eq!(found.counting, Counting::Exact);
        // struct percpu_counter { raw_spinlock_t lock; s64 count; struct list_head list;
        // s32 *counters; }
        assert_eq!(layout.counter_to_percpu, 24);
        assert_eq!(layout.mm_rss_anon - layout.mm_rss_file, 40);
        assert_eq!(layout.cpu_count, CPUS);
        assert_eq!(found.missing, [""; 0]);
    }
}

#[test]
fn before_6_16_a_program_comes_before_the_address_space_is_gone() {
    for kernel in [LINUX_6_1, LINUX_6_12] {
        let found = resolved(kernel);
        assert_eq!(found.layout.exit_has_group_dead, 0);
        assert!(programs(&found).contains(&BEFORE_EXIT));
    }
    let found = resolved(LINUX_6_18);
    assert_eq!(found.layout.exit_has_group_dead, 1);
    assert!(!programs(&found).contains(&BEFORE_EXIT));
}

#[test]
fn whether_mark_victim_tells_the_task_or_its_id_is_asked_and_not_guessed() {
    // Since 6.9, and Debian's 6.1 has it too.
    for kernel in KERNELS {
        assert_eq!(resolved(kernel).layout.victim_is_task, 1);
    }
    // As it was: trace_mark_victim(int pid).
    let mut kernel = LINUX_6_1.to_vec();
    let btf = Btf::parse(LINUX_6_1, &["btf_trace_mark_victim", "btf_trace_rss_stat"]).unwrap();
    let int = btf.tracepoint_arguments("btf_trace_rss_stat").unwrap()[1];
    let place = btf.place_of_argument("btf_trace_mark_victim", 0).unwrap();
    kernel[place..place + 4].copy_from_slice(&int.to_le_bytes());
    assert_eq!(resolved(&kernel).layout.victim_is_task, 0);
}

#[test]
fn without_what_nothing_works_without_there_is_no_layout_and_it_is_named() {
    for (name, what) in [
        ("bpf_iter_task", "task iterator (Linux 5.8)"),
        ("btf_trace_rss_stat", "tracepoint rss_stat"),
        (
            "btf_trace_sched_process_fork",
            "tracepoint sched_process_fork",
        ),
        (
            "btf_trace_sched_process_exit",
            "tracepoint sched_process_exit",
        ),
        ("hiwater_rss", "mm_struct.hiwater_rss"),
        ("rss_stat", "mm_struct.rss_stat"),
    ] {
        for kernel in KERNELS {
            let error = resolve(&without(kernel, name), CPUS).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("this kernel's BTF has no {what}")
            );
        }
    }
}

#[test]
fn a_kernel_without_btf_is_distinguished_from_one_that_lacks_something() {
    let error = resolve(b"", CPUS).unwrap_err();
    assert!(matches!(error, LayoutError::Btf(_)), "{error}");
}

#[test]
fn each_other_thing_that_is_missing_turns_one_feature_off_and_is_said() {
    for (kernel, name, said) in [
        (LINUX_6_18, "btf_trace_task_rename", "changes of names"),
        (
            LINUX_6_18,
            "btf_trace_mark_victim",
            "kills by the OOM killer",
        ),
        (LINUX_6_18, "shmem_sb_info", "how full a tmpfs was"),
        (LINUX_6_18, "memory_cgrp_id", "memory cgroups of processes"),
        (LINUX_6_18, "pptrs", "exact counters: their per-CPU parts"),
        (
            LINUX_6_12,
            BEFORE_EXIT,
            "the counters of a process are gone",
        ),
        (LINUX_6_1, BEFORE_EXIT, "the counters of a process are gone"),
    ] {
        let lost = lost(kernel, name);
        assert!(
            lost.len() == 1 && lost[0].starts_with(said),
            "without {name}: {lost:?}"
        );
    }
    let of_signals = lost(LINUX_6_18, "btf_trace_signal_generate");
    assert!(
        of_signals.len() == 2
            && of_signals[0].starts_with("who sent the signal that ended a process")
            && of_signals[1].starts_with("how full a tmpfs was"),
        "{of_signals:?}"
    );
}

#[test]
fn with_more_cpus_than_are_added_up_counters_are_approximate_and_that_is_said() {
    let found = resolve(LINUX_6_18, CPUS_MAX + 1).unwrap();
    assert_eq!(found.counting, Counting::WithoutCpus);
    assert_eq!(found.layout.cpu_count, 0);
    assert_eq!(found.missing.len(), 1);
}

#[test]
fn a_reduced_kernel_resolves_as_it_does_when_it_is_reduced_again() {
    for kernel in KERNELS {
        let again = reduced_btf(kernel).unwrap().unwrap();
        assert_eq!(resolved(&again).layout, resolved(kernel).layout);
    }
}

/// Whether the BTF that programs are loaded with names a function.
fn names(found: &Resolved, function: &str) -> bool {
    let btf = Btf::parse(&found.attach_btf, &[function]).unwrap();
    btf.function_id(function).is_some()
}

#[test]
fn the_registers_and_the_functions_of_calls_are_found_on_every_kernel() {
    for kernel in KERNELS {
        let found = resolved(kernel);
        assert!(found.has_calls);
        for function in &calls::ATTACHED_TO[1..] {
            assert!(names(&found, function), "{function}");
        }
    }
}

/// fexit programs are bound to a function by its id, kretprobes by its name.
#[test]
fn where_btf_does_not_name_the_function_of_a_call_kretprobes_are_left() {
    for kernel in KERNELS {
        let function = calls::ATTACHED_TO[1];
        let found = resolved(&without(kernel, function));
        assert!(found.has_calls);
        assert!(!names(&found, function));
    }
}

#[test]
fn without_the_registers_of_a_call_no_way_is_left() {
    for kernel in KERNELS {
        assert!(!resolved(&without(kernel, "pt_regs")).has_calls);
    }
}
