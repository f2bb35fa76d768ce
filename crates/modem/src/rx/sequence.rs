//! Numbers of frames, by which a receiver knows how many it did not get.

use super::frame::{Outcome, ReceivedFrame};
use crate::waveform::SEQUENCE_NUMBERS;

/// Counts the numbers that are missing between delivered frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceGaps {
    last: Option<u8>,
    missing: u64,
}

impl SequenceGaps {
    /// Takes a frame. Only one that was delivered has a number that is known.
    pub fn take(&mut self, frame: &ReceivedFrame) {
        if frame.outcome == Outcome::Delivered {
            self.number(frame.header.sequence());
        }
    }

    fn number(&mut self, number: u8) {
        if let Some(last) = self.last {
            let step = (SEQUENCE_NUMBERS + number - last - 1) % SEQUENCE_NUMBERS;
            self.missing += u64::from(step);
        }
        self.last = Some(number);
    }

    /// Numbers that were missing until now. 64 frames in a row that are missing are not seen.
    pub fn missing(&self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_are_counted_across_the_turn() {
        let missing = |numbers: &[u8]| {
            let mut gaps = SequenceGaps::default();
            numbers.iter().for_each(|&number| gaps.number(number));
            gaps.missing()
        };
        assert_eq!(missing(&[]), 0);
        assert_eq!(missing(&[17]), 0);
        assert_eq!(missing(&[62, 63, 0, 1]), 0);
        assert_eq!(missing(&[62, 1, 2, 5]), 4);
        assert_eq!(missing(&[5, 5]), 63);
    }
}
