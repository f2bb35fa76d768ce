//! What becomes of an engine's packets, each of which is accounted for once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// What happened to the packets of one engine.
///
/// Of a whole run, offered = ring_full + no_buffer + placed + Σ drops. Of a part of it this holds
/// but for the packets that are on their way at its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BenchCounts {
    /// Packets that were due.
    pub offered: u64,
    /// Packets lost because the rx queue was full.
    pub ring_full: u64,
    /// Packets lost because all buffers of the queue were in use.
    pub no_buffer: u64,
    /// Heaps placed in chunks.
    pub placed: u64,
    /// Packets dropped by the rx lcores, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Output heaps sent.
    pub heaps_sent: u64,
    /// Output heaps not sent because of missing input.
    pub heaps_skipped: u64,
    /// Output heaps that came whole.
    pub heaps_received: u64,
    /// Batches between the first and the last that did not come, summed over tx queues.
    pub batches_missing: u64,
    /// Output packets that were not what should have come.
    pub wrong_packets: u64,
}

impl BenchCounts {
    /// Input packets lost.
    pub fn lost(&self) -> u64 {
        self.ring_full + self.no_buffer + self.drops.values().sum::<u64>()
    }

    /// Whether nothing was lost, in or out.
    pub fn lossless(&self) -> bool {
        self.lost() == 0 && self.batches_missing == 0 && self.wrong_packets == 0
    }

    /// Whether every packet of a whole run is accounted for once.
    pub fn adds_up(&self) -> bool {
        self.offered == self.placed + self.lost() && self.heaps_sent == self.heaps_received
    }

    /// The difference to an earlier state.
    pub fn since(&self, before: &Self) -> Self {
        let drops = self.drops.iter().map(|(cause, count)| {
            let before = before.drops.get(cause).copied().unwrap_or(0);
            (cause.clone(), count - before)
        });
        Self {
            offered: self.offered - before.offered,
            ring_full: self.ring_full - before.ring_full,
            no_buffer: self.no_buffer - before.no_buffer,
            placed: self.placed - before.placed,
            drops: drops.filter(|(_, count)| *count > 0).collect(),
            heaps_sent: self.heaps_sent - before.heaps_sent,
            heaps_skipped: self.heaps_skipped - before.heaps_skipped,
            heaps_received: self.heaps_received - before.heaps_received,
            batches_missing: self.batches_missing - before.batches_missing,
            wrong_packets: self.wrong_packets - before.wrong_packets,
        }
    }

    /// Those of two parts of a run together.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (cause, count) in &other.drops {
            *self.drops.entry(cause.clone()).or_default() += count;
        }
        Self {
            offered: self.offered + other.offered,
            ring_full: self.ring_full + other.ring_full,
            no_buffer: self.no_buffer + other.no_buffer,
            placed: self.placed + other.placed,
            drops: self.drops,
            heaps_sent: self.heaps_sent + other.heaps_sent,
            heaps_skipped: self.heaps_skipped + other.heaps_skipped,
            heaps_received: self.heaps_received + other.heaps_received,
            batches_missing: self.batches_missing + other.batches_missing,
            wrong_packets: self.wrong_packets + other.wrong_packets,
        }
    }

    /// In words.
    pub(super) fn losses(&self) -> String {
        let mut causes = vec![
            ("ring full".to_owned(), self.ring_full),
            ("no buffer".to_owned(), self.no_buffer),
        ];
        causes.extend(
            self.drops
                .iter()
                .map(|(cause, &count)| (cause.clone(), count)),
        );
        causes.push(("output heaps skipped".to_owned(), self.heaps_skipped));
        causes.push(("batches missing".to_owned(), self.batches_missing));
        causes.push(("wrong packets".to_owned(), self.wrong_packets));
        causes.retain(|(_, count)| *count > 0);
        let causes: Vec<_> = causes
            .iter()
            .map(|(cause, count)| format!("{count} {cause}"))
            .collect();
        if causes.is_empty() {
            "nothing lost".to_owned()
        } else {
            format!("lost: {}", causes.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_run_add_up_to_it() {
        let drops = |old, full| {
            BTreeMap::from([
                ("too-old".to_owned(), old),
                ("no-free-chunk".to_owned(), full),
            ])
        };
        let before = BenchCounts {
            offered: 10,
            placed: 7,
            drops: drops(1, 2),
            ..BenchCounts::default()
        };
        let after = BenchCounts {
            offered: 30,
            placed: 22,
            ring_full: 3,
            drops: drops(1, 4),
            ..BenchCounts::default()
        };
        let part = after.since(&before);
        assert_eq!((part.offered, part.placed, part.lost()), (20, 15, 5));
        assert_eq!(part.drops.get("too-old"), None);
        assert!(before.adds_up() && after.adds_up() && part.adds_up());
        assert!(!part.lossless() && after.since(&after).lossless());
        assert!(
            !BenchCounts {
                placed: 6,
                ..before
            }
            .adds_up()
        );
    }
}
