//! Power of each channel of a stream, for those who look at it while it comes.

use dsp::OutputBits;
use ground::N_POL;

use super::shape::Shape;

/// Powers of a stream since they were last taken.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelPowers {
    /// Timestamp of the newest batch among them.
    pub timestamp: u64,
    /// Mean |x|² of each channel, per polarisation, in squared counts; NaN where nothing came.
    pub means: [Vec<f64>; N_POL],
}

/// What is to be seen of a stream beside its counts.
#[derive(Clone, Debug, Default)]
pub struct StreamView {
    /// Whole heaps of each substream so far.
    pub whole: Vec<u64>,
    /// Powers of the last second in which there were any.
    pub powers: Option<std::sync::Arc<ChannelPowers>>,
    /// Mean power of each polarisation in that second, in dB relative to one count.
    pub power_db: [Option<f64>; N_POL],
}

/// Per channel: Σ|x|² of each polarisation, and how many were added.
type Sums = Vec<([u64; N_POL], u64)>;

/// Sums of |x|² while packets come.
///
/// A batch counts when it is whole, or when a later one comes: what is taken in the middle of a
/// batch would lack channels of which nothing is lost.
#[derive(Debug, Default)]
pub struct PowerSums {
    channels: Sums,
    timestamp: u64,
    /// The newest batch, and how many of its bytes are there.
    newest: Sums,
    newest_timestamp: u64,
    newest_bytes: usize,
}

impl PowerSums {
    /// Adds the payload that begins at byte `start` of a heap, of substream `sub` among so many.
    pub fn add(
        &mut self,
        shape: Shape,
        (sub, substreams): (usize, usize),
        (timestamp, start): (u64, u64),
        payload: &[u8],
    ) {
        let each = shape.channels as usize;
        for sums in [&mut self.channels, &mut self.newest] {
            sums.resize(each * substreams, Default::default());
        }
        if timestamp > self.newest_timestamp {
            self.close();
            self.newest_timestamp = timestamp;
        }
        let is_newest = timestamp == self.newest_timestamp;
        let sums = match is_newest {
            true => &mut self.newest,
            false => &mut self.channels,
        };
        let row = (shape.spectra * shape.bits.jones_bytes() as u64) as usize;
        let (mut at, mut rest) = (start as usize, payload);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(row - at % row));
            if let Some(sums) = sums.get_mut(sub * each + at / row) {
                add_power(piece, at as u64, shape.bits, sums);
            }
            (at, rest) = (at + piece.len(), behind);
        }
        if is_newest {
            self.newest_bytes += payload.len();
            if self.newest_bytes >= row * each * substreams {
                self.close();
            }
        }
    }

    /// Lets the newest batch count, as far as it has come.
    fn close(&mut self) {
        if self.newest_bytes == 0 {
            return;
        }
        for (all, newest) in self.channels.iter_mut().zip(&mut self.newest) {
            let (power, count) = std::mem::take(newest);
            for (sum, power) in all.0.iter_mut().zip(power) {
                *sum += power;
            }
            all.1 += count;
        }
        self.timestamp = self.newest_timestamp;
        self.newest_bytes = 0;
    }

    /// Takes what was added since the last call, if anything was.
    pub fn take(&mut self) -> Option<ChannelPowers> {
        if self.channels.iter().all(|(_, count)| *count == 0) {
            return None;
        }
        let mean = |pol: usize| {
            let channels = self.channels.iter();
            let means = channels.map(|(power, count)| match count {
                0 => f64::NAN,
                _ => power[pol] as f64 / *count as f64,
            });
            means.collect()
        };
        let powers = ChannelPowers {
            timestamp: self.timestamp,
            means: [mean(0), mean(1)],
        };
        self.channels.fill(Default::default());
        Some(powers)
    }
}

/// Adds |x|² of bytes that begin at byte `at` of a heap.
pub(super) fn add_power(
    payload: &[u8],
    at: u64,
    bits: OutputBits,
    (power, jones): &mut ([u64; N_POL], u64),
) {
    let bytes = bits.jones_bytes();
    for (i, &byte) in payload.iter().enumerate() {
        let place = (at as usize + i) % bytes;
        power[place * N_POL / bytes] += parts(byte, bits)
            .map(|x| u64::from(x.unsigned_abs()).pow(2))
            .sum::<u64>();
        *jones += u64::from(place == 0);
    }
}

/// The real and imaginary parts in a byte: one of 8 bits, or both of 4, the real one first.
pub(super) fn parts(byte: u8, bits: OutputBits) -> impl Iterator<Item = i8> {
    let (first, second) = match bits {
        OutputBits::Eight => (byte as i8, None),
        OutputBits::Four => (byte as i8 >> 4, Some((byte << 4) as i8 >> 4)),
    };
    std::iter::once(first).chain(second)
}

#[cfg(test)]
mod tests {
    use dsp::OutputBits;

    use super::*;

    #[test]
    fn each_byte_counts_for_its_channel_and_polarisation() {
        let shape = Shape {
            channels: 2,
            spectra: 2,
            bits: OutputBits::Eight,
        };
        let mut sums = PowerSums::default();
        assert_eq!(sums.take(), None);
        // Two spectra of (1 + 2j, 3), then two of (0, −4j): in packets that cut a channel.
        let heap = [1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 252, 0, 0, 0, 252];
        sums.add(shape, (1, 2), (96, 0), &heap[..6]);
        sums.add(shape, (1, 2), (96, 6), &heap[6..]);
        // The other substream may still come.
        assert_eq!(sums.take(), None);
        sums.add(shape, (1, 2), (192, 0), &heap[..6]);
        let powers = sums.take().unwrap();
        assert_eq!(powers.timestamp, 96);
        assert!(powers.means[0][..2].iter().all(|mean| mean.is_nan()));
        assert_eq!(powers.means[0][2..], [5.0, 0.0]);
        assert_eq!(powers.means[1][2..], [9.0, 16.0]);
        assert_eq!(sums.take(), None);
    }

    /// Batches of two substreams whose heaps lie across the moments at which sums are taken.
    #[test]
    fn a_batch_that_is_coming_does_not_count_in_part() {
        let shape = Shape {
            channels: 1,
            spectra: 2,
            bits: OutputBits::Eight,
        };
        let heap = [3, 4, 0, 1, 3, 4, 0, 1];
        let mut sums = PowerSums::default();
        sums.add(shape, (0, 2), (96, 0), &heap);
        sums.add(shape, (1, 2), (96, 0), &heap[..4]);
        assert_eq!(sums.take(), None);
        // Whole: it counts at once.
        sums.add(shape, (1, 2), (96, 4), &heap[4..]);
        let whole = ChannelPowers {
            timestamp: 96,
            means: [vec![25.0; 2], vec![1.0; 2]],
        };
        assert_eq!(sums.take(), Some(whole));
        // What comes late of an older batch counts at once too.
        sums.add(shape, (0, 2), (192, 0), &heap);
        sums.add(shape, (1, 2), (96, 0), &heap);
        let late = sums.take().unwrap();
        assert!(late.means[0][0].is_nan() && late.means[0][1] == 25.0);
    }
}
