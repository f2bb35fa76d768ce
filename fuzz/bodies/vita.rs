//! Packets of VITA 49.2 that come to a reader of a stream: for the fuzz target, and for the test of
//! its corpus.

use karoo_modem::formats::FullScale;
use karoo_modem::vita::StreamReader;

/// Samples of a gap that zeros stand for.
const MOST_LOST: u64 = 4096;

/// Reads bytes as packets, each behind its length in two bytes.
///
/// # Panics
///
/// Where a packet is not counted once, or gives other samples than its counts say.
pub fn vita(bytes: &[u8]) {
    let mut reader = StreamReader::new(None, None, FullScale::default(), MOST_LOST);
    let (mut rest, mut packets, mut samples) = (bytes, 0, Vec::new());
    while let Some((length, more)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(more.len());
        let (packet, after) = more.split_at(length);
        (rest, packets) = (after, packets + 1);
        let before = samples.len();
        if let Err(error) = reader.push(packet, &mut samples) {
            let _ = error.to_string();
            assert_eq!(samples.len(), before);
        }
        assert!(samples.len() - before <= MOST_LOST as usize + packet.len() / 4);
    }
    let counts = reader.counts();
    assert_eq!(samples.len() as u64, counts.samples + counts.lost_samples);
    let all = counts.packets
        + counts.contexts
        + counts.late
        + counts.other_streams
        + counts.without_rate
        + counts.refused
        + counts.contexts_refused;
    assert_eq!(all, packets);
}
