//! Copies of the latest datagrams of each drop cause, for whoever wants to look at them.
//!
//! The thread that drops datagrams writes: without a lock, without ever waiting, and a bounded
//! number of copies in any second. Whoever reads does not hold it up. A datagram that is placed
//! costs nothing here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ground::Latest;
use spead::digitiser::PREAMBLE_LEN;

use super::cause::DropCause;
use crate::net::frame::HEADERS_LEN;

/// Copies of each cause: so many of the latest are kept, and so many are made in an [`INTERVAL`].
const COPIES: usize = 32;
/// In nanoseconds.
const INTERVAL: u64 = 1_000_000_000;
/// Words of a copy before its bytes: time of arrival, length, bytes copied.
const HEAD: usize = 3;
/// Words of a copy.
const WORDS: usize = HEAD + DroppedPackets::BYTES / size_of::<u64>();

/// Bytes that are copied of datagrams that may be other programs': headers alone, up to those of
/// TCP.
const OTHERS: usize = 64;

/// A digitiser's heap has its items in what is copied, also behind the tags of two VLANs.
const _: () = assert!(HEADERS_LEN + 8 + PREAMBLE_LEN <= DroppedPackets::BYTES);

/// A datagram that was dropped, as far as it was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedPacket {
    /// Why.
    pub cause: DropCause,
    /// UNIX time in nanoseconds, by the host's clock, at which it was taken from its queue.
    pub arrived: u64,
    /// Bytes of the whole frame.
    pub length: usize,
    /// The first bytes of the frame.
    pub bytes: Vec<u8>,
}

/// The latest datagrams of each drop cause: written by one thread, read by anyone.
pub struct DroppedPackets {
    causes: Box<[CauseCopies]>,
}

/// The copies of one cause, the oldest of which the next one replaces.
struct CauseCopies {
    places: [Latest<WORDS>; COPIES],
    /// Copies made so far.
    made: AtomicU64,
    /// When the datagram arrived whose copy the next one replaces; 0 while there is room.
    oldest: AtomicU64,
}

impl Default for DroppedPackets {
    fn default() -> Self {
        let none = |_: &DropCause| CauseCopies {
            places: std::array::from_fn(|_| Latest::new([0; WORDS])),
            made: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
        };
        Self {
            causes: DropCause::ALL.iter().map(none).collect(),
        }
    }
}

impl fmt::Debug for DroppedPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.read()).finish()
    }
}

impl DroppedPackets {
    /// Bytes that are copied of a frame, at most: all headers, and all items of a digitiser's heap.
    pub const BYTES: usize = 192;

    /// Keeps a copy of a datagram of `length` bytes, of which the parser saw `frame`, unless there
    /// are as many of its cause already as may be in a second. Of datagrams that are not the
    /// engine's the headers are copied alone, because anyone can read copies. It arrived at a UNIX
    /// time in nanoseconds. Only one thread may call this.
    pub(super) fn keep(&self, cause: DropCause, arrived: u64, frame: &[u8], length: usize) {
        let copies = &self.causes[cause as usize];
        let oldest = copies.oldest.load(Ordering::Relaxed);
        // A clock that was set back does not end the copies.
        if oldest != 0 && arrived.abs_diff(oldest) < INTERVAL {
            return;
        }
        let most = match cause {
            DropCause::NotIpv4Udp | DropCause::NotOurs => OTHERS,
            _ => Self::BYTES,
        };
        let copied = &frame[..frame.len().min(most)];
        let mut words = [0; WORDS];
        let (head, rest) = words.split_at_mut(HEAD);
        head.copy_from_slice(&[arrived.max(1), length as u64, copied.len() as u64]);
        for (word, bytes) in rest.iter_mut().zip(copied.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let made = copies.made.load(Ordering::Relaxed);
        copies.place(made).write(words);
        copies.made.store(made + 1, Ordering::Release);
        let [oldest, ..] = copies.place(made + 1).read();
        copies.oldest.store(oldest, Ordering::Relaxed);
    }

    /// The copies that there are: one cause after the other, those of each from the oldest on.
    pub fn read(&self) -> Vec<DroppedPacket> {
        let causes = DropCause::ALL.iter().zip(&self.causes);
        let packets = causes.flat_map(|(&cause, copies)| {
            let made = copies.made.load(Ordering::Acquire);
            let numbers = made..made + COPIES as u64;
            numbers.filter_map(move |number| packet(cause, copies.place(number).read()))
        });
        packets.collect()
    }
}

impl CauseCopies {
    /// Where the copy of this number is.
    fn place(&self, number: u64) -> &Latest<WORDS> {
        &self.places[(number % COPIES as u64) as usize]
    }
}

/// The datagram that a place has, if it has one.
fn packet(cause: DropCause, words: [u64; WORDS]) -> Option<DroppedPacket> {
    let [arrived, length, copied] = *words.first_chunk::<HEAD>()?;
    let bytes = words[HEAD..].iter().flat_map(|word| word.to_ne_bytes());
    (arrived > 0).then(|| DroppedPacket {
        cause,
        arrived,
        length: length as usize,
        bytes: bytes.take(copied as usize).collect(),
    })
}

/// UNIX time now in nanoseconds.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = INTERVAL;
    /// Some time in 2025.
    const BEGIN: u64 = 1_763_700_000 * SECOND;

    /// A frame of so many bytes that begins with a number.
    fn frame(number: u64, length: usize) -> Vec<u8> {
        let mut frame = number.to_be_bytes().to_vec();
        frame.resize(length, number as u8);
        frame
    }

    fn numbers(packets: &[DroppedPacket]) -> Vec<u64> {
        let number = |packet: &DroppedPacket| *packet.bytes.first_chunk().unwrap();
        packets.iter().map(number).map(u64::from_be_bytes).collect()
    }

    #[test]
    fn nothing_is_kept_before_something_is_dropped() {
        assert_eq!(DroppedPackets::default().read(), []);
    }

    #[test]
    fn packets_are_kept_under_their_causes_with_their_first_bytes_and_whole_length() {
        let packets = DroppedPackets::default();
        let mut expected = Vec::new();
        for (number, &cause) in DropCause::ALL.iter().enumerate() {
            let length = [0, 8, 60, 191, 192, 193, 5234][number % 7];
            let whole = vec![number as u8; length];
            let arrived = BEGIN + number as u64;
            let others = [DropCause::NotIpv4Udp, DropCause::NotOurs].contains(&cause);
            let most = if others { 64 } else { 192 };
            // The first segment of a chain may be all that is seen.
            packets.keep(cause, arrived, &whole, length + number);
            expected.push(DroppedPacket {
                cause,
                arrived,
                length: length + number,
                bytes: whole[..length.min(most)].to_vec(),
            });
        }
        assert_eq!(packets.read(), expected);
    }

    #[test]
    fn the_latest_of_each_cause_are_kept() {
        let packets = DroppedPackets::default();
        for number in 0..100 {
            let arrived = BEGIN + number * SECOND;
            packets.keep(DropCause::TooOld, arrived, &frame(number, 300), 300);
        }
        packets.keep(DropCause::NotOurs, BEGIN, &frame(7, 60), 60);
        let read = packets.read();
        let (old, other): (Vec<_>, Vec<_>) = read
            .into_iter()
            .partition(|packet| packet.cause == DropCause::TooOld);
        assert_eq!(numbers(&old), (68..100).collect::<Vec<_>>());
        assert_eq!(old[31].arrived, BEGIN + 99 * SECOND);
        assert_eq!(numbers(&other), [7]);
    }

    #[test]
    fn a_flood_is_copied_at_a_bounded_rate() {
        let packets = DroppedPackets::default();
        let made = || {
            packets.causes[DropCause::Duplicate as usize]
                .made
                .load(Ordering::Relaxed)
        };
        // A million a second.
        for number in 0..2_500_000 {
            let arrived = BEGIN + 1000 * number;
            packets.keep(DropCause::Duplicate, arrived, &frame(number, 64), 64);
        }
        assert_eq!(made(), 96);
        let last: Vec<_> = (2_000_000..2_000_032).collect();
        assert_eq!(numbers(&packets.read()), last);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_end_the_copies() {
        let packets = DroppedPackets::default();
        for number in 0..32 {
            packets.keep(DropCause::TooOld, BEGIN, &frame(number, 64), 64);
        }
        packets.keep(DropCause::TooOld, BEGIN / 2, &frame(32, 64), 64);
        assert_eq!(numbers(&packets.read()), (1..33).collect::<Vec<_>>());
    }
}
