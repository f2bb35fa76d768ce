//! Timing of the short training field: a state machine over the correlator's peaks, delay and
//! clock.

use std::collections::VecDeque;

use super::delay::VariableDelay;
use super::peaks::Seen;

/// Samples from peak to peak.
const PERIOD: u32 = 96;
/// Samples since the last accepted peak at which the next one is expected.
const WINDOW: std::ops::Range<u32> = 92..101;
/// Peaks that must have been measured before the field can end.
const LEAST_PEAKS: u32 = 3;
/// The delay of a signal that is where its first peak was: the middle of the delay line.
const MIDDLE: f32 = 22.0;
/// Differences of delays that the clock is the mean of, at most.
const DIFFERENCES: usize = 32;
/// The newest measurements that are spoilt, at the end, by what follows the repetitions.
const SPOILT: usize = 3;

/// Where the state machine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimingState {
    /// Fewer than two peaks.
    #[default]
    Waiting,
    /// In the short training field.
    Training,
    /// Behind it.
    Done,
}

/// The original's timing: how far the signal is to be delayed.
#[derive(Clone, Debug)]
pub struct Timing {
    state: TimingState,
    /// Samples since the last accepted peak, at most the end of the window.
    count: u32,
    peaks: u32,
    /// Samples by which peaks came earlier than expected, added up.
    integer: f32,
    /// The last measurements, the newest last: samples by which the signal is early.
    measured: VecDeque<f32>,
    /// How that grows, per sample.
    rate: f32,
    delay: f32,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            state: TimingState::Waiting,
            count: WINDOW.end,
            peaks: 0,
            integer: 0.0,
            measured: VecDeque::new(),
            rate: 0.0,
            delay: MIDDLE,
        }
    }
}

impl Timing {
    /// The state.
    pub fn state(&self) -> TimingState {
        self.state
    }

    /// The delay in samples, 22 being that of a signal that is where its first peak was.
    pub fn delay(&self) -> f32 {
        self.delay
    }

    /// Samples by which the delay grows with each sample, without the early-late loop.
    pub fn rate(&self) -> f32 {
        self.rate
    }

    /// Takes a sample in, with what the early-late loop adds to the delay. Tells whether it is the
    /// first peak of a field, which says what third of the samples are symbols.
    pub fn next(&mut self, seen: &Seen, velocity: f32) -> bool {
        let saturated = self.count >= WINDOW.end;
        let in_window = WINDOW.contains(&self.count);
        let accepted = seen.peak && (self.state == TimingState::Waiting || in_window);
        let first = accepted && saturated;
        self.delay += self.rate + velocity;
        if first {
            self.forget();
        } else if accepted {
            self.integer += PERIOD as f32 - (self.count + 1) as f32;
            match self.state {
                // In the published diagram the second peak changes the state and nothing else.
                TimingState::Waiting => self.state = TimingState::Training,
                TimingState::Training => self.measure(self.integer + seen.early),
                TimingState::Done => {}
            }
        } else if self.state == TimingState::Training {
            if seen.a_in_range && in_window && !seen.peak && self.peaks >= LEAST_PEAKS {
                self.done();
            } else if saturated {
                self.state = TimingState::Waiting;
                self.forget();
            }
        }
        self.delay = self.delay.clamp(0.0, VariableDelay::MOST);
        self.count = if accepted {
            0
        } else {
            (self.count + 1).min(WINDOW.end)
        };
        first
    }

    /// Frees a machine that is done for the next frame.
    pub fn reset(&mut self) {
        if self.state == TimingState::Done {
            self.state = TimingState::Waiting;
            self.forget();
        }
    }

    fn forget(&mut self) {
        (self.peaks, self.integer, self.rate) = (0, 0.0, 0.0);
        self.measured.clear();
    }

    fn measure(&mut self, early: f32) {
        self.peaks += 1;
        self.measured.push_back(early);
        if self.measured.len() > DIFFERENCES + 1 {
            self.measured.pop_front();
        }
        self.rate = self.mean_rate(0);
        self.delay = MIDDLE + early;
    }

    /// The mean of the differences but the newest `left_out`, per sample.
    fn mean_rate(&self, left_out: usize) -> f32 {
        let last = self.measured.len().saturating_sub(left_out + 1);
        match (self.measured.front(), self.measured.get(last)) {
            (Some(oldest), Some(newest)) if last > 0 => {
                (newest - oldest) / (last as f32 * PERIOD as f32)
            }
            _ => 0.0,
        }
    }

    fn done(&mut self) {
        self.state = TimingState::Done;
        self.rate = self.mean_rate(SPOILT);
        let good = self.measured.len().saturating_sub(SPOILT + 1);
        let early = self.measured.get(good).copied().unwrap_or(0.0);
        self.delay = MIDDLE + early + SPOILT as f32 * PERIOD as f32 * self.rate;
    }
}
