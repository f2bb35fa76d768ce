use spead::descriptor::ElementType;
use spead::{Descriptor, item};

use super::super::tests::{STEP, batch, packet, stop, stop_of, tracker};
use super::*;
use crate::sink::Kind;

/// Such as by bits that flip on the way: they take no room from batches in time.
#[test]
fn single_packets_far_ahead_move_nothing() {
    let ahead = 1_000_000;
    for (at_once, known) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut tracker = match known {
            true => tracker().with_batch_samples(STEP),
            false => tracker(),
        };
        (0..6).for_each(|number| batch(&mut tracker, number));
        for stray in 0..4 {
            packet(&mut tracker, ahead + stray, 0, 0);
            if !at_once {
                (6 + 2 * stray..8 + 2 * stray).for_each(|number| batch(&mut tracker, number));
            }
        }
        let next = if at_once { 6 } else { 14 };
        (next..20).for_each(|number| batch(&mut tracker, number));
        let report = tracker.finish();
        assert_eq!((report.bad_timestamp_packets, report.late_packets), (4, 0));
        assert_eq!((report.batches, report.heaps), (20, 40));
        assert_eq!((report.batches_not_sent, report.missing_heaps), (0, 0));
        assert_eq!(report.last_timestamp, Some(119 * STEP));
    }
}

/// Nor does the very first, nor one at the end.
#[test]
fn a_stray_packet_at_an_end_moves_nothing() {
    let mut tracker = tracker();
    packet(&mut tracker, 5000, 0, 0);
    (0..9).for_each(|number| batch(&mut tracker, number));
    packet(&mut tracker, 5000, 0, 0);
    let report = tracker.finish();
    assert_eq!((report.batches, report.heaps), (9, 18));
    assert_eq!((report.bad_timestamp_packets, report.late_packets), (2, 0));
    assert_eq!(report.last_timestamp, Some(108 * STEP));
}

/// An engine had no input for long: nothing of what it sends then is lost.
#[test]
fn a_stream_that_leaps_goes_on_there() {
    for last in [5002, 5003, 5009] {
        let mut tracker = tracker();
        (0..6).for_each(|number| batch(&mut tracker, number));
        packet(&mut tracker, 9000, 0, 0);
        (5000..=last).for_each(|number| batch(&mut tracker, number));
        let report = tracker.finish();
        let batches = 6 + last - 4999;
        assert_eq!((report.batches, report.heaps), (batches, 2 * batches));
        assert_eq!(report.packets, 4 * batches);
        assert_eq!(report.batches_not_sent, 4994);
        assert_eq!((report.bad_timestamp_packets, report.late_packets), (1, 0));
    }
}

/// An engine whose input is not whole sends few batches: all of them count.
#[test]
fn batches_that_are_far_apart_are_a_stream() {
    let mut random = 7_u64;
    let mut number = 0;
    let numbers: Vec<u64> = (0..100)
        .map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            number += 50 + (random >> 32) % 150;
            number
        })
        .collect();
    for count in [2, 3, 8, 9, 12, 100] {
        for known in [true, false] {
            let mut tracker = match known {
                true => tracker().with_batch_samples(STEP),
                false => tracker(),
            };
            let numbers = &numbers[..count];
            numbers
                .iter()
                .for_each(|&number| batch(&mut tracker, number));
            let report = tracker.finish();
            assert_eq!((report.bad_timestamp_packets, report.late_packets), (0, 0));
            assert_eq!(
                (report.batches, report.heaps),
                (count as u64, 2 * count as u64)
            );
            assert_eq!(report.packets, 4 * count as u64);
        }
    }
}

/// Of a link that passed next to nothing for long.
#[test]
fn strays_far_apart_do_not_hide_a_stream() {
    let mut tracker = tracker();
    (0..6).for_each(|number| batch(&mut tracker, number));
    for stray in 1..40 {
        packet(&mut tracker, 1000 * stray, 0, 0);
    }
    (50_000..50_020).for_each(|number| batch(&mut tracker, number));
    let report = tracker.finish();
    assert_eq!((report.batches, report.heaps), (26, 52));
    assert_eq!(report.bad_timestamp_packets, 39);
}

/// It ends before it is known to have leapt, with losses, or within a batch.
#[test]
fn a_stream_that_leaps_may_end_there() {
    let mut cut = tracker();
    (0..6).for_each(|number| batch(&mut cut, number));
    (5000..5002).for_each(|number| batch(&mut cut, number));
    packet(&mut cut, 5002, 0, 0);
    let report = cut.finish();
    assert_eq!((report.batches, report.bad_timestamp_packets), (8, 0));
    assert!(report.problems.is_empty(), "{:?}", report.problems);

    let mut lossy = tracker();
    (0..6).for_each(|number| batch(&mut lossy, number));
    for number in 5000..5003 {
        for (sub, part) in [(0, 0), (0, 1), (1, number % 2)] {
            packet(&mut lossy, number, sub, part);
        }
    }
    stop(&mut lossy);
    let report = lossy.finish();
    assert_eq!((report.batches, report.heaps), (9, 15));
    assert_eq!(
        (report.incomplete_heaps, report.bad_timestamp_packets),
        (3, 0)
    );

    // Another's packets to one address.
    let mut strays = tracker();
    (0..6).for_each(|number| batch(&mut strays, number));
    for number in 5000..5002 {
        (0..2).for_each(|part| drop(packet(&mut strays, number, 0, part)));
    }
    let report = strays.finish();
    assert_eq!(
        (report.batches, report.last_timestamp),
        (6, Some(105 * STEP))
    );
    assert_eq!(report.bad_timestamp_packets, 4);
}

/// Two substreams of twice the channels have heaps of the same size.
#[test]
fn channels_may_change_where_sizes_do_not() {
    for (stops, others) in [(true, false), (false, false), (false, true)] {
        let destinations = ["239.10.0.0:7148", "239.10.0.1:7148"].map(|d| d.parse().unwrap());
        let mut tracker = Tracker::new("w", destinations.to_vec(), None, None);
        describe(&mut tracker, 4, 8);
        (0..4).for_each(|number| batch_shaped(&mut tracker, (4, 8), number));
        if others {
            // Another engine on the same addresses: this one goes on.
            stop_of(&mut tracker, 4);
            (4..6).for_each(|number| batch_shaped(&mut tracker, (4, 8), number));
            describe(&mut tracker, 8, 4);
            (6..8).for_each(|number| batch_shaped(&mut tracker, (4, 8), number));
            let report = tracker.finish();
            assert_eq!((report.heaps, report.misplaced_packets), (16, 0));
            assert_eq!((report.channels, report.missing_heaps), (8, 0));
            continue;
        }
        if stops {
            stop(&mut tracker);
        } else {
            (4..80).for_each(|number| batch_shaped(&mut tracker, (8, 4), number));
        }
        describe(&mut tracker, 8, 4);
        (100..106).for_each(|number| batch_shaped(&mut tracker, (8, 4), number));
        let report = tracker.finish();
        assert_eq!((report.channels, report.spectra_per_heap), (16, 4));
        assert_eq!(report.missing_heaps > 0, !stops);
        assert_eq!(report.last_timestamp, Some(205 * STEP));
    }
}

/// Descriptors of heaps of so many spectra.
fn describe_shape(tracker: &mut Tracker, spectra: u64) {
    describe(tracker, 4, spectra);
}

/// Descriptors of heaps of so many channels and spectra.
fn describe(tracker: &mut Tracker, channels: u64, spectra: u64) {
    let raw = Descriptor {
        id: item::FENG_RAW,
        name: String::new(),
        description: String::new(),
        shape: vec![Some(channels), Some(spectra), Some(2), Some(2)],
        element: ElementType::Format(vec![('i', 8)]),
    };
    (0..2).for_each(|sub| {
        let descriptors = Kind::Descriptors(3 + 8 * sub as u64, vec![raw.clone()]);
        drop(tracker.add(sub, &descriptors, || false));
    });
}

/// A batch, in packets of 64 bytes, whose heaps have so many spectra.
fn batch_of(tracker: &mut Tracker, spectra: u64, number: u64) {
    batch_shaped(tracker, (4, spectra), number);
}

/// The same with so many channels as well.
fn batch_shaped(tracker: &mut Tracker, (channels, spectra): (u64, u64), number: u64) {
    let bytes = 4 * channels * spectra;
    for part in 0..bytes / 64 {
        for sub in 0..2 {
            let of = SpectraRepr {
                heap_count: 3 + 8 * (2 * number + sub),
                heap_length: bytes,
                payload_offset: 64 * part,
                payload_length: 64,
                timestamp: 4 * channels * spectra * (100 + number),
                feng_id: 3,
                first_channel: channels * sub,
            };
            let kind = Kind::Spectra(of, &[1; 64]);
            tracker.add(sub as usize, &kind, || false);
        }
    }
}

#[test]
fn an_engine_may_begin_again_with_heaps_of_another_shape() {
    let destinations = ["239.10.0.0:7148", "239.10.0.1:7148"].map(|d| d.parse().unwrap());
    for stops in [true, false] {
        let mut tracker = Tracker::new("w", destinations.to_vec(), None, Some(8));
        describe_shape(&mut tracker, 8);
        (0..6).for_each(|number| batch_of(&mut tracker, 8, number));
        // Another's descriptors change nothing as long as all fits.
        describe_shape(&mut tracker, 32);
        (6..8).for_each(|number| batch_of(&mut tracker, 8, number));
        let mut wrong = 0;
        if stops {
            stop(&mut tracker);
            // One that was under way.
            batch_of(&mut tracker, 8, 7);
        } else {
            // It was killed, and the first descriptors have been missed.
            (0..40).for_each(|number| batch_of(&mut tracker, 16, number));
            wrong = 40 * 8;
        }
        describe_shape(&mut tracker, 16);
        (100..106).for_each(|number| batch_of(&mut tracker, 16, number));
        let report = tracker.finish();
        assert_eq!(report.wrong_size_packets, wrong);
        assert_eq!((report.batches, report.heaps), (8 + 6, 2 * (8 + 6)));
        assert_eq!((report.spectra_per_heap, report.batch_samples), (16, 256));
        assert_eq!((report.incomplete_heaps, report.batches_not_sent), (0, 0));
        let note = "the shape of heaps changed 1 time";
        assert!(report.notes.iter().any(|text| text.starts_with(note)));
    }
}

/// Such as those of a program that nobody meant.
#[test]
fn a_wrong_shape_that_was_learnt_first_gives_way() {
    let destinations = ["239.10.0.0:7148", "239.10.0.1:7148"].map(|d| d.parse().unwrap());
    let mut tracker = Tracker::new("w", destinations.to_vec(), None, None);
    describe_shape(&mut tracker, 32);
    (0..70).for_each(|number| batch_of(&mut tracker, 8, number));
    describe_shape(&mut tracker, 8);
    (70..76).for_each(|number| batch_of(&mut tracker, 8, number));
    assert_eq!(tracker.finish().heaps, 12);
}
