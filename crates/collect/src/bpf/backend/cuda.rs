//! Which copies of libcuda are probed: those that are installed, and those that a process maps.

use super::BpfBackend;
use crate::Pass;
use crate::cuda::{Library, file_id, mapped};
use memtrace_host::clock;
use memtrace_model::{DiagKind, Tgid};
use std::path::Path;

/// Files of that name that are looked at.
const LOOKED_AT_MAX: usize = 256;
/// So many running processes are asked at the start whether they have mapped the library.
const ASKED_MAX: usize = 1_000;

impl BpfBackend {
    /// Probes what is installed.
    pub(super) fn find_cuda(&mut self, pass: &mut Pass<'_>) {
        for path in self.options.cuda.take().unwrap_or_default() {
            self.probe_cuda(&path, pass);
        }
    }

    /// The same of what processes have mapped that run already.
    pub(super) fn find_mapped_cuda(&mut self, pass: &mut Pass<'_>) {
        if !self.programs.sees_cuda() {
            return;
        }
        let running = pass.table.processes().map(|process| process.row().tgid);
        let running: Vec<Tgid> = running.take(ASKED_MAX).collect();
        for tgid in running {
            self.probe_mapped_cuda(tgid, pass);
        }
    }

    /// Probes what processes have mapped since the last call, and what those have mapped that hold
    /// memory of a GPU: where no probe sees mmap, that is how a copy of the library is found.
    pub(super) fn follow_cuda(&mut self, pass: &mut Pass<'_>) {
        let mapped = self.apply.take_cuda_mapped();
        let on_gpus = std::mem::take(&mut pass.table.news.on_gpus);
        if !self.programs.sees_cuda() {
            return;
        }
        for tgid in mapped {
            self.probe_mapped_cuda(tgid, pass);
            self.apply.cuda.note_beginning(tgid);
        }
        // Of those that have ended nobody asks again.
        if self.asked_for_cuda.len() > ASKED_MAX {
            self.asked_for_cuda
                .retain(|upid| pass.table.process(*upid).is_some());
        }
        for upid in on_gpus {
            if self.asked_for_cuda.insert(upid)
                && let Some(process) = pass.table.process(upid)
            {
                self.probe_mapped_cuda(process.row().tgid, pass);
            }
        }
    }

    /// Has the GPUs read at once where a context was made: what it takes is what the process holds
    /// then.
    pub(super) fn ask_for_contexts(&mut self) {
        if self.apply.cuda.take_new_contexts()
            && let Some(haste) = &self.options.gpu_haste
        {
            haste.ask();
        }
    }

    fn probe_mapped_cuda(&mut self, tgid: Tgid, pass: &mut Pass<'_>) {
        // One that has ended meanwhile has mapped nothing.
        for path in mapped(Path::new("/proc"), tgid).unwrap_or_default() {
            self.probe_cuda(&path, pass);
        }
    }

    fn probe_cuda(&mut self, path: &Path, pass: &mut Pass<'_>) {
        if !self.programs.sees_cuda() {
            return;
        }
        // Of each file once, whatever came of it.
        let Ok(id) = file_id(path) else {
            return;
        };
        if !self.looked_at.insert(id) || self.looked_at.len() > LOOKED_AT_MAX {
            return;
        }
        let outcome = Library::open(path).map_err(|error| error.to_string());
        let outcome = outcome.and_then(|library| {
            self.programs
                .attach_cuda(&library)
                .map_err(|error| error.to_string())?;
            self.apply.cuda.note_probed(clock::boot());
            Ok(())
        });
        if let Err(error) = outcome {
            let detail = format!(
                "what the CUDA driver hands out of {} is not known, GPU memory by process is: \
                 {error}",
                path.display()
            );
            pass.tell_degraded(DiagKind::Unavailable, "cuda", None, detail);
        }
    }

    /// Writes what is held by now, and what could not be followed.
    pub(super) fn write_cuda(&mut self, pass: &mut Pass<'_>) {
        self.apply.cuda.write(pass);
        let unnamed = self.apply.cuda.take_unnamed();
        pass.table.news.cuda_calls.extend(unnamed);
        let count = self.apply.cuda.take_left_out();
        if count > 0 {
            pass.table.add_lost_events(count);
            pass.tell_degraded(
                DiagKind::Limit,
                "cuda",
                Some(count),
                "allocations of the CUDA driver are more than are remembered: that they are given \
                 back is not seen",
            );
        }
    }
}
