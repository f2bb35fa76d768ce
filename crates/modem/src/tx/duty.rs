//! Blank symbols between frames.

use crate::waveform::{BLANK_SYMBOLS, BLOCK_SYMBOLS, FRAME_SYMBOLS};

/// A duty cycle that none can have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a duty cycle of {0:?}: it is 1e-12 to 1; 0.5 sends as long as it pauses")]
pub struct DutyError(f64);

/// Blank symbols after each frame for a duty cycle: what fills the frame's last block of 40
/// symbols, and frame · (1 − d)/d symbols more, rounded to whole blocks.
pub fn blank_symbols(duty: f64) -> Result<u64, DutyError> {
    // Below this a pause has more symbols than a count of samples can have.
    if !(1e-12..=1.0).contains(&duty) {
        return Err(DutyError(duty));
    }
    let blocks = FRAME_SYMBOLS as f64 * (1.0 - duty) / duty / BLOCK_SYMBOLS as f64;
    Ok(BLANK_SYMBOLS as u64 + BLOCK_SYMBOLS as u64 * blocks.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_duty_fills_the_last_block() {
        assert_eq!(blank_symbols(1.0), Ok(24));
    }

    #[test]
    fn half_of_the_time_is_blank_at_half_duty() {
        let blanks = blank_symbols(0.5).unwrap();
        assert_eq!((blanks + 16_096) % 40, 0);
        assert!(blanks.abs_diff(16_096) <= 40, "{blanks}");
    }

    #[test]
    fn duty_cycles_that_none_can_have_are_refused() {
        for duty in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY, 1e-300] {
            assert!(blank_symbols(duty).is_err(), "{duty}");
        }
        let text = blank_symbols(1e-300).unwrap_err().to_string();
        assert!(text.contains("1e-300: it is 1e-12 to 1"), "{text}");
    }
}
