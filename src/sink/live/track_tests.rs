use dsp::OutputBits;

use super::super::power::parts;
use super::*;

const SHAPE: Shape = Shape {
    channels: 4,
    spectra: 8,
    bits: OutputBits::Eight,
};
pub(super) const STEP: u64 = 2 * 8 * 8;

pub(super) fn tracker() -> Tracker {
    tracker_of(Some(8))
}

fn tracker_of(array_size: Option<u64>) -> Tracker {
    let destinations = ["239.10.0.0:7148", "239.10.0.1:7148"].map(|d| d.parse().unwrap());
    Tracker::new("w", destinations.to_vec(), Some(SHAPE), array_size)
}

/// Packet `part` of 2 of the heap of substream `sub` in batch `batch`.
pub(super) fn packet(tracker: &mut Tracker, batch: u64, sub: usize, part: u64) -> Option<KeptHeap> {
    packet_since(tracker, 0, batch, sub, part)
}

/// The same of an engine that was started in batch `start`, and counts from there.
fn packet_since(
    tracker: &mut Tracker,
    start: u64,
    batch: u64,
    sub: usize,
    part: u64,
) -> Option<KeptHeap> {
    let count = 2 * batch.abs_diff(start) + sub as u64;
    let spectra = SpectraRepr {
        heap_count: 3 + 8 * count,
        heap_length: 128,
        payload_offset: 64 * part,
        payload_length: 64,
        timestamp: (100 + batch) * STEP,
        feng_id: 3,
        first_channel: 4 * sub as u64,
    };
    let payload = [part as u8 + 1; 64];
    tracker.add(sub, &Kind::Spectra(spectra, &payload), || true)
}

pub(super) fn batch(tracker: &mut Tracker, number: u64) {
    batch_since(tracker, 0, number);
}

fn batch_since(tracker: &mut Tracker, start: u64, number: u64) {
    for part in 0..2 {
        for sub in 0..2 {
            packet_since(tracker, start, number, sub, part);
        }
    }
}

pub(super) fn stop(tracker: &mut Tracker) {
    stop_of(tracker, 3);
}

/// Stop heaps of the engine of this number.
pub(super) fn stop_of(tracker: &mut Tracker, feng_id: u64) {
    (0..2).for_each(|sub| {
        let stop = Kind::Stop(feng_id + 8 * sub as u64);
        drop(tracker.add(sub, &stop, || false));
    });
}

/// Descriptors of the engine of this number.
fn describe_of(tracker: &mut Tracker, feng_id: u64) {
    (0..2).for_each(|sub| {
        let descriptors = Kind::Descriptors(feng_id + 8 * sub as u64, Vec::new());
        drop(tracker.add(sub, &descriptors, || false));
    });
}

/// How many substreams ended, and how many packets came after that.
fn ends(report: &StreamReport) -> (u64, u64) {
    (report.stopped_substreams, report.packets_after_stop)
}

/// Whether the engine is said to have been started again once.
fn tells_restart(report: &StreamReport) -> bool {
    let note = "the engine was started again 1 time: ";
    report.notes.iter().any(|text| text.starts_with(note))
}

/// Engines of an array send to the same groups: one that ends does not end the others.
#[test]
fn stop_heaps_of_another_engine_end_nothing() {
    for early in [true, false] {
        let mut tracker = tracker();
        if early {
            stop_of(&mut tracker, 4);
        }
        (0..3).for_each(|number| batch(&mut tracker, number));
        if !early {
            stop_of(&mut tracker, 4);
        }
        (3..6).for_each(|number| batch(&mut tracker, number));
        let report = tracker.report();
        assert_eq!(
            (report.stopped_substreams, report.packets_after_stop),
            (0, 0)
        );
        assert_eq!((report.stop_heaps, report.misplaced_packets), (0, 2));
        stop(&mut tracker);
        assert_eq!(tracker.report().stopped_substreams, 2);
    }
}

/// It is no fault of an engine that it is stopped and started again, and stopped at the end.
#[test]
fn an_engine_that_is_started_again_is_noted() {
    // Where all that comes is known to be the engine's, it may have missed how counts begin.
    for (array_size, start) in [(Some(8), 0), (Some(8), 8), (None, 8)] {
        let mut tracker = tracker_of(array_size);
        (0..6).for_each(|number| batch(&mut tracker, number));
        stop(&mut tracker);
        describe_of(&mut tracker, 3);
        assert_eq!(ends(&tracker.report()), (2, 0));
        (9..15).for_each(|number| batch_since(&mut tracker, start, number));
        assert_eq!(ends(&tracker.report()), (0, 0));
        stop(&mut tracker);
        let report = tracker.finish();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!((report.batches, report.batches_not_sent), (12, 3));
        assert_eq!((report.stopped_substreams, report.stop_heaps), (2, 4));
        assert!(tells_restart(&report), "{:?}", report.notes);
    }
}

/// Together with its digitiser, whose sync time is later.
#[test]
fn an_engine_that_is_started_again_with_earlier_timestamps_is_noted() {
    let mut tracker = tracker_of(None);
    (1000..1006).for_each(|number| batch(&mut tracker, number));
    stop(&mut tracker);
    describe_of(&mut tracker, 3);
    (0..12).for_each(|number| batch(&mut tracker, number));
    let report = tracker.finish();
    assert_eq!(ends(&report), (0, 0));
    assert!(tells_restart(&report), "{:?}", report.notes);
}

/// Others repeat their descriptors for ever.
#[test]
fn descriptors_of_another_engine_begin_nothing() {
    let mut tracker = tracker_of(None);
    (0..6).for_each(|number| batch(&mut tracker, number));
    stop(&mut tracker);
    describe_of(&mut tracker, 4);
    assert_eq!(ends(&tracker.report()), (2, 0));
    // Packets that come in another order are none of a new stream.
    packet(&mut tracker, 4, 1, 1);
    let report = tracker.finish();
    assert_eq!(ends(&report), (2, 1));
    assert!(!tells_restart(&report), "{:?}", report.notes);
}

/// Whose heap counts go on was not started again, whatever ended and was described.
#[test]
fn spectra_that_go_on_behind_a_stop_heap_of_anybody_are_a_problem() {
    let mut tracker = tracker_of(None);
    (0..6).for_each(|number| batch(&mut tracker, number));
    stop_of(&mut tracker, 4);
    (6..8).for_each(|number| batch(&mut tracker, number));
    describe_of(&mut tracker, 5);
    (8..10).for_each(|number| batch(&mut tracker, number));
    assert_eq!(ends(&tracker.report()), (2, 4 * 4));
    // Until it is started again.
    stop(&mut tracker);
    describe_of(&mut tracker, 3);
    (12..18).for_each(|number| batch_since(&mut tracker, 11, number));
    let report = tracker.finish();
    assert_eq!(ends(&report), (0, 4 * 4));
    assert_eq!(report.problems, ["16 packets follow the stop heap"]);
    assert!(tells_restart(&report), "{:?}", report.notes);
}

/// Nor is it a restart that another engine ended before this one's descriptors and spectra came.
#[test]
fn stop_heaps_before_all_spectra_end_nothing() {
    for array_size in [Some(8), None] {
        let mut tracker = tracker_of(array_size);
        stop_of(&mut tracker, 4);
        describe_of(&mut tracker, 3);
        (0..6).for_each(|number| batch(&mut tracker, number));
        assert_eq!(ends(&tracker.report()), (0, 0));
        stop(&mut tracker);
        let report = tracker.finish();
        assert_eq!(ends(&report), (2, 0));
        assert!(!tells_restart(&report), "{:?}", report.notes);
    }
    // This one's own, as is known.
    let mut tracker = tracker();
    stop(&mut tracker);
    describe_of(&mut tracker, 3);
    (0..6).for_each(|number| batch(&mut tracker, number));
    let report = tracker.finish();
    assert_eq!(ends(&report), (0, 0));
    assert!(tells_restart(&report), "{:?}", report.notes);
}

/// A digitiser that was started again with a later sync time.
#[test]
fn a_stream_whose_timestamps_went_back_is_taken_again() {
    for known in [false, true] {
        let mut tracker = match known {
            true => tracker().with_batch_samples(STEP),
            false => tracker(),
        };
        for number in [1000, 1001, 1003, 1004, 1005, 1006, 1007] {
            batch(&mut tracker, number);
        }
        packet(&mut tracker, 1008, 0, 0);
        for number in [0, 1, 2, 3, 4, 5, 7, 8, 9] {
            batch(&mut tracker, number);
        }
        let late = tracker.report().late_packets;
        assert!((13..=15).contains(&late), "{late}");
        let report = tracker.finish();
        assert_eq!((report.batches, report.batches_not_sent), (7 + 5, 2));
        assert_eq!((report.incomplete_heaps, report.missing_heaps), (0, 0));
        assert_eq!(report.last_timestamp, Some(109 * STEP));
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        let note = "timestamps went back 1 time: ";
        assert!(report.notes.iter().any(|text| text.starts_with(note)));
    }
}

/// Such as by another path, beside those in time.
#[test]
fn late_batches_beside_others_do_not_begin_anew() {
    let mut tracker = tracker();
    (10..16).for_each(|number| batch(&mut tracker, number));
    for number in 0..14 {
        batch(&mut tracker, 16 + number);
        batch(&mut tracker, number);
    }
    let report = tracker.finish();
    assert_eq!(report.first_timestamp, Some(110 * STEP));
    assert_eq!((report.batches, report.incomplete_heaps), (20, 0));
}

#[test]
fn whole_batches_are_clean_and_gaps_are_counted() {
    let mut tracker = tracker();
    for number in [0, 1, 2, 5, 6, 7, 8] {
        batch(&mut tracker, number);
    }
    stop(&mut tracker);
    let report = tracker.finish();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.batches, report.heaps), (7, 14));
    assert_eq!(report.batches_not_sent, 2);
    assert_eq!((report.feng_id, report.channels), (3, 8));
    assert_eq!(report.first_timestamp, Some(100 * STEP));
}

/// Those of narrowband streams are longer by the decimation.
#[test]
fn a_batch_is_as_long_as_timestamps_step() {
    let mut tracker = tracker();
    let mut samples = Vec::new();
    for number in [0, 4, 8, 20, 24, 28] {
        batch(&mut tracker, number);
        samples.push(tracker.report().batch_samples);
    }
    assert_eq!(samples[0], STEP);
    let report = tracker.finish();
    assert_eq!(
        (report.batch_samples, report.batches_not_sent),
        (4 * STEP, 2)
    );
}

/// Steps between timestamps alone would not tell.
#[test]
fn batches_missing_at_even_distances_are_seen_if_the_output_is_known() {
    let mut tracker = tracker().with_batch_samples(STEP);
    for number in [0, 2, 4, 6, 8] {
        batch(&mut tracker, number);
    }
    stop(&mut tracker);
    let report = tracker.finish();
    assert_eq!((report.batch_samples, report.batches_not_sent), (STEP, 4));
    assert_eq!((report.batches, report.batches_if_wideband()), (5, None));
    // One that lies between batches is not the output's.
    let mut tracker = self::tracker().with_batch_samples(2 * STEP);
    packet(&mut tracker, 0, 0, 0);
    packet(&mut tracker, 1, 0, 0);
    assert_eq!(tracker.report().bad_timestamp_packets, 1);
}

#[test]
fn losses_are_told_apart() {
    let mut tracker = tracker();
    batch(&mut tracker, 0);
    // A packet and a heap are lost, one packet comes twice.
    packet(&mut tracker, 1, 0, 0);
    batch(&mut tracker, 2);
    packet(&mut tracker, 2, 1, 1);
    for number in 3..8 {
        batch(&mut tracker, number);
    }
    packet(&mut tracker, 1, 0, 1);
    stop(&mut tracker);
    packet(&mut tracker, 7, 1, 1);
    let report = tracker.finish();
    assert_eq!((report.incomplete_heaps, report.missing_heaps), (1, 1));
    assert_eq!(
        (report.duplicate_packets, report.packets_after_stop),
        (2, 1)
    );
    assert_eq!(report.problems.len(), 5, "{:?}", report.problems);
}

/// Who comes and leaves in the middle of a batch has not lost anything.
#[test]
fn ends_that_are_cut_are_no_losses() {
    let mut tracker = tracker();
    packet(&mut tracker, 0, 1, 1);
    for number in 1..6 {
        batch(&mut tracker, number);
    }
    packet(&mut tracker, 6, 0, 0);
    let report = tracker.finish();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.batches, report.notes.len()), (5, 3));
}

#[test]
fn strangers_are_refused() {
    let mut tracker = tracker();
    batch(&mut tracker, 0);
    let mut spectra = SpectraRepr {
        heap_count: 3,
        heap_length: 128,
        payload_offset: 0,
        payload_length: 64,
        timestamp: 101 * STEP,
        feng_id: 3,
        first_channel: 4,
    };
    let mut add = |spectra: SpectraRepr| {
        tracker.add(0, &Kind::Spectra(spectra, &[0; 64]), || false);
    };
    add(spectra);
    (spectra.first_channel, spectra.heap_count) = (0, 4);
    add(spectra);
    (spectra.heap_count, spectra.heap_length) = (3, 64);
    add(spectra);
    (spectra.heap_length, spectra.timestamp) = (128, 101 * STEP + 1);
    add(spectra);
    let counts = tracker.report();
    assert_eq!(counts.misplaced_packets, 2);
    assert_eq!(counts.wrong_size_packets, 1);
    assert_eq!(counts.bad_timestamp_packets, 1);
}

#[test]
fn bytes_have_one_part_or_two() {
    let read = |byte, bits| parts(byte, bits).collect::<Vec<_>>();
    assert_eq!(read(0xfd, OutputBits::Eight), [-3]);
    assert_eq!(read(0x79, OutputBits::Four), [7, -7]);
    let mut power = ([0; N_POL], 0);
    add_power(&[0x12, 0xf0, 0x30, 0x04], 0, OutputBits::Four, &mut power);
    assert_eq!(power, ([5 + 9, 1 + 16], 2));
}

#[test]
fn heaps_are_kept_whole() {
    let mut tracker = tracker();
    assert_eq!(packet(&mut tracker, 0, 1, 1), None);
    let heap = packet(&mut tracker, 0, 1, 0).unwrap();
    assert_eq!((heap.substream, heap.timestamp), (1, 100 * STEP));
    assert_eq!(heap.data, [[1; 64], [2; 64]].concat());
    let report = tracker.report();
    // 64 bytes of 1 and of 2: two per polarisation and Jones vector.
    let whole = report.mean_power_db;
    let power = 10f64.powf(whole[0].unwrap() / 10.0);
    assert!((power - 5.0).abs() < 1e-9, "{power}");
    assert_eq!(tracker.take_power_db(), Some(whole));
    // What was taken is still part of the whole, and of nothing that comes later.
    assert_eq!(tracker.report().mean_power_db, whole);
    assert_eq!(tracker.take_power_db(), None);
}

/// A heap of a batch that begins at a multiple of 108 samples, which divide no power of two.
fn oversampled(tracker: &mut Tracker, timestamp: u64, sub: usize) {
    for part in 0..2 {
        let spectra = SpectraRepr {
            heap_count: 3 + 8 * (timestamp / 108 * 2 + sub as u64),
            heap_length: 128,
            payload_offset: 64 * part,
            payload_length: 64,
            timestamp: timestamp % Timestamp::WIRE_RANGE,
            feng_id: 3,
            first_channel: 4 * sub as u64,
        };
        tracker.add(sub, &Kind::Spectra(spectra, &[0; 64]), || false);
    }
}

/// Timestamps of an oversampled output are then no multiples of its batch on the wire.
#[test]
fn batches_are_known_behind_a_wrap_of_the_wire() {
    let mut tracker = tracker().with_batch_samples(108);
    let first = (2 * Timestamp::WIRE_RANGE).next_multiple_of(108);
    for number in [0, 1, 3, 4] {
        (0..2).for_each(|sub| oversampled(&mut tracker, first + number * 108, sub));
    }
    oversampled(&mut tracker, first + 4 * 108 + 4, 0);
    stop(&mut tracker);
    let report = tracker.finish();
    assert_eq!(report.bad_timestamp_packets, 2);
    assert_eq!((report.batches, report.heaps), (4, 8));
    assert_eq!(report.batches_not_sent, 1);
    assert_eq!(report.first_timestamp, Some(first));
}

/// So that those of an output whose batch divides 2^48 are known, too.
#[test]
fn timestamps_are_the_digitisers_if_its_time_is_known() {
    let first = 101 * STEP;
    let now = 3 * Timestamp::WIRE_RANGE + first;
    for (now, ranges) in [(None, 0), (Some(now - 5000), 3), (Some(now + 5000), 3)] {
        let mut tracker = tracker().with_time(now.map(Timestamp));
        (1..7).for_each(|number| batch(&mut tracker, number));
        let report = tracker.finish();
        let expected = ranges * Timestamp::WIRE_RANGE + first;
        assert_eq!(report.first_timestamp, Some(expected));
        assert_eq!(report.bad_timestamp_packets, 0);
    }
}

/// 2^40 is no multiple of 80.
#[test]
fn heaps_of_any_send_interface_are_the_engines() {
    let destinations = ["239.10.0.0:7148", "239.10.0.1:7148"].map(|d| d.parse().unwrap());
    let mut tracker = Tracker::new("w", destinations.to_vec(), Some(SHAPE), Some(80));
    for (sub, count) in [(0, 3), (1, (1 << 40) + 3), (1, (1 << 40) + 4)] {
        let spectra = SpectraRepr {
            heap_count: count,
            heap_length: 128,
            payload_offset: 0,
            payload_length: 64,
            timestamp: STEP,
            feng_id: 3,
            first_channel: 4 * sub as u64,
        };
        tracker.add(sub, &Kind::Spectra(spectra, &[0; 64]), || false);
    }
    let report = tracker.report();
    assert_eq!((report.packets, report.misplaced_packets), (2, 1));
}
