//! Differences, as they are told and kept.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, UNIX_EPOCH};

use ground::{SampleClock, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::judge::{Finding, Guess};

/// Ranges of channels that a line names.
const RANGES: usize = 6;

/// A moment: a sample, and when that was.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Moment {
    /// Timestamp of heaps, in ADC samples.
    pub timestamp: u64,
    /// UNIX time of it, in seconds.
    pub unix: f64,
    /// The same in UTC, to the second.
    pub utc: String,
}

impl Moment {
    /// When `timestamp` was.
    pub fn of(timestamp: u64, clock: SampleClock) -> Self {
        let unix = Timestamp(timestamp).unix(clock);
        let since = Duration::try_from_secs_f64(unix).unwrap_or_default();
        Self {
            timestamp,
            unix,
            // httpdate writes years of up to four digits only.
            utc: match since.as_secs() {
                0..=253_402_300_799 => httpdate::fmt_http_date(UNIX_EPOCH + since),
                _ => String::new(),
            },
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:.3}, {})", self.timestamp, self.unix, self.utc)
    }
}

/// Channels from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChannelRange {
    /// First channel.
    pub first: usize,
    /// Last channel.
    pub last: usize,
}

impl From<&RangeInclusive<usize>> for ChannelRange {
    fn from(range: &RangeInclusive<usize>) -> Self {
        let (first, last) = (*range.start(), *range.end());
        Self { first, last }
    }
}

/// What an engine sent was not what was computed here: where, since when, and how.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    /// Stream.
    pub stream: String,
    /// Polarisation.
    pub pol: usize,
    /// What may be the reason.
    pub guess: Guess,
    /// Channels.
    pub channels: Vec<ChannelRange>,
    /// Start of the heaps in which it was first seen.
    pub from: Moment,
    /// End of the same.
    pub seen_until: Moment,
    /// Start of the first heaps without it; none while it lasts.
    pub until: Option<Moment>,
    /// Amplitude of what came by that of what was computed here; none without any.
    pub ratio: Option<f64>,
    /// The same in decibels.
    pub ratio_db: Option<f64>,
    /// Phase of what came less that of what was computed here, in degrees, in the middle of the
    /// channels.
    pub phase_deg: f64,
    /// By how many picoseconds what came is later, if phases are a slope over channels.
    pub delay_ps: Option<f64>,
    /// Coherence: 1 for values that are alike.
    pub coherence: f64,
    /// Share of the complex samples that differ.
    pub unequal_share: f64,
}

impl Difference {
    /// What was found in heaps of samples from `from` to `to`.
    pub fn new(
        (stream, pol): (&str, usize),
        (from, to): (u64, u64),
        found: &Finding,
        clock: SampleClock,
    ) -> Self {
        let mut difference = Self {
            stream: stream.to_owned(),
            pol,
            guess: found.guess,
            channels: Vec::new(),
            from: Moment::of(from, clock),
            seen_until: Moment::of(to, clock),
            until: None,
            ratio: None,
            ratio_db: None,
            phase_deg: 0.0,
            delay_ps: None,
            coherence: 0.0,
            unequal_share: 0.0,
        };
        difference.show(found);
        difference
    }

    /// Describes it as it was found now.
    pub fn show(&mut self, found: &Finding) {
        let ratio = Some(found.ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        self.guess = found.guess;
        self.channels = found.channels.iter().map(ChannelRange::from).collect();
        self.ratio = ratio;
        self.ratio_db = ratio.map(|ratio| 20.0 * ratio.log10());
        self.phase_deg = found.phase.to_degrees();
        self.delay_ps = found.delay.map(|delay| delay * 1e12);
        self.coherence = found.alike;
        self.unequal_share = found.unequal;
    }

    /// Where: stream, polarisation, channels.
    fn place(&self) -> String {
        let name = |range: &ChannelRange| match range.first == range.last {
            true => range.first.to_string(),
            false => format!("{}-{}", range.first, range.last),
        };
        let named: Vec<_> = self.channels.iter().take(RANGES).map(name).collect();
        let more = match self.channels.len().saturating_sub(RANGES) {
            0 => String::new(),
            more => format!(" and {more} ranges more"),
        };
        let one = self.channels.len() == 1 && self.channels[0].first == self.channels[0].last;
        let channels = if one { "channel" } else { "channels" };
        let (stream, pol, named) = (&self.stream, self.pol, named.join(", "));
        format!("{stream} input {pol} {channels} {named}{more}")
    }

    /// How the two differ.
    fn how(&self) -> String {
        let ratio = match (self.ratio, self.ratio_db) {
            (Some(ratio), Some(db)) => format!("{ratio:.4} times ({db:+.3} dB)"),
            _ => "no multiple of".to_owned(),
        };
        let phase = format!("turned by {:+.3} degrees", self.phase_deg);
        match (self.guess, self.delay_ps) {
            (Guess::Delay, Some(ps)) => {
                format!("{ps:+.3} ps later than here (a delay?), {ratio} as large, {phase}")
            }
            (Guess::Silence, _) if self.ratio.is_none() => {
                "zeros on one side alone (no signal, or a gain of 0?)".to_owned()
            }
            (Guess::Values, _) => format!(
                "other values (coherence {:.3}: other samples, other channels, a wrong shape?)",
                self.coherence
            ),
            (Guess::Gains, _) => format!(
                "in each channel other gains (gains of channels?), in the mean {ratio} as large, {phase}"
            ),
            _ => format!("{ratio} what is computed here, {phase} (a gain?)"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: from {} on the engine sends {}; {:.2} % of samples differ",
            self.place(),
            self.from,
            self.how(),
            100.0 * self.unequal_share
        )?;
        match &self.until {
            Some(until) => write!(f, "; until {until}"),
            None => Ok(()),
        }
    }
}

/// News of a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// One has begun.
    Begins(Difference),
    /// It is twice as large as when it was told last, or in twice as many channels.
    Grows(Difference),
    /// It is over.
    Ends(Difference),
}
