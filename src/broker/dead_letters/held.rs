//! What of a channel's deliveries is still unacked, and how it is returned in few frames.

/// Tags that were handed over and not taken: a bit for each.
#[derive(Debug, Default)]
pub(super) struct Held(Vec<u32>);

impl Held {
    pub(super) fn add(&mut self, tag: u64) {
        let (index, bit) = Self::place(tag);
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= bit;
    }

    pub(super) fn remove(&mut self, tag: u64) {
        let (index, bit) = Self::place(tag);
        if let Some(part) = self.0.get_mut(index) {
            *part &= !bit;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|part| u64::from(part.count_ones())).sum()
    }

    /// The same up to the end of the 32 that this tag is one of.
    pub(super) fn count_to(&self, tag: u64) -> u64 {
        let (index, _) = Self::place(tag);
        self.0.iter().take(index + 1).map(|part| u64::from(part.count_ones())).sum()
    }

    /// The last tag of each 32 that holds any: RabbitMQ 3.10 mixes up what more of a quorum queue is
    /// returned together.
    pub(super) fn ends(&self) -> Vec<u64> {
        let parts = self.0.iter().zip(0u64..).filter(|(part, _)| **part != 0);
        parts.map(|(part, index)| index * 32 + u64::from(part.ilog2())).collect()
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.ends().pop()
    }

    fn place(tag: u64) -> (usize, u32) {
        (usize::try_from(tag / 32).unwrap_or(usize::MAX), 1 << (tag % 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tag that is not held any more closes the channel when it is named.
    #[test]
    fn only_held_tags_are_named_each_after_at_most_32() {
        let mut held = Held::default();
        (1..=100).for_each(|tag| held.add(tag));
        assert_eq!((held.count(), held.ends(), held.last()), (100, vec![31, 63, 95, 100], Some(100)));
        (32..=64).chain([31, 95, 100]).for_each(|tag| held.remove(tag));
        assert_eq!((held.count(), held.ends()), (64, vec![30, 94, 99]));
        (1..=100).for_each(|tag| held.remove(tag));
        assert_eq!((held.count(), held.ends(), held.last()), (0, vec![], None));
    }
}
