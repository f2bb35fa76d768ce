//! Digitiser power relative to a full-scale sine, averaged over aligned windows.
//!
//! Power is accounted per output **batch**. Batches are aligned to multiples of their length,
//! whatever was skipped before them, and a window is a whole number of batches, so no batch ever
//! crosses the boundary of a window; output chunks, which start anywhere after a skip, could.

use ground::Timestamp;

use crate::SampleBits;

/// Mean power in dB relative to a sine of full amplitude: 10·log₁₀(`power` / `samples` / FS), with
/// FS = (2^(b−1) − 1)²/2 and `power` = Σ x² over `samples` samples.
///
/// No power at all gives `f64::MIN`, the most negative finite number, as telescope sensors expect.
pub fn dbfs(power: u128, samples: u64, bits: SampleBits) -> f64 {
    if power == 0 || samples == 0 {
        return f64::MIN;
    }
    let amplitude = f64::from((1i32 << (bits.get() - 1)) - 1);
    10.0 * (power as f64 / samples as f64 / (amplitude * amplitude / 2.0)).log10()
}

/// Such a power in words: `-27.38 dBFS`, or `no power` where all samples are 0.
pub fn dbfs_words(dbfs: f64, decimals: usize) -> String {
    if dbfs == f64::MIN {
        return "no power".to_owned();
    }
    format!("{dbfs:.decimals$} dBFS")
}

/// Samples in one averaging window: the multiple of `batch_samples` closest to `seconds`, at least
/// one batch.
pub fn window_samples(seconds: f64, adc_sample_rate: f64, batch_samples: u64) -> u64 {
    let batches = (seconds * adc_sample_rate / batch_samples as f64).round_ties_even();
    (batches as u64).max(1).saturating_mul(batch_samples)
}

/// A window that has been left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerReading {
    /// First sample after the window; a multiple of the window's length.
    pub end: Timestamp,
    /// Σ x² over the whole window; None when any of it was missing.
    pub power: Option<u128>,
}

/// Adds up the power of batches over windows aligned to multiples of their length.
#[derive(Clone, Debug)]
pub struct PowerWindow {
    length: u64,
    // Index of the window, sample after the last batch, sum so far.
    current: Option<(u64, Timestamp, Option<u128>)>,
}

impl PowerWindow {
    /// Windows of `length` samples, from [`window_samples`].
    pub fn new(length: u64) -> Self {
        Self {
            length: length.max(1),
            current: None,
        }
    }

    /// Samples in one window.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds the batch of `samples` samples that starts at `start`; its power is None when any of
    /// its input was missing.
    ///
    /// Returns a window's reading when the batch completes it, or, when the batch lies in a later
    /// window and does not complete that, the one that was left unfinished. A gap within a window
    /// leaves its power unknown. So does a batch that overlaps another or crosses a boundary, which
    /// aligned batches never do. Batches of a window that has been left are ignored.
    pub fn add(
        &mut self,
        start: Timestamp,
        samples: u64,
        power: Option<u64>,
    ) -> Option<PowerReading> {
        let end = Timestamp(start.0.checked_add(samples)?);
        let index = start.0 / self.length;
        let begin = Timestamp(index.checked_mul(self.length)?);
        let close = begin.0.checked_add(self.length)?;

        let (left, next, sum) = match self.current {
            Some((current, ..)) if index < current => return None,
            Some((current, next, sum)) if index == current => (None, next, sum),
            Some((current, next, _)) => {
                let done = (current + 1) * self.length;
                let unfinished = PowerReading {
                    end: Timestamp(done),
                    power: None,
                };
                ((next.0 < done).then_some(unfinished), begin, Some(0))
            }
            None => (None, begin, Some(0)),
        };
        let whole = start == next && end.0 <= close;
        let sum = match (whole, sum, power) {
            (true, Some(sum), Some(power)) => Some(sum + u128::from(power)),
            _ => None,
        };
        self.current = Some((index, end.max(next), sum));
        if end.0 >= close && next.0 < close {
            return Some(PowerReading {
                end: Timestamp(close),
                power: sum,
            });
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> PowerWindow {
        PowerWindow::new(100)
    }

    fn add(window: &mut PowerWindow, start: u64, end: u64, power: u64) -> Option<PowerReading> {
        window.add(Timestamp(start), end - start, Some(power))
    }

    fn reading(end: u64, power: Option<u128>) -> Option<PowerReading> {
        Some(PowerReading {
            end: Timestamp(end),
            power,
        })
    }

    #[test]
    fn levels_match_the_reference() {
        let ten = SampleBits::new(10).expect("valid");
        let level = dbfs(200 * 200 * 4096, 4096, ten);
        assert!((level + 5.137518132774).abs() < 1e-12, "{level}");
        assert_eq!(dbfs(0, 4096, ten), -1.7976931348623157e308);
    }

    #[test]
    fn windows_are_whole_batches_of_about_a_second() {
        assert_eq!(window_samples(1.0, 1712e6, 1 << 21), 816 << 21);
        assert_eq!(window_samples(1.0, 1000.0, 1 << 21), 1 << 21);
    }

    #[test]
    fn contiguous_batches_complete_windows() {
        let mut w = window();
        assert_eq!(add(&mut w, 300, 350, 1), None);
        assert_eq!(add(&mut w, 350, 400, 2), reading(400, Some(3)));
        assert_eq!(add(&mut w, 400, 500, 5), reading(500, Some(5)));
        // A whole window after a gap of whole windows.
        assert_eq!(add(&mut w, 700, 775, 7), None);
        assert_eq!(add(&mut w, 775, 800, 1), reading(800, Some(8)));
    }

    #[test]
    fn a_gap_leaves_the_window_unknown() {
        let mut w = window();
        assert_eq!(add(&mut w, 300, 350, 1), None);
        assert_eq!(add(&mut w, 375, 400, 2), reading(400, None));
        // Beginning late is a gap too.
        assert_eq!(add(&mut w, 425, 500, 1), reading(500, None));
        assert_eq!(add(&mut w, 500, 600, 1), reading(600, Some(1)));
    }

    #[test]
    fn missing_input_leaves_the_window_unknown() {
        let mut w = window();
        assert_eq!(w.add(Timestamp(0), 50, None), None);
        assert_eq!(add(&mut w, 50, 100, 2), reading(100, None));
    }

    #[test]
    fn leaving_a_window_early_reports_it_as_unknown() {
        let mut w = window();
        assert_eq!(add(&mut w, 300, 350, 1), None);
        assert_eq!(add(&mut w, 400, 450, 1), reading(400, None));
        // When the new batch completes its own window, only the newer is reported.
        assert_eq!(add(&mut w, 800, 900, 4), reading(900, Some(4)));
    }

    /// Chunks that start anywhere after a skip stopped katgpucbf's accumulator; batches must not.
    #[test]
    fn nothing_that_is_added_can_stop_it() {
        let mut w = window();
        assert_eq!(add(&mut w, 300, 350, 1), None);
        assert_eq!(add(&mut w, 325, 375, 1), None);
        assert_eq!(add(&mut w, 375, 400, 1), reading(400, None));
        assert_eq!(add(&mut w, 375, 400, 1), None);
        assert_eq!(add(&mut w, 100, 200, 1), None);
        assert_eq!(add(&mut w, 450, 550, 1), reading(500, None));
        assert_eq!(add(&mut w, 500, 600, 1), reading(600, Some(1)));
        assert_eq!(w.add(Timestamp(u64::MAX - 5), 10, Some(1)), None);
        assert_eq!(w.add(Timestamp(u64::MAX - 5), 5, Some(1)), None);
        assert_eq!(
            add(&mut w, 600, 700, u64::MAX),
            reading(700, Some(u128::from(u64::MAX)))
        );
    }
}
