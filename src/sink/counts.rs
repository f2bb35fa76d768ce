//! Heap counts of an engine with one send interface or several.

use std::collections::BTreeMap;

use num_integer::gcd;

/// The send interfaces of an engine count from multiples of this on.
const INTERFACE: u64 = 1 << 40;

/// Whether an engine of that number in an array of that size counts a heap so, through any of its
/// send interfaces.
pub fn is_of(count: u64, feng_id: u64, array_size: u64) -> bool {
    let own = |count: u64| count.checked_rem(array_size) == Some(feng_id);
    own(count) || own(count % INTERFACE)
}

/// A count less the engine's number, by that of its send interface: a multiple of the array's size.
pub(super) fn rest(count: u64, feng_id: u64) -> u64 {
    (count % INTERFACE).abs_diff(feng_id)
}

/// What steps between counts of one interface have in common, if there are any; damaged counts
/// left out.
pub(super) fn step(counts: &[u64]) -> Option<u64> {
    let mut interfaces: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for &count in counts {
        interfaces.entry(count / INTERFACE).or_default().push(count);
    }
    let mut step = 0;
    for counts in interfaces.values_mut() {
        keep_usual(counts);
        let steps = counts.iter().map(|count| count.abs_diff(counts[0]));
        step = steps.fold(step, gcd);
    }
    (step > 0).then_some(step)
}

/// Sorts numbers that are a multiple of something apart, and leaves out repeated and damaged ones:
/// up to an eighth, which are not whole steps of the most frequent length from the others.
pub(super) fn keep_usual(numbers: &mut Vec<u64>) {
    numbers.sort_unstable();
    numbers.dedup();
    let steps = numbers.windows(2).map(|pair| pair[1] - pair[0]);
    let Some((step, 2..)) = most_frequent(steps) else {
        return;
    };
    if let Some((rest, times)) = most_frequent(numbers.iter().map(|number| number % step))
        && times * 8 >= numbers.len() * 7
    {
        numbers.retain(|number| number % step == rest);
    }
}

/// The most frequent number, the least of several, and how often it is there.
pub(super) fn most_frequent(numbers: impl Iterator<Item = u64>) -> Option<(u64, usize)> {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    numbers.for_each(|number| *times.entry(number).or_default() += 1);
    times.into_iter().rev().max_by_key(|&(_, times)| times)
}

/// Counts that are left out between the first and the last of each interface, of which every one
/// is given once.
pub(super) fn left_out<'a>(counts: impl IntoIterator<Item = &'a u64>, step: u64) -> u64 {
    let mut interfaces = BTreeMap::new();
    for &count in counts {
        let ends = interfaces.entry(count / INTERFACE);
        let (least, most, number) = ends.or_insert((count, count, 0));
        *least = count.min(*least);
        *most = count.max(*most);
        *number += 1;
    }
    let interfaces = interfaces.into_values();
    let left_out = interfaces.map(|(least, most, number): (u64, u64, u64)| {
        ((most - least) / step.max(1) + 1).saturating_sub(number)
    });
    left_out.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^40 is no multiple of 80.
    #[test]
    fn each_interface_counts_for_itself() {
        let interface = |i: u64| i * INTERFACE + 3;
        let counts = [0, 1, 255].map(|i| [interface(i), interface(i) + 80, interface(i) + 320]);
        let counts = counts.concat();
        assert!(counts.iter().all(|&count| is_of(count, 3, 80)));
        assert!(counts.iter().all(|&count| !is_of(count, 4, 80)));
        assert_eq!(step(&counts), Some(80));
        assert_eq!(left_out(&counts, 80), 3 * 2);
        assert_eq!((step(&counts[..1]), left_out(&counts[..1], 80)), (None, 0));
    }

    #[test]
    fn damaged_counts_are_left_out() {
        let mut counts: Vec<u64> = (0..16).map(|heap| 3 + 80 * heap).collect();
        for damaged in [0, 5, 15] {
            counts[damaged] ^= 1 << damaged;
        }
        counts.extend((16..24).map(|heap| 3 + 80 * heap));
        assert_eq!(step(&counts), Some(80));
        // More than an eighth are not damaged.
        assert_eq!(step(&[0, 80, 81, 160, 161, 240]), Some(1));
        assert_eq!(step(&[5, 5]), None);
    }

    /// The second heap's count is beyond those of the first interface.
    #[test]
    fn an_array_of_any_size_may_count() {
        assert!(is_of(5 + 3 * (INTERFACE - 1), 5, INTERFACE - 1));
        assert!(!is_of(6 + 3 * (INTERFACE - 1), 5, INTERFACE - 1));
        assert!(!is_of(6, 5, 0));
    }
}
