//! What has come of a heap.

use std::collections::BTreeMap;

/// Parts of a heap, which come in any order. Those side by side are one, so that a heap of very
/// many packets takes little memory, and each packet little time.
#[derive(Debug, Default)]
pub struct Ranges {
    /// Begin and end of each, in bytes.
    parts: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    /// Adds the bytes from `begin` to `end`; false if some of them have come already.
    pub fn add(&mut self, begin: u64, end: u64) -> bool {
        if begin >= end {
            return true;
        }
        let before = self.parts.range(..end).next_back();
        let before = before.map(|(&begin, &end)| (begin, end));
        if before.is_some_and(|(_, before)| before > begin) {
            return false;
        }
        self.bytes += end - begin;
        let first = match before {
            Some((first, before)) if before == begin => first,
            _ => begin,
        };
        let last = self.parts.remove(&end).unwrap_or(end);
        self.parts.insert(first, last);
        true
    }

    /// How many bytes have come.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begin and end of each part, in ascending order.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.parts.iter().map(|(&begin, &end)| (begin, end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_side_by_side_are_one() {
        let mut ranges = Ranges::default();
        for at in (0..100_000).rev() {
            assert!(ranges.add(2 * at, 2 * at + 1));
        }
        assert_eq!(ranges.parts().count(), 100_000);
        for at in 0..100_000 {
            assert!(ranges.add(2 * at + 1, 2 * at + 2));
        }
        assert_eq!(ranges.parts().collect::<Vec<_>>(), [(0, 200_000)]);
        assert_eq!(ranges.bytes(), 200_000);
    }

    proptest! {
        #[test]
        fn bytes_come_once(packets in proptest::collection::vec((0..60u64, 0..9u64), 0..40)) {
            let (mut ranges, mut came) = (Ranges::default(), [false; 70]);
            for (begin, length) in packets {
                let bytes = &mut came[begin as usize..(begin + length) as usize];
                let fresh = bytes.iter().all(|came| !came);
                prop_assert_eq!(ranges.add(begin, begin + length), fresh);
                if fresh {
                    bytes.fill(true);
                }
            }
            let inside = |at: u64| ranges.parts().any(|(begin, end)| (begin..end).contains(&at));
            for (at, came) in came.iter().enumerate() {
                prop_assert_eq!(inside(at as u64), *came);
            }
            prop_assert_eq!(ranges.bytes(), came.iter().filter(|came| **came).count() as u64);
        }
    }
}
