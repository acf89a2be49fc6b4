//! Which processes run the image of one exec, and can so share pages through fork.

use std::collections::HashMap;

/// What a process got by exec, and its children by fork: processes of one image can share
/// anonymous pages, those of different ones cannot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    /// An id is never reused.
    pub(super) id: u64,
    /// Whether its exec was observed, so that every process of it is known.
    is_whole: bool,
}

/// The images of the recording and how many living processes each has.
#[derive(Debug, Default)]
pub(super) struct Images {
    last: u64,
    member_counts: HashMap<u64, usize>,
}

impl Images {
    /// The image of a process that was born with that of `parent`; where its fork was not
    /// seen it is taken to be, for want of knowing better, and then no exec makes up for
    /// what else can be of it.
    pub(super) fn at_birth(&mut self, parent: Option<Image>, was_fork_seen: bool) -> Image {
        let image = match parent {
            Some(parent) => Image {
                id: parent.id,
                is_whole: parent.is_whole && was_fork_seen,
            },
            None => self.next(false),
        };
        self.enter(image);
        image
    }

    /// The image of a process that was seen executing a program; it leaves its old one.
    pub(super) fn at_exec(&mut self, left: Image) -> Image {
        let image = self.next(true);
        self.enter(image);
        self.leave(left);
        image
    }

    /// A process of the image ended.
    pub(super) fn leave(&mut self, image: Image) {
        if let Some(count) = self.member_counts.get_mut(&image.id) {
            *count -= 1;
            if *count == 0 {
                self.member_counts.remove(&image.id);
            }
        }
    }

    /// Whether the image is known to be of one living process only.
    pub(super) fn has_only_one(&self, image: Image) -> bool {
        image.is_whole && self.member_counts.get(&image.id) == Some(&1)
    }

    fn next(&mut self, is_whole: bool) -> Image {
        self.last += 1;
        Image {
            id: self.last,
            is_whole,
        }
    }

    fn enter(&mut self, image: Image) {
        *self.member_counts.entry(image.id).or_default() += 1;
    }
}
