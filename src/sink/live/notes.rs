//! What is worth knowing of a stream that came live, in words.

use ground::counted;

use crate::sink::StreamReport;

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
