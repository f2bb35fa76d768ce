//! What an engine's sensors say of its gains and delays, in katgpucbf's words.

use dsp::delay::{DelayError, LinearDelay};
use ground::SampleClock;
use katcp::number::{parse_complex, parse_float, parse_integer};
use num_complex::Complex32;

use crate::engine::steer::{GainError, Gains};

/// A reading of an engine's that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToldError {
    /// It does not read as it should.
    #[error("'{text}' is no {what}")]
    Text {
        /// The beginning of it.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// As many gains as no output of this shape has.
    #[error(transparent)]
    Gains(#[from] GainError),
    /// A model that cannot be used.
    #[error(transparent)]
    Delay(#[from] DelayError),
}

/// Characters of a reading that an error shows.
const SHOWN: usize = 60;

fn no(text: &str, what: &'static str) -> ToldError {
    let text = text.chars().take(SHOWN).collect();
    ToldError::Text { text, what }
}

/// Text between two brackets, in parts.
fn parts(text: &str, open: char, close: char) -> Option<impl Iterator<Item = &str>> {
    let inner = text.trim().strip_prefix(open)?.strip_suffix(close)?;
    Some(inner.split(',').map(str::trim))
}

/// The seed of a sensor `dither-seed`, of 64 bits.
pub fn seed(text: &str) -> Result<u64, ToldError> {
    let text = text.trim();
    text.parse().map_err(|_| no(text, "seed such as 1"))
}

/// Gains of a sensor `eq`: one for all channels, or one for each.
pub fn gains(text: &str, channels: usize) -> Result<Gains, ToldError> {
    const WHAT: &str = "list of gains such as [1.0+0.0j]";
    let values = parts(text, '[', ']').ok_or_else(|| no(text, WHAT))?;
    let gain = |part: &str| {
        let gain = parse_complex(part).ok_or_else(|| no(part, "gain such as 0.5-2j"))?;
        Ok::<_, ToldError>(Complex32::new(gain.re as f32, gain.im as f32))
    };
    let values = values.map(gain).collect::<Result<Vec<_>, _>>()?;
    Ok(Gains::new(channels, &values)?)
}

/// The model of a sensor `delay`: start timestamp, then seconds, seconds per second, radians,
/// radians per second. One that starts before all timestamps is that of an engine that was given
/// none.
pub fn delay(text: &str, clock: SampleClock) -> Result<LinearDelay, ToldError> {
    const WHAT: &str = "delay model such as (0, 1e-9, 0.0, 0.0, 0.0)";
    let parts: Vec<_> = parts(text, '(', ')')
        .ok_or_else(|| no(text, WHAT))?
        .collect();
    let [start, numbers @ ..] = &parts[..] else {
        return Err(no(text, WHAT));
    };
    let start = parse_integer(start).ok_or_else(|| no(text, WHAT))?;
    let numbers = numbers.iter().map(|part| parse_float(part));
    let numbers = numbers.collect::<Option<Vec<_>>>();
    let Some(&[delay, rate, phase, phase_rate]) = numbers.as_deref() else {
        return Err(no(text, WHAT));
    };
    if start < 0 {
        return Ok(LinearDelay::ZERO);
    }
    let hz = clock.adc_sample_rate;
    Ok(LinearDelay::new(
        start,
        delay * hz,
        rate,
        phase,
        phase_rate / hz,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::fgpu::{delay_text, gains_text};

    const CLOCK: SampleClock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };

    /// As Karoo writes them, which its tests hold against katgpucbf's.
    #[test]
    fn what_an_engine_writes_is_read_back() {
        let values = [0.5, -2.0, 1e-3, 7.0].map(|re| Complex32::new(re, 0.25));
        for given in [&values[..], &values[..1]] {
            let set = Gains::new(4, given).unwrap();
            assert_eq!(gains(&gains_text(&set), 4).unwrap(), set);
        }
        let model = LinearDelay::new(17_120_000_000, 6.43712, -1e-10, 1.25, 2e-9).unwrap();
        let read = delay(&delay_text(&model, CLOCK), CLOCK).unwrap();
        assert_eq!(read.start(), model.start());
        assert!((read.delay() - model.delay()).abs() < 1e-12);
        assert!((read.phase_rate() - model.phase_rate()).abs() < 1e-20);
        let none = delay(&delay_text(&LinearDelay::ZERO, CLOCK), CLOCK).unwrap();
        assert_eq!(none, LinearDelay::ZERO);
    }

    #[test]
    fn anything_else_is_refused_in_words() {
        for (text, words) in [
            ("", "is no list of gains"),
            ("[1, x]", "'x' is no gain"),
            ("[1, 2]", "1, for all channels, or 4"),
            ("[inf]", "must be finite"),
        ] {
            let error = gains(text, 4).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for text in [
            "(1, 2)",
            "1, 2, 3, 4, 5",
            "(a, 1, 2, 3, 4)",
            "(1, 2, 3, 4, 5, 6)",
        ] {
            let error = delay(text, CLOCK).unwrap_err().to_string();
            assert!(error.contains("is no delay model"), "{error}");
        }
        assert!(delay("(0, 0.0, 1.5, 0.0, 0.0)", CLOCK).is_err());
    }
}
