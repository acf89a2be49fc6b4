//! Takes what an iterator gives while a second thread makes the next: of tables that are long.

use std::sync::mpsc::sync_channel;
use std::thread::Builder;

/// So many are made on this thread first: for a short table a thread costs more than it spares.
const ALONE: usize = 2;

/// Takes all in order. From the third on one more is made while one is taken, by a thread that
/// `builder` starts; where none can be started, this one makes them all.
pub(super) fn for_each_ahead<T: Send>(
    builder: Builder,
    items: impl Iterator<Item = T> + Send,
    mut take: impl FnMut(T),
) {
    let mut items = items.fuse();
    items.by_ref().take(ALONE).for_each(&mut take);
    let Some(third) = items.next() else {
        return;
    };
    let rest = &mut items;
    std::thread::scope(|scope| {
        // What is made waits until it is taken: they are large.
        let (send, made) = sync_channel(0);
        let make = move || rest.all(|item| send.send(item).is_ok());
        // Without a thread nothing is made here, and all is left for below.
        let started = builder.spawn_scoped(scope, make);
        take(third);
        made.into_iter().for_each(&mut take);
        drop(started);
    });
    items.for_each(take);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current};

    /// What is taken of so many, and by which threads they were made.
    fn taken(builder: Builder, count: usize) -> (Vec<usize>, Vec<ThreadId>) {
        let items = (0..count).map(|item| (item, current().id()));
        let here = current().id();
        let mut all = Vec::new();
        for_each_ahead(builder, items, |item| {
            assert_eq!(current().id(), here);
            all.push(item);
        });
        all.into_iter().unzip()
    }

    #[test]
    fn a_short_table_needs_no_thread_and_a_long_one_only_one() {
        let here = current().id();
        for count in [0, 1, 3, 50] {
            let (items, makers) = taken(Builder::new(), count);
            assert_eq!(items, (0..count).collect::<Vec<_>>());
            let own = makers.iter().take_while(|maker| **maker == here).count();
            assert_eq!(own, count.min(ALONE + 1));
            assert!(makers[own..].iter().all(|maker| *maker == makers[own]));
        }
    }

    #[test]
    fn where_no_thread_can_be_started_all_is_taken_in_order() {
        let here = current().id();
        // No address space has room for such a stack.
        let (items, makers) = taken(Builder::new().stack_size(1 << 62), 50);
        assert_eq!(items, (0..50).collect::<Vec<_>>());
        assert!(makers.iter().all(|maker| *maker == here));
    }
}
