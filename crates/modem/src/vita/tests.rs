use std::convert::Infallible;
use std::net::UdpSocket;
use std::time::Duration;

use num_complex::Complex32;
use proptest::prelude::*;

use super::*;
use crate::formats::FullScale;

const START: PacketTime = PacketTime {
    seconds: 1_800_000_000,
    picoseconds: 999_999_000_000,
};

fn context(hertz: f64) -> Context {
    Context {
        sample_rate: SampleRate::new(hertz).unwrap(),
        bandwidth: hertz / 2.0,
        frequency: 2.4e9,
        changed: true,
    }
}

fn writer(hertz: f64) -> StreamWriter {
    StreamWriter::new(7, context(hertz), START, FullScale::default(), 10)
}

/// Samples that integers hold exactly.
fn samples(count: usize) -> Vec<Complex32> {
    let part = |n: usize| (n as i16).wrapping_mul(77) as f32 * (4.0 / 32767.0);
    (0..count)
        .map(|n| Complex32::new(part(n), part(n + 9)))
        .collect()
}

fn packets(samples: &[Complex32], hertz: f64) -> Vec<Vec<u8>> {
    let (mut writer, mut packets) = (writer(hertz), Vec::new());
    let mut keep = |packet: OutPacket| {
        packets.push(packet.bytes.to_vec());
        Ok::<(), Infallible>(())
    };
    writer.push(samples, &mut keep).unwrap();
    writer.finish(&mut keep).unwrap();
    packets
}

fn reader() -> StreamReader {
    StreamReader::new(None, None, FullScale::default(), 1_000_000)
}

#[test]
fn packets_have_the_words_of_the_standard() {
    let packets = packets(&samples(361), 80e6);
    let sizes: Vec<_> = packets.iter().map(Vec::len).collect();
    assert_eq!(sizes, [CONTEXT_BYTES, 28 + 1440, 28 + 4]);
    // Context: type 4, class, general time, UTC, picoseconds, count 0, 27 words.
    assert_eq!(packets[0][..4], [0x49, 0x60, 0x00, 0x1b]);
    assert_eq!(packets[0][4..12], [0, 0, 0, 7, 0x00, 0x6a, 0x62, 0x1e]);
    assert_eq!(packets[0][12..16], [0, 0, 0, 1]);
    assert_eq!(packets[0][28..32], [0xfb, 0xb9, 0x80, 0x00]);
    // 80 MHz with 20 binary places, behind 18 words.
    assert_eq!(packets[0][76..84], (80_000_000u64 << 20).to_be_bytes());
    assert_eq!(packets[0][100..108], [0xa0, 0, 0x03, 0xcf, 0, 0, 0, 0]);
    // Data: type 1, class, 367 words.
    assert_eq!(packets[1][..4], [0x18, 0x60, 0x01, 0x6f]);
    assert_eq!(packets[1][16..20], 1_800_000_000u32.to_be_bytes());
    assert_eq!(packets[1][20..28], 999_999_000_000u64.to_be_bytes());
    assert_eq!(packets[1][28..32], [0, 0, 2, 0xb5]);
    // 360 samples are 4.5 µs: a second has begun.
    assert_eq!(packets[2][16..20], 1_800_000_001u32.to_be_bytes());
    assert_eq!(packets[2][20..28], 3_500_000u64.to_be_bytes());
    assert_eq!(packets[2][..2], [0x18, 0x61]);
}

#[test]
fn contexts_come_back() {
    let mut bytes = Vec::new();
    context(1e6).write(3, 5, START, &mut bytes);
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(
        (packet.kind, packet.count, packet.stream),
        (PacketKind::Context, 5, 3)
    );
    assert_eq!(Context::from_body(packet.body), Ok(context(1e6)));
    bytes[107 - 7] = 0;
    let packet = Packet::new_checked(&bytes).unwrap();
    let error = Context::from_body(packet.body).unwrap_err().to_string();
    assert!(error.contains("a00003cf00000000"), "{error}");
}

#[test]
fn samples_come_back_over_udp() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(socket.local_addr().unwrap()).unwrap();
    let sent = samples(20_000);
    let (mut reader, mut back, mut writer) = (reader(), Vec::new(), writer(40e6));
    let mut bytes = [0; 2048];
    let mut pass = |packet: OutPacket| {
        sender.send(packet.bytes)?;
        let length = socket.recv(&mut bytes)?;
        reader
            .push(&bytes[..length], &mut back)
            .map(|_| ())
            .map_err(std::io::Error::other)
    };
    writer.push(&sent, &mut pass).unwrap();
    writer.finish(&mut pass).unwrap();
    assert!(back == sent);
    let counts = reader.counts();
    assert_eq!(
        (counts.packets, counts.contexts, counts.lost_samples),
        (56, 6, 0)
    );
    assert_eq!((counts.out_of_sequence, writer.clipped()), (0, 0));
}

#[test]
fn smaller_packets_also_take_what_was_pushed_before() {
    let sent = samples(600);
    let (mut reader, mut back, mut sizes) = (reader(), Vec::new(), Vec::new());
    let mut pass = |packet: OutPacket| -> Result<(), Infallible> {
        if packet.samples > 0 {
            sizes.push(packet.samples);
        }
        reader.push(packet.bytes, &mut back).unwrap();
        Ok(())
    };
    let mut writer = writer(40e6);
    writer.push(&sent[..300], &mut pass).unwrap();
    let mut writer = writer.with_packet_samples(100);
    writer.push(&sent[300..350], &mut pass).unwrap();
    let mut writer = writer.with_packet_samples(20);
    writer.push(&sent[350..351], &mut pass).unwrap();
    writer.push(&sent[351..], &mut pass).unwrap();
    let mut writer = writer.with_packet_samples(7);
    writer.finish(&mut pass).unwrap();
    assert!(back == sent);
    assert_eq!(sizes[..4], [100, 100, 100, 20]);
    assert!(sizes[3..].iter().all(|size| *size == 20));
}

#[test]
fn what_is_lost_is_a_gap_and_what_is_late_is_left_out() {
    let sent = samples(360 * 40);
    let packets = packets(&sent, 80e6);
    let data: Vec<_> = packets.iter().filter(|packet| packet.len() > 200).collect();
    let (mut reader, mut back) = (reader(), Vec::new());
    reader.push(&packets[0], &mut back).unwrap();
    // 3 comes after 4; 10 to 29 are lost, more than a count of 16 can tell; 5 comes twice.
    let order = (0..3).chain([4, 3, 5, 5, 6, 7, 8, 9]).chain(30..40);
    for number in order {
        reader.push(data[number], &mut back).unwrap();
    }
    let mut expected = sent.clone();
    for lost in [3..4, 10..30] {
        expected[lost.start * 360..lost.end * 360].fill(Complex32::default());
    }
    assert!(back == expected);
    let counts = reader.counts();
    assert_eq!(
        (counts.gaps, counts.lost_samples, counts.late),
        (2, 21 * 360, 2)
    );
}

#[test]
fn a_packet_far_away_begins_the_stream_anew() {
    let sent = samples(720);
    let packets = packets(&sent, 80e6);
    let (mut reader, mut back) = (reader(), Vec::new());
    for packet in &packets[..2] {
        reader.push(packet, &mut back).unwrap();
    }
    let mut far = packets[2].clone();
    far[16..20].copy_from_slice(&2_000_000_000u32.to_be_bytes());
    assert_eq!(reader.push(&far, &mut back), Ok(Piece::Restart));
    assert!(back == sent);
    assert_eq!(reader.counts().restarts, 1);
}

/// The packet with a time of so many picoseconds later.
fn later(packet: &[u8], by: i64) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let unit = PICOSECONDS as i64;
    let field = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |all, byte| all << 8 | i64::from(*byte))
    };
    let (seconds, rest) = (field(&packet[16..20]), field(&packet[20..28]) + by);
    let seconds = (seconds + rest.div_euclid(unit)) as u32;
    packet[16..20].copy_from_slice(&seconds.to_be_bytes());
    packet[20..28].copy_from_slice(&rest.rem_euclid(unit).to_be_bytes());
    packet
}

#[test]
fn of_a_packet_that_overlaps_what_was_given_the_rest_is_kept() {
    let sent = samples(720);
    let packets = packets(&sent, 80e6);
    // A sample at 80 MHz is 12 500 ps.
    for overlap in [1, 359, 360, 361] {
        let (mut reader, mut back) = (reader(), Vec::new());
        reader.push(&packets[0], &mut back).unwrap();
        reader.push(&packets[1], &mut back).unwrap();
        let early = later(&packets[2], -12_500 * overlap as i64);
        let kept = 360usize.saturating_sub(overlap);
        let wanted = match kept {
            0 => Piece::Nothing,
            _ => Piece::Samples {
                first: 360,
                lost: 0,
            },
        };
        assert_eq!(reader.push(&early, &mut back), Ok(wanted), "{overlap}");
        let expected = [&sent[..360], &sent[720 - kept..]].concat();
        assert!(back == expected, "{overlap}");
        let counts = reader.counts();
        assert_eq!(counts.samples, 360 + kept as u64);
        assert_eq!(counts.late, u64::from(kept == 0));
    }
}

#[test]
fn behind_a_packet_that_was_ahead_the_stream_begins_anew() {
    let sent = samples(360 * 40);
    let packets = packets(&sent, 80e6);
    let data: Vec<_> = packets.iter().filter(|packet| packet.len() > 200).collect();
    let (mut reader, mut back) = (reader(), Vec::new());
    reader.push(&packets[0], &mut back).unwrap();
    reader.push(data[0], &mut back).unwrap();
    // 10 ms, in which there are more than 2000 packets.
    let ahead = later(data[1], 10_000_000_000);
    reader.push(&ahead, &mut back).unwrap();
    back.clear();
    // Late ones of which too few follow one another begin nothing.
    let strays = [9, 2, 3, 9, 5];
    for number in strays {
        assert_eq!(reader.push(data[number], &mut back), Ok(Piece::Nothing));
    }
    let pieces: Vec<_> = data[6..]
        .iter()
        .map(|packet| reader.push(packet, &mut back).unwrap())
        .collect();
    // 5, 6, 7 and 8 follow one another.
    assert_eq!(
        pieces[..3],
        [Piece::Nothing, Piece::Nothing, Piece::Restart]
    );
    assert!(back == sent[360 * 8..]);
    let counts = reader.counts();
    assert_eq!((counts.late, counts.restarts), (7, 1));
}

/// A path that doubles every packet has each late copy behind a good one.
#[test]
fn packets_that_come_twice_do_not_begin_the_stream_anew() {
    let sent = samples(360 * 40);
    let packets = packets(&sent, 80e6);
    let (mut reader, mut back) = (reader(), Vec::new());
    for packet in packets.iter().flat_map(|packet| [packet, packet]) {
        reader.push(packet, &mut back).unwrap();
    }
    assert!(back == sent);
    assert_eq!((reader.counts().late, reader.counts().restarts), (40, 0));
}

/// DIFI also has the times of GPS (2), and of other epochs (3).
#[test]
fn seconds_may_count_from_any_time() {
    let sent = samples(3600);
    for kind in [1, 2, 3] {
        let (mut reader, mut back) = (reader(), Vec::new());
        for mut packet in packets(&sent, 80e6) {
            packet[1] = packet[1] & 0x3f | kind << 6;
            reader.push(&packet, &mut back).unwrap();
        }
        assert!(back == sent, "{kind}");
    }
}

#[test]
fn what_cannot_be_used_is_counted_by_its_cause() {
    let packets = packets(&samples(360), 80e6);
    let (mut reader, mut back) = (reader(), Vec::new());
    assert_eq!(reader.push(&packets[1], &mut back), Ok(Piece::Nothing));
    reader.push(&packets[0], &mut back).unwrap();
    let mut other = packets[1].clone();
    other[7] = 8;
    assert_eq!(reader.other_stream(), None);
    assert_eq!(reader.push(&other, &mut back), Ok(Piece::Nothing));
    assert_eq!(reader.other_stream().map(|stream| stream & 0xff), Some(8));
    for (place, value, wanted) in [
        (0, 0x58, "packet type 5"),
        (0, 0x10, "no class"),
        (1, 0x50, "kinds 1 and 1"),
        (1, 0x20, "kinds 0 and 2"),
        (2, 0xff, "of a packet that has"),
        (9, 0x00, "no class"),
        (20, 0xff, "fewer than"),
    ] {
        let mut wrong = packets[1].clone();
        wrong[place] = value;
        let error = reader.push(&wrong, &mut back).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let counts = reader.counts();
    assert_eq!((counts.without_rate, counts.other_streams), (1, 1));
    assert_eq!((counts.refused, counts.samples), (7, 0));
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        let mut back = Vec::new();
        let _ = reader().push(&bytes, &mut back);
        prop_assert!(back.len() <= bytes.len());
    }

    #[test]
    fn packets_with_changed_bytes_are_taken(
        changes in prop::collection::vec((0usize..1500, any::<u8>()), 1..6),
        cut in 0usize..1500,
        which in 0usize..3,
    ) {
        let packets = packets(&samples(720), 80e6);
        let (mut reader, mut back) = (reader(), Vec::new());
        reader.push(&packets[0], &mut back).unwrap();
        reader.push(&packets[1], &mut back).unwrap();
        let mut packet = packets[which].clone();
        for (place, value) in changes {
            let place = place % packet.len();
            packet[place] = value;
        }
        let _ = reader.push(&packet, &mut back);
        let _ = reader.push(&packet[..cut.min(packet.len())], &mut back);
        let counts = reader.counts();
        prop_assert_eq!(back.len() as u64, counts.samples + counts.lost_samples);
        prop_assert!(counts.lost_samples <= 1_000_000);
    }

    #[test]
    fn times_of_samples_are_their_places_again(
        hertz in 1.0f64..2e9,
        place in 0u64..1 << 50,
        seconds: u32,
        picoseconds in 0u64..PICOSECONDS,
    ) {
        // What 32 bits of seconds hold, and half of them for which is earlier.
        prop_assume!(place as f64 / hertz < 2e9);
        let rate = SampleRate::new(hertz).unwrap();
        let start = PacketTime { seconds, picoseconds };
        let time = start.after(place, rate);
        prop_assert!(time.picoseconds < PICOSECONDS);
        prop_assert_eq!(rate.samples(time.since(start)), i128::from(place));
    }

    #[test]
    fn whichever_packets_are_lost_the_others_stay_in_their_place(
        kept in prop::collection::vec(any::<bool>(), 60),
        hertz in 1e3f64..1e9,
    ) {
        let sent = samples(360 * 60);
        let all = packets(&sent, hertz);
        let (mut reader, mut back) = (reader(), Vec::new());
        reader.push(&all[0], &mut back).unwrap();
        let data = all.iter().filter(|packet| packet.len() > 200);
        let mut expected = Vec::new();
        for ((packet, sent), kept) in data.zip(sent.chunks(360)).zip(&kept) {
            if *kept {
                reader.push(packet, &mut back).unwrap();
                expected.extend_from_slice(sent);
            } else if !expected.is_empty() {
                expected.extend([Complex32::default(); 360]);
            }
        }
        // Losses at the end show with the next packet.
        let trailing = kept.iter().rev().take_while(|kept| !**kept).count();
        expected.truncate(expected.len().saturating_sub(360 * trailing));
        prop_assert!(back == expected);
    }
}
