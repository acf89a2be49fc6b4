//! The highest of many amounts that change one at a time.

/// A tournament: each node has the higher of the two below it, the root is node 1, and the leaves
/// are the amounts. A change takes as many steps as there are levels, at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Highest {
    nodes: Vec<i64>,
}

impl Highest {
    /// Of all; none is below 0.
    pub(super) fn now(&self) -> i64 {
        self.nodes.get(1).copied().unwrap_or(0)
    }

    /// One is that much from now on; each was 0 at first.
    pub(super) fn set(&mut self, place: usize, amount: i64) {
        if place >= self.nodes.len() / 2 {
            self.make_room(place);
        }
        let mut node = self.nodes.len() / 2 + place;
        self.nodes[node] = amount;
        while node > 1 {
            let higher = self.nodes[node].max(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == higher {
                return;
            }
            self.nodes[node] = higher;
        }
    }

    fn make_room(&mut self, place: usize) {
        let leaves = &self.nodes[self.nodes.len() / 2..];
        let count = (place + 1).next_power_of_two();
        let mut nodes = vec![0; 2 * count];
        nodes[count..count + leaves.len()].copy_from_slice(leaves);
        for node in (1..count).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        self.nodes = nodes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_highest_however_amounts_rise_fall_and_come() {
        let mut highest = Highest::default();
        assert_eq!(highest.now(), 0);
        let mut amounts = [0_i64; 40];
        let mut seed: u64 = 1;
        for round in 1..=2_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (seed >> 33) as usize % amounts.len().min(round);
            amounts[place] = (seed >> 40).cast_signed() % 100;
            highest.set(place, amounts[place]);
            assert_eq!(Some(highest.now()), amounts.iter().copied().max());
        }
    }
}
