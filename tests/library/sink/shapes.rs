//! Which packets are one stream, and what its shape is.

use super::*;

/// Each has an address and counts of its own; the first sends descriptors and stop heaps of all. Of
/// an engine that was up before, there are no descriptors.
#[test]
fn what_comes_of_two_interfaces_is_one_stream() {
    let half = SUBSTREAMS / 2;
    for described in [true, false] {
        let mut one = Sender {
            block: 0..half,
            ..Sender::new()
        };
        let mut other = Sender {
            block: half..SUBSTREAMS,
            next: (1 << 40) + FENG,
            ..Sender::new()
        };
        if described {
            one.descriptors();
        }
        for batch in [0, 1, 2] {
            one.batch(batch);
            other.batch(batch);
        }
        one.sent.extend(other.sent);
        one.stop();
        let report = read(&one.sent, SinkOptions::default()).unwrap();
        assert_eq!(report.problems().collect::<Vec<_>>(), Vec::<String>::new());
        assert!(report.ignored.is_empty(), "{:?}", report.ignored);
        assert_eq!(report.streams.len(), 1);
        let stream = &report.streams[0];
        assert_eq!((stream.channels, stream.heaps), (CHANNELS, 12));
        assert_eq!((stream.feng_id, stream.array_size), (FENG, Some(ARRAY)));
        let control = (stream.descriptor_heaps, stream.stop_heaps);
        assert_eq!(control, (if described { 4 } else { 0 }, 4));
        assert_eq!(stream.notes.is_empty(), described, "{:?}", stream.notes);
    }
}

/// Engines of an array send to the same groups; those of replays have one source address.
#[test]
fn engines_that_share_a_source_address_are_told_apart() {
    let engines = [0, 1].map(|feng_id| Sender::of(feng_id).all().sent);
    // By turns, and one behind the other.
    let [one, other] = &engines;
    let by_turns = one.iter().zip(other).flat_map(|(a, b)| [a, b]).cloned();
    for sent in [by_turns.collect(), engines.concat()] {
        for array_size in [None, Some(ARRAY)] {
            let options = SinkOptions {
                array_size,
                ..SinkOptions::default()
            };
            let report = read(&sent, options).unwrap();
            assert_eq!(report.problems().collect::<Vec<_>>(), Vec::<String>::new());
            let streams = report.streams.iter();
            let found: Vec<_> = streams
                .map(|s| (s.feng_id, s.heaps, s.descriptor_heaps, s.stop_heaps))
                .collect();
            assert_eq!(found, [(0, 12, 4, 4), (1, 12, 4, 4)]);
        }
    }
}

/// A damaged first packet costs its heap alone.
#[test]
fn what_most_packets_say_is_the_streams_shape() {
    let other = "stream0: 1 packet has another F-engine number or first channel than its \
                 destination";
    let size = "stream0: 1 packet belongs to a heap of the wrong size";
    // F-engine number, first channel, bytes of the heap; with descriptors and without.
    for (byte, problem) in [(55, other), (63, other), (22, size)] {
        for described in [true, false] {
            let mut sender = Sender::new();
            if described {
                sender.descriptors();
            }
            let first = sender.sent.len();
            (0..3).for_each(|batch| sender.batch(batch));
            sender.sent[first].payload[byte] += 1;
            let report = read(&sender.sent, SinkOptions::default()).unwrap();
            let problems: Vec<_> = report.problems().collect();
            assert_eq!(
                problems,
                ["stream0: 1 heap lacks packets", problem],
                "{byte}"
            );
            assert_eq!(report.streams[0].feng_id, FENG);
        }
    }
}

#[test]
fn options_take_the_place_of_descriptors() {
    let mut sender = Sender::new();
    sender.batch(0);
    sender.batch(1);
    let report = read(&sender.sent, SinkOptions::default()).unwrap();
    assert_eq!(report.problems().count(), 0);
    assert_eq!(report.streams[0].spectra_per_heap, SPECTRA);
    assert_eq!(report.streams[0].notes.len(), 2);

    // One substream alone does not tell how many channels its heaps have.
    let one: Vec<_> = sender.sent.iter().filter(|d| d.sub == 0).cloned().collect();
    let error = read(&one, SinkOptions::default()).unwrap_err();
    assert!(matches!(error, SinkError::Unknown { .. }), "{error}");
    let options = SinkOptions {
        channels: Some(CHANNELS),
        substreams: Some(SUBSTREAMS),
        ..SinkOptions::default()
    };
    let report = read(&one, options).unwrap();
    let stream = &report.streams[0];
    assert_eq!(
        (stream.channels_per_substream, stream.spectra_per_heap),
        (PER, SPECTRA)
    );
    assert_eq!((stream.heaps, stream.missing_heaps), (2, 6));
}

/// They are to blame, and not the stream.
#[test]
fn options_that_give_no_shape_are_named() {
    let mut sender = Sender::new();
    sender.batch(0);
    let error = |channels, substreams, spectra_per_heap| {
        let options = SinkOptions {
            channels,
            substreams,
            spectra_per_heap,
            ..SinkOptions::default()
        };
        read(&sender.sent, options).unwrap_err()
    };
    let odd = error(Some(1024), Some(2000), None);
    assert!(matches!(odd, SinkError::Option(_)), "{odd}");
    let text = odd.to_string();
    assert!(
        text.starts_with("--substreams 2000") && text.contains("1024 of --channels"),
        "{text}"
    );
    let few = error(Some(8), Some(4), None);
    assert!(matches!(few, SinkError::AskedShape { .. }), "{few}");
    let text = few.to_string();
    assert!(text.starts_with("--channels 8, --substreams 4: "), "{text}");
}

#[test]
fn streams_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output.pcap");
    let sent = Sender::whole().sent;
    let writer = write(&path, "239.10.0.8:7148", &sent, None);
    // The next stream follows without a gap in the addresses.
    write(&path, "239.10.0.12:7148", &sent, Some(writer))
        .finish()
        .unwrap();
    let report = sink::read(&path, &SinkOptions::default()).unwrap();
    assert_eq!(report.streams.len(), 2);
    assert_eq!(report.problems().collect::<Vec<_>>(), Vec::<String>::new());
}
