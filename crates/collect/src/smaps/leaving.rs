//! Those that have ended and hold memory still: the kernel tells of an end before it gives the
//! memory back, and until then the parts of those who share it are what they were.

use crate::kept::TextBuffer;
use crate::procfs::Stat;
use memtrace_model::Tgid;
use std::path::Path;

/// One that is recorded no more.
#[derive(Debug)]
struct Process {
    image: u64,
    tgid: Tgid,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Leaving(Vec<Process>);

impl Leaving {
    /// A process with this program image has ended.
    pub(super) fn note(&mut self, image: u64, tgid: Tgid) {
        self.0.push(Process { image, tgid });
    }

    /// Forgets those that hold nothing any more: they are zombies, or gone. `root` is where procfs
    /// is.
    pub(super) fn forget_gone(&mut self, root: &Path, buffer: &mut TextBuffer) {
        self.0.retain(|process| {
            let text = buffer.read_once(&root.join(format!("{}/stat", process.tgid)));
            let stat = text.ok().and_then(Stat::parse);
            stat.is_some_and(|stat| !stat.has_ended())
        });
    }

    /// How many of them ran this program image.
    pub(super) fn count(&self, image: u64) -> usize {
        let of_image = self.0.iter().filter(|process| process.image == image);
        of_image.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_that_has_ended_counts_until_it_is_a_zombie_or_gone() {
        let root = tempfile::tempdir().unwrap();
        let mut leaving = Leaving::default();
        let in_state = |tgid: u32, state: char| {
            let dir = root.path().join(tgid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let stat =
                format!("{tgid} (x) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 1 0");
            fs::write(dir.join("stat"), stat).unwrap();
        };
        for (tgid, state) in [(7, 'R'), (8, 'D'), (9, 'S')] {
            in_state(tgid, state);
            leaving.note(1, Tgid(tgid));
        }
        let mut counted = || {
            leaving.forget_gone(root.path(), &mut TextBuffer::default());
            (leaving.count(1), leaving.count(2))
        };
        assert_eq!(counted(), (3, 0));
        in_state(7, 'Z');
        assert_eq!(counted(), (2, 0));
        fs::remove_dir_all(root.path().join("8")).unwrap();
        assert_eq!(counted(), (1, 0));
    }
}
