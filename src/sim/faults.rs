//! Faults as decorators over a stream of heaps.
//!
//! Each decorator takes heaps from the one before it and leaves alone what an earlier one has
//! already touched, so a heap suffers at most one fault and the [`Ledger`] tells exactly what a
//! receiver must find.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spead::digitiser::PREAMBLE_LEN;

/// A heap on its way from the simulator to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimHeap {
    /// Heaps of this polarisation before it.
    pub index: u64,
    /// Polarisation.
    pub pol: usize,
    /// Damage to its packet.
    pub damage: Option<Damage>,
    touched: bool,
}

impl SimHeap {
    /// A heap that nothing has happened to.
    pub fn new(index: u64, pol: usize) -> Self {
        Self {
            index,
            pol,
            damage: None,
            touched: false,
        }
    }
}

/// Ways to damage a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// First byte.
    Magic,
    /// Second byte.
    Version,
    /// More item pointers than fit.
    Items,
    /// Half of the packet is missing, or as much of it as is payload.
    Cut,
    /// A timestamp between two heaps.
    Timestamp,
}

impl Damage {
    const ALL: [Self; 5] = [
        Self::Magic,
        Self::Version,
        Self::Items,
        Self::Cut,
        Self::Timestamp,
    ];

    /// Those that heaps of so many samples can have: with one sample there is nothing between them.
    fn of_heaps(heap_samples: usize) -> &'static [Self] {
        let all = &Self::ALL;
        // The timestamp is the last.
        let kinds = all.len() - usize::from(heap_samples <= 1);
        &all[..kinds]
    }

    /// Name of the cause for which a receiver refuses the packet.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Magic => "bad-magic",
            Self::Version => "bad-version",
            Self::Items => "items-past-end",
            Self::Cut => "payload-past-end",
            Self::Timestamp => "bad-timestamp",
        }
    }

    /// Damages a digitiser packet with 72 bytes before its payload.
    pub fn apply(self, packet: &mut Vec<u8>) {
        match self {
            Self::Magic => packet[0] ^= 0x80,
            Self::Version => packet[1] = 3,
            Self::Items => packet[6] = 0xff,
            Self::Cut => packet.truncate(PREAMBLE_LEN.max(packet.len() / 2)),
            Self::Timestamp => packet[47] ^= 1,
        }
    }
}

/// One fault that was injected.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Fault {
    /// `drop`, `duplicate`, `reorder`, `late`, `corrupt` or `gap`.
    pub kind: &'static str,
    /// Index of the heap.
    pub heap: u64,
    /// Polarisation.
    pub pol: usize,
    /// For `corrupt`, the cause for which a receiver refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
}

/// Everything that was injected, in order.
pub type Ledger = Rc<RefCell<Vec<Fault>>>;

/// Chance of each fault, per heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct FaultPlan {
    /// Never sent.
    pub drop: f64,
    /// Sent twice.
    pub duplicate: f64,
    /// Sent after the next heap of its polarisation.
    pub reorder: f64,
    /// Sent `late_heaps` heaps of its polarisation later, or at the end.
    pub late: f64,
    /// How late.
    pub late_heaps: u64,
    /// Damaged.
    pub corrupt: f64,
    /// Begins a stretch in which no heap of any polarisation is sent.
    pub gap: f64,
    /// Length of that stretch.
    pub gap_heaps: u64,
}

/// What is wrong with a fault plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultPlanError {
    /// Not `kind=…`.
    #[error(
        "faults: {0:?} is not one of drop=P, duplicate=P, reorder=P, late=P[:HEAPS], corrupt=P, gap=P:HEAPS"
    )]
    Unknown(String),
    /// Not a probability.
    #[error("faults: {0:?}: {1:?} is not a probability from 0 to 1")]
    Probability(String, String),
    /// Not a number of heaps, or one too many.
    #[error(
        "faults: {0:?}: needs a positive number of heaps after the colon, as in gap=0.001:100; only gap and late take one"
    )]
    Heaps(String),
    /// A kind that has a probability already.
    #[error("faults: {0:?}: this kind is given twice; leave one of them out")]
    Twice(String),
    /// No heap would be left to send.
    #[error(
        "--faults {0}: its probability must be below 1 with --interface, or no heap is ever sent: lower it, or write a file with --output"
    )]
    Certain(String),
    /// More heaps than a simulator that sends in real time looks ahead.
    #[error(
        "--faults {0}: must be {most} heaps of a polarisation at most with --interface: give fewer, or write a file with --output",
        most = LIVE_HEAPS
    )]
    TooLong(String),
    /// Hardly any heap would be left to send.
    #[error(
        "--faults {0}: together must leave one heap in {most} with --interface: lower a probability, or write a file with --output",
        most = LIVE_HEAPS
    )]
    TooMany(String),
}

/// Heaps that a late heap is held back where the plan does not say.
const LATE_HEAPS: u64 = 16384;
/// Heaps of a polarisation that may come between two that are sent, where they are sent in real
/// time: the sender goes through them at once, and notes each.
const LIVE_HEAPS: u64 = 1 << 20;

impl std::str::FromStr for FaultPlan {
    type Err = FaultPlanError;

    fn from_str(text: &str) -> Result<Self, FaultPlanError> {
        let mut plan = Self {
            late_heaps: LATE_HEAPS,
            ..Self::default()
        };
        let mut kinds = Vec::new();
        for entry in text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
        {
            let unknown = || FaultPlanError::Unknown(entry.to_owned());
            let (kind, value) = entry.split_once('=').ok_or_else(unknown)?;
            if kinds.contains(&kind) {
                return Err(FaultPlanError::Twice(entry.to_owned()));
            }
            kinds.push(kind);
            let (chance, heaps) = match value.split_once(':') {
                Some((chance, heaps)) => (chance, Some(heaps)),
                None => (value, None),
            };
            let probability: f64 = chance
                .parse()
                .ok()
                .filter(|p| (0.0..=1.0).contains(p))
                .ok_or_else(|| FaultPlanError::Probability(entry.to_owned(), chance.to_owned()))?;
            let bad_heaps = || FaultPlanError::Heaps(entry.to_owned());
            let heaps = heaps
                .map(|text| {
                    text.parse()
                        .ok()
                        .filter(|heaps| *heaps > 0)
                        .ok_or_else(bad_heaps)
                })
                .transpose()?;
            let target = match (kind, heaps) {
                ("drop", None) => &mut plan.drop,
                ("duplicate", None) => &mut plan.duplicate,
                ("reorder", None) => &mut plan.reorder,
                ("corrupt", None) => &mut plan.corrupt,
                ("late", heaps) => {
                    plan.late_heaps = heaps.unwrap_or(LATE_HEAPS);
                    &mut plan.late
                }
                ("gap", Some(heaps)) => {
                    plan.gap_heaps = heaps;
                    &mut plan.gap
                }
                ("drop" | "duplicate" | "reorder" | "corrupt" | "gap", _) => {
                    return Err(bad_heaps());
                }
                _ => return Err(unknown()),
            };
            *target = probability;
        }
        Ok(plan)
    }
}

impl FaultPlan {
    /// Refuses what would keep a simulator that sends in real time from ever finding its next heap.
    pub fn check_live(&self) -> Result<(), FaultPlanError> {
        let one = |kind: &str, chance: f64| format!("{kind}={chance}");
        let many = |kind: &str, chance: f64, heaps: u64| format!("{kind}={chance}:{heaps}");
        let faults = [
            (self.drop, 0, one("drop", self.drop)),
            (
                self.late,
                self.late_heaps,
                many("late", self.late, self.late_heaps),
            ),
            (
                self.gap,
                self.gap_heaps,
                many("gap", self.gap, self.gap_heaps),
            ),
        ];
        let mut wanted = Vec::new();
        for (chance, heaps, fault) in faults {
            if chance >= 1.0 {
                return Err(FaultPlanError::Certain(fault));
            }
            if chance > 0.0 && heaps > LIVE_HEAPS {
                return Err(FaultPlanError::TooLong(fault));
            }
            if chance > 0.0 {
                wanted.push(fault);
            }
        }
        // Gaps follow one another, each with the same chance.
        let in_gaps = self.gap * self.gap_heaps as f64 / (1.0 - self.gap);
        let kept = (1.0 - self.drop) * (1.0 - self.late) / (1.0 + in_gaps);
        if kept * (LIVE_HEAPS as f64) < 1.0 {
            return Err(FaultPlanError::TooMany(wanted.join(",")));
        }
        Ok(())
    }

    /// Most heaps of its polarisation by which a heap is held back.
    pub fn longest_hold(&self) -> u64 {
        match (self.late > 0.0, self.reorder > 0.0) {
            (true, _) => self.late_heaps,
            (false, reorder) => u64::from(reorder),
        }
    }

    /// Decorates a stream of heaps of `heap_samples` samples: by turns all polarisations of one
    /// time, then those of the next. Equal seeds and plans give equal faults.
    pub fn decorate(
        self,
        heaps: impl Iterator<Item = SimHeap> + 'static,
        seed: u64,
        heap_samples: usize,
        ledger: &Ledger,
    ) -> Box<dyn Iterator<Item = SimHeap>> {
        let coin = |stream: u64, probability: f64| {
            let mut generator = ChaCha8Rng::seed_from_u64(seed);
            generator.set_stream(stream);
            Coin {
                generator,
                probability,
                ledger: Rc::clone(ledger),
            }
        };
        let heaps = Gap {
            heaps,
            coin: coin(0, self.gap),
            length: self.gap_heaps,
            decided: None,
            until: 0,
        };
        let mut dropped = coin(1, self.drop);
        let heaps = heaps.filter(move |heap| !dropped.toss("drop", heap));
        let mut corrupted = coin(2, self.corrupt);
        let heaps = heaps.map(move |heap| corrupted.corrupt(heap, heap_samples));
        let heaps = Held::new(heaps, coin(3, self.late), "late", self.late_heaps);
        let heaps = Held::new(heaps, coin(4, self.reorder), "reorder", 1);
        let mut duplicated = coin(5, self.duplicate);
        Box::new(heaps.flat_map(move |heap| {
            let copies = if duplicated.toss("duplicate", &heap) {
                2
            } else {
                1
            };
            std::iter::repeat_n(heap, copies)
        }))
    }
}

/// Chance, and the book in which its hits are written.
struct Coin {
    generator: ChaCha8Rng,
    probability: f64,
    ledger: Ledger,
}

impl Coin {
    /// Decides about a heap that nothing has happened to.
    fn toss(&mut self, kind: &'static str, heap: &SimHeap) -> bool {
        let hit = !heap.touched && self.generator.random_bool(self.probability);
        if hit {
            self.note(kind, heap, None);
        }
        hit
    }

    fn note(&self, kind: &'static str, heap: &SimHeap, cause: Option<&'static str>) {
        self.ledger.borrow_mut().push(Fault {
            kind,
            heap: heap.index,
            pol: heap.pol,
            cause,
        });
    }

    fn corrupt(&mut self, mut heap: SimHeap, heap_samples: usize) -> SimHeap {
        if !heap.touched && self.generator.random_bool(self.probability) {
            let kinds = Damage::of_heaps(heap_samples);
            let damage = kinds[self.generator.random_range(0..kinds.len())];
            self.note("corrupt", &heap, Some(damage.cause()));
            heap.damage = Some(damage);
            heap.touched = true;
        }
        heap
    }
}

/// Sends nothing for a while.
struct Gap<I> {
    heaps: I,
    coin: Coin,
    length: u64,
    /// Time that the coin was last tossed for: once for all polarisations.
    decided: Option<u64>,
    until: u64,
}

impl<I: Iterator<Item = SimHeap>> Iterator for Gap<I> {
    type Item = SimHeap;

    fn next(&mut self) -> Option<SimHeap> {
        loop {
            let heap = self.heaps.next()?;
            if heap.index >= self.until && self.decided != Some(heap.index) {
                self.decided = Some(heap.index);
                if self.coin.generator.random_bool(self.coin.probability) {
                    self.until = heap.index.saturating_add(self.length);
                }
            }
            if heap.index >= self.until {
                return Some(heap);
            }
            self.coin.note("gap", &heap, None);
        }
    }
}

/// Holds heaps back until their polarisation has gone on.
struct Held<I> {
    heaps: I,
    coin: Coin,
    kind: &'static str,
    distance: u64,
    /// Of each polarisation its held heaps and the index that releases them, earliest first.
    held: Vec<VecDeque<(u64, SimHeap)>>,
    ready: VecDeque<SimHeap>,
    ended: bool,
}

impl<I> Held<I> {
    fn new(heaps: I, coin: Coin, kind: &'static str, distance: u64) -> Self {
        Self {
            heaps,
            coin,
            kind,
            distance,
            held: Vec::new(),
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// A heap that is swapped must not be swapped with one that is swapped itself.
    fn may_hold(&self, pol: usize) -> bool {
        self.distance > 1 || self.held.get(pol).is_none_or(VecDeque::is_empty)
    }

    /// The held heaps of a polarisation.
    fn of(&mut self, pol: usize) -> &mut VecDeque<(u64, SimHeap)> {
        if self.held.len() <= pol {
            self.held.resize_with(pol + 1, VecDeque::new);
        }
        &mut self.held[pol]
    }

    /// The held heap that is released first.
    fn first(&mut self) -> Option<SimHeap> {
        let held = self.held.iter_mut().filter(|held| !held.is_empty());
        let first = held.min_by_key(|held| held.front().map(|(release, _)| *release));
        first?.pop_front().map(|(_, heap)| heap)
    }
}

impl<I: Iterator<Item = SimHeap>> Iterator for Held<I> {
    type Item = SimHeap;

    fn next(&mut self) -> Option<SimHeap> {
        loop {
            if let Some(heap) = self.ready.pop_front() {
                return Some(heap);
            }
            if self.ended {
                return self.first();
            }
            let Some(mut heap) = self.heaps.next() else {
                self.ended = true;
                continue;
            };
            if self.may_hold(heap.pol) && self.coin.toss(self.kind, &heap) {
                heap.touched = true;
                let release = heap.index.saturating_add(self.distance);
                self.of(heap.pol).push_back((release, heap));
                continue;
            }
            self.ready.push_back(heap);
            if let Some(held) = self.held.get_mut(heap.pol) {
                let due = held.partition_point(|(release, _)| *release <= heap.index);
                self.ready.extend(held.drain(..due).map(|(_, heap)| heap));
            }
        }
    }
}

#[cfg(test)]
mod tests;
