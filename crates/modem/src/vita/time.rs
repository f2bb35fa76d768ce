//! Times of packets as counts of samples, exactly.

/// Picoseconds of a second.
pub const PICOSECONDS: u64 = 1_000_000_000_000;
/// Binary places of rates and frequencies in context packets.
pub(super) const PLACES: u32 = 20;

/// A rate of samples, in units of 2⁻²⁰ Hz as context packets have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRate(u64);

/// A rate that no stream can have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a sample rate of {0} Hz: it must be 1 Hz to 1 THz")]
pub struct SampleRateError(pub f64);

impl SampleRate {
    /// A rate in Hz.
    pub fn new(hertz: f64) -> Result<SampleRate, SampleRateError> {
        match (1.0..=1e12).contains(&hertz) {
            true => Ok(SampleRate(
                (hertz * f64::from(1u32 << PLACES)).round() as u64
            )),
            false => Err(SampleRateError(hertz)),
        }
    }

    /// The rate in Hz.
    pub fn hertz(self) -> f64 {
        self.0 as f64 / f64::from(1u32 << PLACES)
    }

    /// As in a context packet.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Picoseconds that `samples` last, to the nearest.
    fn duration(self, samples: u64) -> u128 {
        let numerator = u128::from(samples) * (u128::from(PICOSECONDS) << PLACES);
        (numerator + u128::from(self.0 / 2)) / u128::from(self.0)
    }

    /// Samples within a time, to the nearest; negative for one that lies before.
    pub(super) fn samples(self, picoseconds: i128) -> i128 {
        let unit = i128::from(PICOSECONDS) << PLACES;
        // At most 2³² seconds, which is below 2⁷² ps, times 2⁶⁰.
        let numerator = picoseconds.saturating_mul(i128::from(self.0));
        (numerator.saturating_add(unit / 2)).div_euclid(unit)
    }
}

/// A time: seconds since 1970, or whatever a stream's sender counts from, and picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketTime {
    /// Whole seconds.
    pub seconds: u32,
    /// Picoseconds behind them, less than a second.
    pub picoseconds: u64,
}

impl PacketTime {
    /// The time of a sample, if sample 0 has this one. Seconds begin anew after 2³².
    pub fn after(self, samples: u64, rate: SampleRate) -> PacketTime {
        let whole = u128::from(self.picoseconds) + rate.duration(samples);
        let seconds = whole / u128::from(PICOSECONDS);
        PacketTime {
            seconds: self.seconds.wrapping_add(seconds as u32),
            picoseconds: (whole % u128::from(PICOSECONDS)) as u64,
        }
    }

    /// Picoseconds from `earlier` to here.
    pub(super) fn since(self, earlier: PacketTime) -> i128 {
        // Nearer than 68 years either way, also where seconds begin anew.
        let seconds = self.seconds.wrapping_sub(earlier.seconds) as i32;
        i128::from(seconds) * i128::from(PICOSECONDS) + i128::from(self.picoseconds)
            - i128::from(earlier.picoseconds)
    }
}
