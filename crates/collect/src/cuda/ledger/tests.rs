use super::super::functions::FUNCTIONS;
use super::*;
use zerocopy::FromZeros;

const MIB: u64 = 1 << 20;

/// Calls of one process, one millisecond after the other.
struct Program {
    ledger: Ledger,
    shared: Shared,
    now: u64,
}

impl Program {
    fn new() -> Self {
        Self::with_room(1_000)
    }

    fn with_room(room: usize) -> Self {
        let mut program = Self {
            ledger: Ledger::new(false),
            shared: Shared::new(room),
            now: 0,
        };
        program.call("cuDevicePrimaryCtxRetain", &[0, 0], &[0xc0]);
        program
    }

    /// A call that takes half a millisecond.
    fn call(&mut self, name: &str, args: &[u64], out: &[u64]) -> Effect {
        self.now += 1_000_000;
        self.between(name, args, out, self.now - 500_000, self.now, 0)
    }

    fn between(
        &mut self,
        name: &str,
        args: &[u64],
        out: &[u64],
        entered: u64,
        returned: u64,
        result: i32,
    ) -> Effect {
        let mut call = CudaCall::new_zeroed();
        call.args[..args.len()].copy_from_slice(args);
        call.out[..out.len()].copy_from_slice(out);
        call.entered_boot_ns = entered;
        call.header.boot_ns = returned;
        call.result = result;
        call.tid = 1;
        if name == "cuMemCreate" {
            // On device 0.
            call.structure[1] = 1;
        }
        let of_name = |function: &&Function| function.name == name;
        let function = FUNCTIONS.iter().find(of_name).unwrap();
        self.ledger.take(function, &call, &mut self.shared)
    }

    fn held(&self, kind: CudaKind) -> u64 {
        let held = self.ledger.devices.values().map(|held| held.of(kind));
        held.sum::<i64>().cast_unsigned()
    }
}

#[test]
fn memory_mapped_by_hand_is_there_until_the_last_handle_and_the_last_mapping_are_gone() {
    let mut program = Program::new();
    program.call("cuMemCreate", &[0, 20 * MIB], &[0xa]);
    program.call("cuMemMap", &[0x1000_0000, 20 * MIB, 0, 0xa], &[]);
    program.call("cuMemRelease", &[0xa], &[]);
    assert_eq!(program.held(CudaKind::Vmm), 20 * MIB);
    program.call("cuMemRetainAllocationHandle", &[0, 0x1000_0000], &[0xa]);
    program.call("cuMemUnmap", &[0x1000_0000, 20 * MIB], &[]);
    assert_eq!(program.held(CudaKind::Vmm), 20 * MIB);
    let effect = program.call("cuMemRelease", &[0xa], &[]);
    assert_eq!(effect.size, Some(20 << 20));
    // The first call is that of the context.
    assert_eq!(effect.taken, Some((BootNs(2_000_000), false)));
    assert_eq!(program.held(CudaKind::Vmm), 0);
    assert_eq!(program.shared.room, 1_000);
}

#[test]
fn a_free_that_returns_after_another_thread_got_the_address_leaves_that_memory() {
    let mut program = Program::new();
    program.call("cuMemAlloc", &[0, 3 * MIB], &[0x7000]);
    let (entered, returned) = (program.now + 10, program.now + 400);
    program.between(
        "cuMemAlloc",
        &[0, 5 * MIB],
        &[0x7000],
        entered + 100,
        entered + 200,
        0,
    );
    program.between("cuMemFree", &[0x7000], &[], entered, returned, 0);
    assert_eq!(program.held(CudaKind::Direct), 5 * MIB);
    program.now += 1_000_000;
    program.call("cuMemFree", &[0x7000], &[]);
    assert_eq!(program.held(CudaKind::Direct), 0);
}

#[test]
fn direct_allocations_take_pieces_of_2_mib() {
    let mut program = Program::new();
    for place in 0..1_000 {
        program.call("cuMemAlloc", &[0, 4_096], &[place + 1]);
    }
    program.call("cuMemAlloc", &[0, 3 * MIB], &[0x9000]);
    let held = program.ledger.devices[&Some(0)];
    let taken = held.of(CudaKind::Direct) + held.padding();
    // As NVML tells of the same on an H200: 4 MiB for the small ones, 4 for the large one.
    assert_eq!(taken, 8 << 20);
}

#[test]
fn memory_that_another_process_opens_twice_is_held_once() {
    let mut program = Program::new();
    program
        .shared
        .exports
        .insert([0; CUDA_STRUCTURE_BYTES / 8], 7 << 20);
    program.call("cuIpcOpenMemHandle", &[], &[0x8000]);
    program.call("cuIpcOpenMemHandle", &[], &[0x8000]);
    assert_eq!(program.held(CudaKind::Imported), 7 * MIB);
    program.call("cuIpcCloseMemHandle", &[0x8000], &[]);
    assert_eq!(program.held(CudaKind::Imported), 7 * MIB);
    program.call("cuIpcCloseMemHandle", &[0x8000], &[]);
    assert_eq!(program.held(CudaKind::Imported), 0);
}

#[test]
fn a_refused_call_tells_what_was_asked_and_moves_nothing() {
    let mut program = Program::new();
    let effect = program.between("cuMemAlloc", &[0, 1 << 40], &[0], 1, 2, 2);
    assert_eq!(
        (effect.kind, effect.size),
        (Some(CudaKind::Direct), Some(1 << 40))
    );
    let held = program.ledger.devices[&Some(0)];
    assert_eq!((held.of(CudaKind::Direct), held.failed), (0, 1));
}

#[test]
fn with_its_context_goes_what_was_allocated_in_it() {
    let mut program = Program::new();
    program.call("cuMemAlloc", &[0, 3 * MIB], &[0x7000]);
    program.call("cuMemCreate", &[0, 2 * MIB], &[0xa]);
    program.call("cuDevicePrimaryCtxRelease", &[0], &[]);
    assert_eq!(program.held(CudaKind::Direct), 0);
    assert_eq!(program.held(CudaKind::Vmm), 2 * MIB);
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let mut program = Program::with_room(1);
    program.call("cuMemAlloc", &[0, 3 * MIB], &[0x7000]);
    assert!(!program.ledger.is_partial);
    program.call("cuMemAlloc", &[0, 3 * MIB], &[0x8000]);
    assert_eq!(program.held(CudaKind::Direct), 6 * MIB);
    assert!(program.ledger.is_partial);
    assert_eq!(program.shared.left_out, 1);
}

#[test]
fn whatever_a_program_says_is_bounded() {
    let mut program = Program::with_room(100);
    for round in 0..10_000_u64 {
        program.call("cuMemAlloc", &[0, u64::MAX], &[round]);
        program.call("cuMemCreate", &[0, i64::MAX.cast_unsigned()], &[round]);
        program.call("cuDevicePrimaryCtxRetain", &[0, round], &[round]);
        program.call("cuCtxCreate", &[0, 0, round], &[round << 20]);
        program.call("cuDeviceGetUuid", &[0, round], &[round]);
        program.call("cuMemFree", &[round], &[]);
        program.call("cuLibraryUnload", &[round], &[]);
    }
    let ledger = &program.ledger;
    assert!(ledger.is_partial);
    assert!(ledger.devices.len() <= DEVICES_MAX + 1);
    assert!(ledger.contexts.len() <= THREADS_MAX && ledger.uuids.len() <= DEVICES_MAX);
    assert!(ledger.len() <= 101, "{}", ledger.len());
    assert!(ledger.devices.values().all(|held| held.libraries >= 0));
}
