//! Contexts, the current ones of threads, and so which device a call is about.

use super::arguments::returned;
use super::{DEVICES_MAX, Device, Ledger, PUSHED_MAX, THREADS_MAX};
use crate::cuda::functions::Does;
use memtrace_abi::CudaCall;
use memtrace_model::BootNs;

impl Ledger {
    /// The device that a context was made or ended on.
    pub(super) fn change_contexts(&mut self, does: Does, call: &CudaCall) -> Device {
        match does {
            Does::RetainPrimary => {
                let device = call.args[1] as i32;
                let has_room = self.primary.len() < DEVICES_MAX;
                if !has_room && !self.primary.contains_key(&device) {
                    return None;
                }
                let primary = self.primary.entry(device).or_default();
                primary.0 = call.out[0];
                primary.1 += 1;
                if !self.contexts.contains_key(&call.out[0]) {
                    self.begin_context(call.out[0], device, returned(call));
                }
                Some(device)
            }
            Does::CreateContext(argument) => {
                let device = call.args[argument] as i32;
                self.begin_context(call.out[0], device, returned(call));
                self.push(call.tid, call.out[0]);
                Some(device)
            }
            Does::DestroyContext => {
                let device = self.contexts.get(&call.args[0]).copied();
                self.end_context(call.args[0]);
                device
            }
            _ => {
                let device = call.args[0] as i32;
                if let Some(primary) = self.primary.get_mut(&device) {
                    primary.1 -= 1;
                    let context = primary.0;
                    if does == Does::ResetPrimary {
                        // How often it is retained stays.
                        primary.1 += 1;
                        self.end_context(context);
                    } else if primary.1 <= 0 && !self.is_partial {
                        // Of a process that was there before it is not known how often.
                        self.primary.remove(&device);
                        self.end_context(context);
                    }
                }
                Some(device)
            }
        }
    }

    fn begin_context(&mut self, context: u64, device: i32, at: BootNs) {
        if self.contexts.len() >= THREADS_MAX {
            return;
        }
        self.contexts.insert(context, device);
        self.has_new_context = true;
        let held = self.held(Some(device));
        held.contexts += 1;
        held.context_at = Some(at);
    }

    /// With a context goes what was allocated in it. Memory that is mapped by hand belongs to none.
    fn end_context(&mut self, context: u64) {
        let Some(device) = self.contexts.remove(&context) else {
            return;
        };
        let is_last = self.contexts.is_empty();
        let mut gone = Vec::new();
        self.blocks.retain(|_, block| {
            let is_kept = block.context != context && !(is_last && block.context == 0);
            if !is_kept {
                gone.push(*block);
            }
            is_kept
        });
        for block in gone {
            self.held(block.device).add(block.kind, block.size, -1);
        }
        let held = self.held(Some(device));
        held.contexts -= 1;
        if held.contexts <= 0 {
            (held.libraries, held.graphs) = (0, 0);
        }
        for pushed in self.current.values_mut() {
            pushed.retain(|one| *one != context);
        }
    }

    pub(super) fn push(&mut self, tid: u32, context: u64) {
        if self.current.len() >= THREADS_MAX && !self.current.contains_key(&tid) {
            return;
        }
        let pushed = self.current.entry(tid).or_default();
        if pushed.len() < PUSHED_MAX {
            pushed.push(context);
        }
    }

    pub(super) fn pop(&mut self, tid: u32) {
        if let Some(pushed) = self.current.get_mut(&tid) {
            pushed.pop();
        }
    }

    pub(super) fn note_pool(&mut self, pool: u64, device: i32) {
        if self.pools.len() < THREADS_MAX {
            self.pools.insert(pool, device);
        }
    }

    /// The context of a thread: the one that it made current, or the only one that there is.
    pub(super) fn context_of(&self, tid: u32) -> Option<u64> {
        let pushed = self.current.get(&tid).and_then(|pushed| pushed.last());
        let only = || match self.contexts.len() {
            1 => self.contexts.keys().next(),
            _ => None,
        };
        pushed.filter(|one| **one != 0).or_else(only).copied()
    }

    pub(super) fn device_of(&self, tid: u32) -> Device {
        let known = self.context_of(tid);
        let mut devices = self.contexts.values();
        let first = devices.next().copied();
        known
            .and_then(|context| self.contexts.get(&context).copied())
            .or_else(|| first.filter(|first| devices.all(|device| device == first)))
    }
}
