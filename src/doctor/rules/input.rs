//! Digitiser heaps that come to where they are expected, of all flows together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::silence::Total;
use crate::doctor::evidence::{Flow, PolHeaps, TIMESTAMPS};

/// Heaps that tell a rate, or a step of timestamps.
pub const ENOUGH: usize = 8;

/// Heaps that come to where they are expected.
pub struct Input<'a> {
    pub ours: &'a [&'a Flow],
    pub pols: [Pol; 2],
    pub sizes: BTreeMap<usize, u64>,
    pub total: Total,
}

/// Those of one polarisation, of all flows.
#[derive(Default)]
pub struct Pol {
    pub count: u64,
    /// UNIX time of arrival by timestamp.
    pub timestamps: BTreeMap<u64, f64>,
    /// Heaps whose timestamp had come before, in their flow or in another.
    pub repeats: u64,
    /// Whether more came than timestamps are kept of.
    pub cut: bool,
    /// Timestamp and arrival of the first and of the last.
    pub span: Option<[(u64, f64); 2]>,
}

impl Pol {
    fn add(&mut self, flow: &PolHeaps) {
        self.count += flow.count;
        self.repeats += flow.repeats;
        self.cut |= flow.timestamps.len() >= TIMESTAMPS;
        for (&timestamp, &unix) in &flow.timestamps {
            match self.timestamps.entry(timestamp) {
                Entry::Vacant(entry) => _ = entry.insert(unix),
                Entry::Occupied(_) => self.repeats += 1,
            }
        }
        let Some(new) = flow.span else { return };
        let span = self.span.get_or_insert(new);
        if new[0].1 < span[0].1 {
            span[0] = new[0];
        }
        if new[1].1 > span[1].1 {
            span[1] = new[1];
        }
    }

    /// Two heaps, early and late in the look, by which time is told: of either half those that were
    /// on their way for the shortest time, by a clock of `rate` samples a second. Whatever holds
    /// packets up makes none come sooner.
    pub fn marks(&self, rate: f64) -> Option<[(u64, f64); 2]> {
        // Of those that come so fast, the ends alone are known.
        if self.cut {
            return self.span;
        }
        let [(_, begun), (_, ended)] = self.span?;
        let middle = (begun + ended) / 2.0;
        let first = self.timestamps.keys().next()?;
        let late = |(timestamp, unix): &(&u64, &f64)| *unix - (*timestamp - first) as f64 / rate;
        let half = |late_half: bool| {
            let half = self.timestamps.iter();
            let half = half.filter(|(_, unix)| (**unix > middle) == late_half);
            let mark = half.min_by(|a, b| late(a).total_cmp(&late(b)));
            mark.map(|(timestamp, unix)| (*timestamp, *unix))
        };
        Some([half(false)?, half(true)?])
    }

    /// Samples from heap to heap: the largest that all timestamps agree with.
    pub fn step(&self) -> Option<u64> {
        let mut timestamps = self.timestamps.keys();
        let first = timestamps.next()?;
        let step = timestamps.fold(0, |step, timestamp| gcd(step, timestamp - first));
        (self.timestamps.len() >= ENOUGH && step > 0).then_some(step)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'a> Input<'a> {
    pub fn of(ours: &'a [&'a Flow]) -> Self {
        let mut pols: [Pol; 2] = Default::default();
        let mut sizes = BTreeMap::new();
        for flow in ours {
            for (pol, heaps) in pols.iter_mut().zip(&flow.pols) {
                pol.add(heaps);
                for (size, count) in &heaps.sizes {
                    *sizes.entry(*size).or_default() += count;
                }
            }
        }
        Self {
            ours,
            pols,
            sizes,
            total: Total::of(ours),
        }
    }

    /// The polarisation that more heaps come of.
    pub fn most(&self) -> &Pol {
        &self.pols[usize::from(self.pols[1].count > self.pols[0].count)]
    }
}
