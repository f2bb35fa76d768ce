use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{Duration, Instant};

use karoo_modem::formats::FullScale;
use karoo_modem::vita::{Context, OutPacket, PacketTime, SampleRate, StreamCounts, StreamWriter};
use num_complex::Complex32;
use proptest::prelude::*;

use super::*;
use crate::net::capture::Precision;
use crate::net::frame::HEADERS_LEN;
use crate::net::{CaptureWriter, HeaderTemplate, MacAddr};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn places_read_what_users_write() {
    let place = |text: &str| text.parse::<Place>().unwrap();
    assert!(place("air.cf32").file().is_some() && !place("air.cf32").is_live());
    assert!(place("-").is_standard());
    assert!(place("shm:air").is_live() && !place("shm:air").has_packets());
    for (text, path, bytes) in [
        ("a/b.pcap", "a/b.pcap", 1472),
        ("a,b/c.pcapng", "a,b/c.pcapng", 1472),
        ("a,b/c.pcap,size=4000", "a,b/c.pcap", 4000),
    ] {
        let path = path.into();
        assert_eq!(place(text), Place::Capture { path, bytes });
        assert_eq!(place(text).to_string(), text);
    }
    for (text, why) in [
        ("a.pcap,size=0", "1 to 65507"),
        ("a.pcap,idle=1", "size= alone"),
    ] {
        let error = text.parse::<Place>().unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    for text in ["udp:239.1.2.3:4991", "dpdk:eth0:239.1.2.3:4991"] {
        assert!(place(text).is_live() && place(text).has_packets());
        assert_eq!(place(text).to_string(), text);
    }
    let error = "dpdk:eth0:10.0.0.1:4991".parse::<Place>().unwrap_err();
    assert!(error.contains("no multicast group"), "{error}");
    let error = "vita:10.0.0.1:4991".parse::<Place>().unwrap_err();
    assert!(error.contains("udp:"), "{error}");
}

#[test]
fn samples_are_due_by_their_count_alone() {
    let start = Instant::now();
    let mut pace = Pace::new(start, 1000.0);
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    assert_eq!(pace.until(500, at(100)), Some(Duration::from_millis(400)));
    assert_eq!(pace.until(500, at(500)), None);
    // Held up, and made up for.
    assert_eq!(pace.until(501, at(740)), None);
    assert_eq!(pace.until(740, at(740)), None);
    assert_eq!(pace.until(741, at(740)), Some(Duration::from_millis(1)));
    assert_eq!(pace.most_late(), Duration::from_millis(239));
}

/// Packets of a stream, as datagrams.
fn packets(samples: &[Complex32]) -> Vec<Vec<u8>> {
    let context = Context {
        sample_rate: SampleRate::new(1e6).unwrap(),
        bandwidth: 5e5,
        frequency: 0.0,
        changed: true,
    };
    let start = PacketTime {
        seconds: 1_800_000_000,
        picoseconds: 0,
    };
    let writer = StreamWriter::new(3, context, start, FullScale::default(), 4);
    let (mut writer, mut packets) = (writer.with_packet_samples(16), Vec::new());
    let mut keep = |packet: OutPacket| {
        packets.push(packet.bytes.to_vec());
        Ok::<(), Infallible>(())
    };
    writer.push(samples, &mut keep).unwrap();
    writer.finish(&mut keep).unwrap();
    packets
}

fn ramp(count: usize) -> Vec<Complex32> {
    let step = FullScale::default().value() / f32::from(i16::MAX);
    (0..count)
        .map(|n| Complex32::new(n as f32, 1.0) * step)
        .collect()
}

/// What an intake makes of a capture of frames.
fn taken(frames: &[Vec<u8>]) -> (Vec<Vec<Complex32>>, IntakeCounts) {
    let (streams, ended) = taken_before(frames, &[]);
    (streams, ended.unwrap())
}

/// What it makes of one with these bytes behind the frames, and how it ends.
fn taken_before(
    frames: &[Vec<u8>],
    behind: &[u8],
) -> (Vec<Vec<Complex32>>, Result<IntakeCounts, PlaceError>) {
    let (blocks, ended) = blocks(frames, behind);
    let mut streams = vec![Vec::new()];
    for block in blocks {
        match block.restart {
            true => streams.push(block.samples),
            false => streams.last_mut().unwrap().extend(block.samples),
        }
    }
    (streams, ended)
}

/// The blocks that it makes of one.
fn blocks(frames: &[Vec<u8>], behind: &[u8]) -> (Vec<Block>, Result<IntakeCounts, PlaceError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.pcap");
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
    for frame in frames {
        writer.write_frame(0, &[frame]).unwrap();
    }
    writer.finish().unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(behind).unwrap();
    let place: Place = path.to_str().unwrap().parse().unwrap();
    let mut intake = Intake::open(&place, &IntakeSettings::default()).unwrap();
    let (mut blocks, mut block) = (Vec::new(), Block::default());
    loop {
        match intake.take(&mut block, LONG) {
            Taken::End => break,
            Taken::Nothing => panic!("nothing came"),
            Taken::Block => blocks.push(std::mem::take(&mut block)),
        }
    }
    (blocks, intake.finish())
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let ends = ["10.0.0.1:1", "239.1.2.3:4991"].map(|text| text.parse().unwrap());
    let [from, to] = ends;
    let template = HeaderTemplate::new(MacAddr::default(), MacAddr::default(), from, to, 1);
    let mut headers = [0; HEADERS_LEN];
    template.emit(payload.len(), &mut headers);
    [&headers[..], payload].concat()
}

#[test]
fn a_capture_that_ends_within_a_record_gives_what_is_before_and_says_so() {
    let sent = ramp(4000);
    let frames: Vec<_> = packets(&sent).iter().map(|packet| framed(packet)).collect();
    let record = [0u32, 0, 100, 100].map(u32::to_le_bytes);
    let cut = [record.as_flattened(), &[7; 60]].concat();
    for (behind, is_cut) in [(&[][..], false), (&cut, true)] {
        let (streams, counts) = taken_before(&frames, behind);
        assert_eq!(streams, std::slice::from_ref(&sent));
        assert_eq!(counts.unwrap().capture_cut, is_cut);
    }
}

#[test]
fn what_a_capture_lacks_is_zeros_in_its_place() {
    let sent = ramp(4000);
    let mut frames: Vec<_> = packets(&sent).iter().map(|packet| framed(packet)).collect();
    // Context, then 16 samples each; the third data packet goes.
    frames.remove(3);
    frames.insert(2, vec![1, 2, 3]);
    let (streams, counts) = taken(&frames);
    let mut expected = sent;
    expected[32..48].fill(Complex32::default());
    assert_eq!(streams, [expected]);
    assert_eq!(counts.no_datagrams, 1);
    let stream = counts.stream;
    assert_eq!((stream.gaps, stream.lost_samples), (1, 16));
    assert_eq!((stream.packets, stream.refused), (249, 0));
}

#[test]
fn a_long_gap_comes_in_blocks_as_other_samples_do() {
    const BLOCK: usize = 1 << 15;
    let sent = ramp(64);
    let mut packets = packets(&sent);
    // A second later, which is a million samples.
    packets[4][19] += 1;
    let frames: Vec<_> = packets.iter().map(|packet| framed(packet)).collect();
    let (blocks, ended) = blocks(&frames, &[]);
    let longest = blocks.iter().map(|block| block.samples.len()).max();
    assert!(longest.unwrap() < 2 * BLOCK + 16, "{longest:?}");
    let got: Vec<Complex32> = blocks.into_iter().flat_map(|block| block.samples).collect();
    let (before, after) = sent.split_at(48);
    let gap = vec![Complex32::default(); 1_000_000];
    assert!(got == [before, &gap, after].concat(), "{}", got.len());
    let stream = ended.unwrap().stream;
    assert_eq!((stream.gaps, stream.lost_samples), (1, 1_000_000));
}

#[test]
fn another_stream_is_named_where_more_of_it_comes() {
    let counts = |packets: u64, other_streams: u64| IntakeCounts {
        stream: StreamCounts {
            packets,
            other_streams,
            ..StreamCounts::default()
        },
        other_stream: Some(5),
        ..IntakeCounts::default()
    };
    assert_eq!(counts(0, 1).stream_instead(), Some(5));
    assert_eq!(counts(10, 11).stream_instead(), Some(5));
    assert_eq!(counts(10, 10).stream_instead(), None);
    assert_eq!(IntakeCounts::default().stream_instead(), None);
}

#[test]
fn a_stream_that_begins_anew_is_told_apart() {
    let sent = ramp(64);
    let mut frames: Vec<_> = packets(&sent).iter().map(|packet| framed(packet)).collect();
    // A day later.
    let mut later = packets(&sent)[1].clone();
    later[17] ^= 1;
    frames.push(framed(&later));
    let (streams, counts) = taken(&frames);
    assert_eq!(streams, [sent.clone(), sent[..16].to_vec()]);
    assert_eq!(counts.stream.restarts, 1);
}

#[test]
fn what_comes_before_a_capture_fails_is_not_lost() {
    let sent = ramp(640);
    let frames: Vec<_> = packets(&sent).iter().map(|packet| framed(packet)).collect();
    // A record that claims to be longer than any frame.
    let (streams, ended) = taken_before(&frames, &[0xff; 64]);
    assert_eq!(streams, [sent]);
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("longer than any frame"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes is counted once, and gives no more samples than its gaps allow.
    #[test]
    fn all_that_comes_is_counted_once(
        changes in prop::collection::vec((0usize..60, 0usize..140, any::<u8>()), 0..40),
        garbage in prop::collection::vec((0usize..60, prop::collection::vec(any::<u8>(), 0..120)), 0..10),
        order in prop::collection::vec((0usize..60, 0usize..60), 0..10),
    ) {
        let mut frames: Vec<_> = packets(&ramp(640)).iter().map(|packet| framed(packet)).collect();
        for (frame, at, value) in changes {
            let count = frames.len();
            let frame = &mut frames[frame % count];
            let count = frame.len();
            frame[at % count] = value;
        }
        for (at, bytes) in garbage {
            let at = at % frames.len();
            frames.insert(at, if at % 2 == 0 { framed(&bytes) } else { bytes });
        }
        for (a, b) in order {
            let count = frames.len();
            frames.swap(a % count, b % count);
        }
        let (streams, counts) = taken(&frames);
        let stream = counts.stream;
        let all = stream.packets + stream.contexts + stream.late + stream.other_streams
            + stream.without_rate + stream.refused + stream.contexts_refused + counts.no_datagrams;
        prop_assert_eq!(all, frames.len() as u64);
        let samples: usize = streams.iter().map(Vec::len).sum();
        prop_assert_eq!(samples as u64, stream.samples + stream.lost_samples);
    }
}
