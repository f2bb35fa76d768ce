//! Power of each channel of a stream, for those who look at it while it comes.

use ground::N_POL;

use super::shape::Shape;
use super::track::add_power;

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
}

/// Sums of |x|² while packets come.
#[derive(Debug, Default)]
pub struct PowerSums {
    /// Per channel: Σ|x|² of each polarisation, and how many were added.
    channels: Vec<([u64; N_POL], u64)>,
    timestamp: u64,
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
        self.channels.resize(each * substreams, Default::default());
        self.timestamp = self.timestamp.max(timestamp);
        let row = (shape.spectra * shape.bits.jones_bytes() as u64) as usize;
        let (mut at, mut rest) = (start as usize, payload);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(row - at % row));
            let channel = sub * each + at / row;
            if let Some(sums) = self.channels.get_mut(channel) {
                add_power(piece, at as u64, shape.bits, sums);
            }
            (at, rest) = (at + piece.len(), behind);
        }
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
        let powers = sums.take().unwrap();
        assert_eq!(powers.timestamp, 96);
        assert!(powers.means[0][..2].iter().all(|mean| mean.is_nan()));
        assert_eq!(powers.means[0][2..], [5.0, 0.0]);
        assert_eq!(powers.means[1][2..], [9.0, 16.0]);
        assert_eq!(sums.take(), None);
    }
}
