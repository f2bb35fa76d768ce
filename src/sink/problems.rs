//! What should be 0 of a stream and is not, in words.

use ground::counted;

use super::StreamReport;

/// Where a stream is read.
#[derive(Clone, Copy)]
pub(super) enum Medium {
    /// From a capture, which is read twice: what its heaps are like is known before they count.
    Capture,
    /// From an interface, as it comes.
    Interface,
}

impl StreamReport {
    /// Adds a problem if `n` is not 0: what one of `noun` is, and what several are.
    pub(super) fn push_problem(&mut self, n: u64, noun: &str, [one, many]: [&str; 2]) {
        if n > 0 {
            let what = if n == 1 { one } else { many };
            self.problems.push(format!("{} {what}", counted(n, noun)));
        }
    }

    /// Adds a problem for each count that should be 0.
    pub(super) fn push_count_problems(&mut self, medium: Medium) {
        let by_medium = |capture, interface| match medium {
            Medium::Capture => capture,
            Medium::Interface => interface,
        };
        self.push_problem(
            self.incomplete_heaps,
            "heap",
            ["lacks packets", "lack packets"],
        );
        self.push_problem(
            self.missing_heaps,
            "heap",
            by_medium(
                [
                    "of a captured batch is missing",
                    "of captured batches are missing",
                ],
                [
                    "of a received batch is missing",
                    "of received batches are missing",
                ],
            ),
        );
        self.push_problem(
            self.duplicate_packets,
            "packet",
            by_medium(
                ["came twice", "came twice"],
                [
                    "came twice, or does not fit its heap",
                    "came twice, or do not fit their heap",
                ],
            ),
        );
        self.push_problem(
            self.duplicate_heap_packets,
            "packet",
            [
                "belongs to a second heap of the same timestamp and substream",
                "belong to second heaps of the same timestamp and substream",
            ],
        );
        self.push_problem(
            self.wrong_size_packets,
            "packet",
            by_medium(
                [
                    "belongs to a heap of the wrong size",
                    "belong to heaps of the wrong size",
                ],
                [
                    "belongs to a heap of an unknown or wrong size",
                    "belong to heaps of an unknown or wrong size",
                ],
            ),
        );
        self.push_problem(
            self.bad_timestamp_packets,
            "packet",
            by_medium(
                [
                    "has a timestamp that is no multiple of the batch",
                    "have timestamps that are no multiples of the batch",
                ],
                [
                    "has a timestamp that is no multiple of the batch, or far ahead of all others",
                    "have timestamps that are no multiples of the batch, or far ahead of all others",
                ],
            ),
        );
        self.push_problem(
            self.misplaced_packets,
            "packet",
            by_medium(
                [
                    "has another F-engine number or first channel than its destination",
                    "have another F-engine number or first channel than their destination",
                ],
                [
                    "has an F-engine number, first channel or heap count that is not its destination's",
                    "have an F-engine number, first channel or heap count that is not their destination's",
                ],
            ),
        );
        self.push_problem(
            self.packets_after_stop,
            "packet",
            ["follows the stop heap", "follow the stop heap"],
        );
        // Counted on interfaces alone.
        self.push_problem(
            self.late_packets,
            "packet",
            [
                "came after four later batches",
                "came after four later batches",
            ],
        );
        // Counted in captures alone.
        self.push_problem(
            self.repeated_heap_counts,
            "heap count",
            ["is used twice", "are used twice"],
        );
        self.push_problem(
            self.missing_heap_counts,
            "heap count",
            ["is left out", "are left out"],
        );
    }
}
