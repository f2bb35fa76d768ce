//! Losses on purpose: packets that are left out, and the frames that they touch.

use std::collections::VecDeque;
use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Serialize;

/// Leaves out a share of the packets.
#[derive(Clone, Debug)]
pub struct Losses {
    share: f64,
    random: ChaCha8Rng,
    /// Samples of frames whose packets are not all sent, and whether one was left out.
    frames: VecDeque<(Range<u64>, bool)>,
    left: LossesLeft,
}

/// What was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LossesLeft {
    /// Data packets.
    pub packets: u64,
    /// Samples in them.
    pub samples: u64,
    /// Frames of which samples were in them.
    pub frames: u64,
}

impl Losses {
    /// The same seed leaves out the same packets.
    pub fn new(share: f64, seed: u64) -> Self {
        Self {
            share,
            random: ChaCha8Rng::seed_from_u64(seed),
            frames: VecDeque::new(),
            left: LossesLeft::default(),
        }
    }

    /// Tells of a frame before its packets come.
    pub fn frame(&mut self, samples: Range<u64>) {
        if self.share > 0.0 {
            self.frames.push_back((samples, false));
        }
    }

    /// Whether a data packet is to be left out. Packets come in their order.
    pub fn loses(&mut self, samples: Range<u64>) -> bool {
        if self.share <= 0.0 {
            return false;
        }
        while let Some((frame, _)) = self.frames.front()
            && frame.end <= samples.start
        {
            self.frames.pop_front();
        }
        if !self.random.random_bool(self.share) {
            return false;
        }
        self.left.packets += 1;
        self.left.samples += samples.end - samples.start;
        for (frame, touched) in &mut self.frames {
            if frame.start >= samples.end {
                break;
            }
            self.left.frames += u64::from(!*touched);
            *touched = true;
        }
        true
    }

    /// What was left out so far.
    pub fn left(&self) -> LossesLeft {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_once_and_only_if_touched() {
        let mut all = Losses::new(1.0, 0);
        all.frame(100..200);
        all.frame(205..300);
        all.frame(300..400);
        // Before the first; the end of the first; between; both others; again.
        let counts = [
            (0..100, 0),
            (190..203, 1),
            (203..205, 1),
            (290..301, 3),
            (301..350, 3),
        ];
        for (packet, frames) in counts {
            assert!(all.loses(packet));
            assert_eq!(all.left().frames, frames);
        }
        assert_eq!((all.left().packets, all.left().samples), (5, 175));
        let mut none = Losses::new(0.0, 0);
        none.frame(0..10);
        assert!(!none.loses(0..10));
        assert_eq!(none.left(), LossesLeft::default());
    }
}
