//! How many messages fit into a socket's queue: a limit of the host, 10 by default, that a
//! socket takes over when it is made. Ten marks are there before a reader has woken up.

use std::path::Path;

const LIMIT: &str = "/proc/sys/net/unix/max_dgram_qlen";

/// What is left is bounded by each sender's own buffer, some hundred short messages.
const RAISED: u32 = 4096;

/// The host's limit, raised for as long as this lives: the moment in which a socket is
/// made. Only root can; for others it stays as it is.
pub(super) struct RaisedLimit {
    before: Option<String>,
}

impl RaisedLimit {
    pub(super) fn raise() -> Self {
        Self::raise_in(Path::new(LIMIT))
    }

    fn raise_in(file: &Path) -> Self {
        let before = std::fs::read_to_string(file).ok();
        let before =
            before.filter(|text| text.trim().parse().is_ok_and(|limit: u32| limit < RAISED));
        let is_raised = before.is_some() && std::fs::write(file, RAISED.to_string()).is_ok();
        Self {
            before: before.filter(|_| is_raised),
        }
    }

    /// Whether a socket that is made now has a long queue.
    pub(super) fn has_room(&self) -> bool {
        let limit = std::fs::read_to_string(LIMIT).ok();
        limit.is_some_and(|text| text.trim().parse().is_ok_and(|limit: u32| limit >= RAISED))
    }

    fn restore_in(&mut self, file: &Path) {
        if let Some(before) = self.before.take()
            && let Err(error) = std::fs::write(file, before)
        {
            tracing::warn!("{} stays at {RAISED}: {error}", file.display());
        }
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        self.restore_in(Path::new(LIMIT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_before_afterwards_and_a_higher_one_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = || std::fs::read_to_string(file.path()).unwrap();
        std::fs::write(file.path(), "10\n").unwrap();
        let mut raised = RaisedLimit::raise_in(file.path());
        assert_eq!(read(), RAISED.to_string());
        raised.restore_in(file.path());
        assert_eq!(read(), "10\n");

        std::fs::write(file.path(), "100000\n").unwrap();
        let mut raised = RaisedLimit::raise_in(file.path());
        assert_eq!(read(), "100000\n");
        raised.restore_in(file.path());
        assert_eq!(read(), "100000\n");
    }
}
