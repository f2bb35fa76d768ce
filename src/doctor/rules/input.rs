//! Digitiser heaps that come to where they are expected, of all flows together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ground::Timestamp;
use num_integer::gcd;

use super::silence::Total;
use super::time::wrapped;
use crate::config::RecvConfig;
use crate::doctor::evidence::{Flow, LATEST, PolHeaps, TIMESTAMPS};

/// Heaps that tell a rate, or a step of timestamps.
pub const ENOUGH: usize = 8;
/// Share of heaps beyond which something is no accident.
pub const FEW: f64 = 0.005;
/// Seconds by which heaps may be away from the line of most: what holds packets up takes less.
const NEAR: f64 = 1.0;
/// Share by which the line of heaps may be off that fill a small part of the look alone.
const DRIFT: f64 = 0.05;

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
    /// UNIX time of arrival by timestamp, without strays. Timestamps go on where those on the wire
    /// wrap, and are a range later, so that none is before 0.
    pub timestamps: BTreeMap<u64, f64>,
    /// Timestamps on the wire that are far from those of most heaps.
    pub far: Vec<u64>,
    /// Timestamps on the wire that are no multiples of a heap's samples. If they are few, they are
    /// strays, and not among `timestamps`.
    pub unaligned: Vec<u64>,
    /// Whether those are more than strays.
    pub is_unaligned: bool,
    /// Heaps whose timestamp had come before, in their flow or in another.
    pub repeats: u64,
    /// Whether more came than timestamps are kept of.
    pub cut: bool,
    /// Timestamp on the wire and arrival of the first and of the last.
    pub span: Option<[(u64, f64); 2]>,
    /// Timestamp and arrival of the latest of each flow.
    latest: Vec<(u64, f64)>,
}

impl Pol {
    fn add(&mut self, flow: &PolHeaps) {
        self.count += flow.count;
        self.repeats += flow.repeats;
        self.cut |= flow.timestamps.len() >= TIMESTAMPS;
        self.latest.extend(&flow.latest);
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

    /// Unwraps timestamps, and sets strays apart, when all flows were added.
    fn settle(&mut self, recv: &RecvConfig) {
        let mut all: Vec<_> = std::mem::take(&mut self.timestamps).into_iter().collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let Some(&(first, _)) = all.first() else {
            return;
        };
        let drift = if self.cut { DRIFT } else { 0.0 };
        let line = Line::of(&all, drift);
        let near = line.as_ref().map_or(first, |line| line.timestamp);
        let near = Timestamp(near + Timestamp::WIRE_RANGE);
        let unwrapped = |(timestamp, unix)| (Timestamp::unwrap(timestamp, near).0, unix);
        let is_far = |heap: &(u64, f64)| line.as_ref().is_some_and(|line| !line.is_near(*heap));
        let (far, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_far);
        self.far = far.into_iter().map(|(timestamp, _)| timestamp).collect();
        self.timestamps = kept.into_iter().map(unwrapped).collect();
        self.latest = self.latest.drain(..).map(unwrapped).collect();

        let samples = recv.packet_samples as i64;
        // Those before the wrap are negative.
        let is_aligned = |timestamp: &u64| {
            let since = *timestamp as i64 - Timestamp::WIRE_RANGE as i64;
            recv.mask_timestamp || since.rem_euclid(samples) == 0
        };
        let unaligned = self.timestamps.keys().filter(|t| !is_aligned(t));
        let unaligned: Vec<_> = unaligned.map(|t| t % Timestamp::WIRE_RANGE).collect();
        let (count, all) = (unaligned.len(), self.timestamps.len());
        let enough = count >= 3 || 2 * count > all;
        self.is_unaligned = enough && count as f64 > FEW * all as f64;
        self.unaligned = unaligned;
        if !self.is_unaligned {
            self.timestamps.retain(|timestamp, _| is_aligned(timestamp));
        }
    }

    /// Two heaps, early and late in the look, by which time is told: of either half those that were
    /// on their way for the shortest time, by a clock of `rate` samples a second. Whatever holds
    /// packets up makes none come sooner.
    pub fn marks(&self, rate: f64) -> Option<[(u64, f64); 2]> {
        if self.cut {
            return self.ends();
        }
        let [(_, begun), (_, ended)] = self.span?;
        let middle = (begun + ended) / 2.0;
        let first = self.timestamps.keys().next()?;
        let late = |(timestamp, unix): &(u64, f64)| unix - (timestamp - first) as f64 / rate;
        let half = |late_half: bool| {
            let half = self
                .timestamps
                .iter()
                .map(|(timestamp, unix)| (*timestamp, *unix));
            let mut half: Vec<_> = half
                .filter(|(_, unix)| (*unix > middle) == late_half)
                .collect();
            half.sort_by(|a, b| late(a).total_cmp(&late(b)));
            half.get(strays(half.len())).copied()
        };
        Some([half(false)?, half(true)?])
    }

    /// The marks of those that come so fast that no more than the ends are known: the first, and
    /// the middle one of the latest.
    fn ends(&self) -> Option<[(u64, f64); 2]> {
        let first = self.timestamps.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
        let mut latest = self.latest.clone();
        latest.sort_by(|a, b| b.1.total_cmp(&a.1));
        latest.truncate(LATEST);
        latest.sort_by_key(|(timestamp, _)| *timestamp);
        let last = latest.get(latest.len() / 2)?;
        Some([(*first.0, *first.1), *last])
    }

    /// Timestamps from the first to the last, without those at either end that may be strays.
    pub fn inner(&self) -> Vec<u64> {
        let all: Vec<_> = self.timestamps.keys().copied().collect();
        let strays = strays(all.len());
        all[strays..all.len() - strays].to_vec()
    }

    /// Samples from heap to heap: the largest that the usual distances agree with. Those that are
    /// rare, beside the most frequent, are of lost heaps and of strays.
    pub fn step(&self) -> Option<u64> {
        let timestamps: Vec<_> = self.timestamps.keys().collect();
        let mut distances = BTreeMap::<u64, usize>::new();
        for pair in timestamps.windows(2) {
            *distances.entry(pair[1] - pair[0]).or_default() += 1;
        }
        let most = distances.values().max()?;
        let usual = distances.iter().filter(|(_, count)| 4 * **count >= *most);
        let step = usual.fold(0, |step, (distance, _)| gcd(step, *distance));
        (timestamps.len() >= ENOUGH && step > 0).then_some(step)
    }
}

/// How many of so many heaps may be strays that are near others.
fn strays(heaps: usize) -> usize {
    (heaps / 64).min(3)
}

/// The line of timestamps over times of arrival that most heaps are near.
struct Line {
    /// A timestamp on the line, and when it is due.
    timestamp: u64,
    unix: f64,
    /// Samples a second, and the share by which they may be off.
    rate: f64,
    drift: f64,
}

impl Line {
    /// The line of these heaps, in the order in which they came, if most are near one.
    fn of(all: &[(u64, f64)], drift: f64) -> Option<Self> {
        if all.len() < ENOUGH {
            return None;
        }
        // Where a digitiser begins anew, long distances straddle that; else they are more exact.
        let lines = [2, 8, 32].map(|part| Self::over(all, (all.len() / part).max(1), drift));
        let near = |line: &Self| all.iter().filter(|heap| line.is_near(**heap)).count();
        let lines = lines.into_iter().flatten().map(|line| (near(&line), line));
        let best = lines.reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.and_then(|(near, line)| (2 * near >= all.len()).then_some(line))
    }

    /// The line by slopes over so many heaps: by their median, which strays do not move.
    fn over(all: &[(u64, f64)], distance: usize, drift: f64) -> Option<Self> {
        let pairs = all.iter().zip(&all[distance..]);
        let pairs = pairs.filter(|(from, to)| to.1 > from.1);
        let slope = |(from, to): (&(u64, f64), &(u64, f64))| {
            let samples = wrapped(to.0, from.0) as f64;
            (samples / (to.1 - from.1), *from)
        };
        let mut slopes: Vec<_> = pairs.map(slope).collect();
        slopes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let &(rate, (timestamp, unix)) = slopes.get(slopes.len() / 2)?;
        if rate <= 0.0 {
            return None;
        }
        let mut line = Self {
            timestamp,
            unix,
            rate,
            drift,
        };
        let mut ahead: Vec<_> = all.iter().map(|heap| line.ahead(*heap)).collect();
        ahead.sort_by(f64::total_cmp);
        line.unix -= ahead[ahead.len() / 2];
        Some(line)
    }

    /// Seconds by which a heap comes too soon.
    fn ahead(&self, (timestamp, unix): (u64, f64)) -> f64 {
        wrapped(timestamp, self.timestamp) as f64 / self.rate - (unix - self.unix)
    }

    fn is_near(&self, heap: (u64, f64)) -> bool {
        let since = (heap.1 - self.unix).abs();
        self.ahead(heap).abs() <= NEAR + self.drift * since
    }
}

impl<'a> Input<'a> {
    pub fn of(ours: &'a [&'a Flow], recv: &RecvConfig) -> Self {
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
        for pol in &mut pols {
            pol.settle(recv);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The heaps behind the jump are the most.
    #[test]
    fn the_line_is_that_of_most_heaps_where_a_digitiser_begins_anew() {
        const STEP: u64 = 10_000;
        for from in [0, 1 << 40] {
            let heap = |at: u64| {
                let timestamp = if at < 40 {
                    (1000 + at) * STEP
                } else {
                    from + at * STEP
                };
                (timestamp, at as f64 * 0.1)
            };
            let all: Vec<_> = (0..100).map(heap).collect();
            let line = Line::of(&all, 0.0).unwrap();
            assert!((line.rate / 1e5 - 1.0).abs() < 1e-9, "{}", line.rate);
            let near = all.iter().filter(|heap| line.is_near(**heap)).count();
            assert_eq!(near, 60);
        }
    }
}
