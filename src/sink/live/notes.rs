//! What is wrong with a stream that came live, in words.

use ground::counted;

use crate::sink::StreamReport;

/// Adds a problem for each count that should be 0.
pub(super) fn push_problems(report: &mut StreamReport) {
    let mut problem = |n: u64, noun: &str, [one, many]: [&str; 2]| {
        if n > 0 {
            let what = if n == 1 { one } else { many };
            report.problems.push(format!("{} {what}", counted(n, noun)));
        }
    };
    problem(
        report.incomplete_heaps,
        "heap",
        ["lacks packets", "lack packets"],
    );
    problem(
        report.missing_heaps,
        "heap",
        [
            "of a received batch is missing",
            "of received batches are missing",
        ],
    );
    problem(
        report.duplicate_packets,
        "packet",
        [
            "came twice, or does not fit its heap",
            "came twice, or do not fit their heap",
        ],
    );
    problem(
        report.duplicate_heap_packets,
        "packet",
        [
            "belongs to a second heap of the same timestamp and substream",
            "belong to second heaps of the same timestamp and substream",
        ],
    );
    problem(
        report.wrong_size_packets,
        "packet",
        [
            "belongs to a heap of an unknown or wrong size",
            "belong to heaps of an unknown or wrong size",
        ],
    );
    problem(
        report.bad_timestamp_packets,
        "packet",
        [
            "has a timestamp that is no multiple of the batch, or far ahead of all others",
            "have timestamps that are no multiples of the batch, or far ahead of all others",
        ],
    );
    problem(
        report.misplaced_packets,
        "packet",
        [
            "has an F-engine number, first channel or heap count that is not its destination's",
            "have an F-engine number, first channel or heap count that is not their destination's",
        ],
    );
    problem(
        report.packets_after_stop,
        "packet",
        ["follows the stop heap", "follow the stop heap"],
    );
    problem(
        report.late_packets,
        "packet",
        [
            "came after four later batches",
            "came after four later batches",
        ],
    );
}

/// Adds what is worth knowing: how often the engine was started again and timestamps went back, and
/// substreams without descriptors.
pub(super) fn push_notes(report: &mut StreamReport, restarts: u64, went_back: u64, without: u64) {
    if restarts > 0 {
        report.notes.push(format!(
            "the engine was started again {}: descriptors came after stop heaps",
            counted(restarts, "time")
        ));
    }
    if went_back > 0 {
        report.notes.push(format!(
            "timestamps went back {}: the first and the last are of what came since",
            counted(went_back, "time")
        ));
    }
    if without > 0 {
        let substreams = counted(without, "substream");
        let note = format!("{substreams} had no descriptors meanwhile");
        report.notes.push(note);
    }
    // Of a stream whose shape is known, each heap has channels.
    if report.wrong_size_packets > 0 && report.channels_per_substream == 0 {
        report.notes.push(
            "the size of its heaps is learnt from descriptors, and none came, as from an engine that was up before: \
             give the stream by --wideband or --narrowband as karoo fgpu has it, or start the sink first"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_no_known_shape_is_told_the_way_out() {
        let told = |wrong_size_packets, channels_per_substream| {
            let mut report = StreamReport {
                wrong_size_packets,
                channels_per_substream,
                ..StreamReport::default()
            };
            push_notes(&mut report, 0, 0, 1);
            report.notes
        };
        let without = "1 substream had no descriptors meanwhile";
        assert_eq!(told(0, 0), [without]);
        assert_eq!(told(2005, 4), [without]);
        let notes = told(2005, 0);
        assert_eq!((notes.len(), &*notes[0]), (2, without));
        assert!(notes[1].contains("--wideband"), "{notes:?}");
    }
}
