//! A value that changes, and what it was at the newest mark.

/// Marks are numbered from 1, and cost nothing: a value that changes first keeps what it was, if
/// it has not since the newest mark. So a state of many values is kept without copying it.
#[derive(Clone, Debug, Default)]
pub struct Latest<V> {
    now: V,
    kept: V,
    kept_at: u32,
}

impl<V: Copy> Latest<V> {
    /// It is another from now on; the newest mark has this number.
    pub fn set(&mut self, now: V, mark: u32) {
        if self.kept_at != mark {
            self.kept = self.now;
            self.kept_at = mark;
        }
        self.now = now;
    }

    pub fn now(&self) -> &V {
        &self.now
    }

    /// What it was at the newest mark, which has this number.
    pub fn at(&self, mark: u32) -> &V {
        if self.kept_at == mark {
            &self.kept
        } else {
            &self.now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_reported_as_it_was_at_the_newest_mark_however_often_it_changed_since() {
        let mut value = Latest::default();
        value.set(2, 0);
        assert_eq!(*value.at(1), 2);
        value.set(3, 1);
        value.set(4, 1);
        assert_eq!((*value.at(1), *value.now()), (2, 4));
        assert_eq!(*value.at(2), 4);
        value.set(5, 3);
        assert_eq!(*value.at(3), 4);
    }
}
