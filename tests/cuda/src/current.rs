//! Which context is current in a thread.

use std::cell::RefCell;

thread_local! {
    /// The contexts of this thread; the last is current. Null may stand on top.
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The context that is current in this thread; 0 is none.
pub(crate) fn top() -> u64 {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied().unwrap_or(0))
}

pub(crate) fn push(context: u64) {
    CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
}

pub(crate) fn pop() -> Option<u64> {
    CONTEXTS.with_borrow_mut(Vec::pop)
}
