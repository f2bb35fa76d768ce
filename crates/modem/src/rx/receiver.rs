//! The receiver: blocks of samples in, frames out.

use num_complex::Complex32;

use super::acquire::Start;
use super::acquirer::Acquirer;
use super::config::{Acquisition, RxConfig, RxConfigError};
use super::correct::Correction;
use super::decoder::{Decoder, FRAME_AFTER};
use super::frame::{Counts, Missed, ReceivedFrame};
use super::original::Front;
use super::pool::Pool;
use super::samples::Samples;

/// Samples before a frame's first symbol that go to a decoder with it.
pub(crate) const FRAME_BEFORE: i64 = 128;

enum Workers {
    Here(Box<Decoder>),
    Threads(Pool),
}

/// How frames are found, and who decodes them.
enum Way {
    Fits(Box<Acquirer>, Workers),
    Original(Box<Front>, Box<Decoder>),
}

/// A receiver of one stream.
///
/// ```
/// use karoo_modem::rx::{Receiver, RxConfig};
/// use num_complex::Complex32;
///
/// let mut receiver = Receiver::new(&RxConfig::default()).unwrap();
/// let mut frames = Vec::new();
/// receiver.push(&[Complex32::ZERO; 1000], &mut frames);
/// receiver.finish(&mut frames);
/// assert!(frames.is_empty());
/// assert_eq!(receiver.counts().samples, 1000);
/// ```
pub struct Receiver {
    way: Way,
    counts: Counts,
    ended: bool,
}

impl Receiver {
    /// A receiver that has seen nothing yet.
    pub fn new(config: &RxConfig) -> Result<Receiver, RxConfigError> {
        config.check()?;
        let decoder = || Box::new(Decoder::new(config));
        let way = match config.acquisition {
            Acquisition::Original { feedback } => {
                Way::Original(Box::new(Front::new(config, feedback)), decoder())
            }
            Acquisition::Fits => {
                let workers = match config.threads {
                    0 => Workers::Here(decoder()),
                    _ => Workers::Threads(Pool::new(config)?),
                };
                Way::Fits(
                    Box::new(Acquirer::new(config.level, config.correct)),
                    workers,
                )
            }
        };
        Ok(Receiver {
            way,
            counts: Counts::default(),
            ended: false,
        })
    }

    /// Takes samples, three a symbol, and appends the frames that are complete, in their order.
    /// Which frames come does not depend on how the stream is cut, but when they come does; with
    /// threads they come when they are decoded.
    ///
    /// Behind the end of the stream ([`finish`](Self::finish)) samples are neither kept nor
    /// counted: another stream is another receiver's.
    pub fn push(&mut self, samples: &[Complex32], frames: &mut Vec<ReceivedFrame>) {
        if self.ended {
            return;
        }
        let counts = &mut self.counts;
        match &mut self.way {
            Way::Original(front, decoder) => front.push(samples, |packet| {
                append(counts, frames, decoder.decode_packet(packet));
            }),
            Way::Fits(acquirer, workers) => {
                acquirer.push(samples, |samples, start| {
                    give(workers, counts, frames, samples, start)
                });
                take(workers, counts, frames, false);
            }
        }
    }

    /// Ends the stream and appends all frames that are left.
    pub fn finish(&mut self, frames: &mut Vec<ReceivedFrame>) {
        self.ended = true;
        let counts = &mut self.counts;
        match &mut self.way {
            Way::Original(front, decoder) => front.finish(|packet| {
                append(counts, frames, decoder.decode_packet(packet));
            }),
            Way::Fits(acquirer, workers) => {
                acquirer.finish(|samples, start| give(workers, counts, frames, samples, start));
                take(workers, counts, frames, true);
            }
        }
    }

    /// What is taken off samples now, if [`RxConfig::correct`] says so; nothing before there are
    /// enough.
    pub fn correction(&self) -> Option<Correction> {
        match &self.way {
            Way::Original(front, _) => front.correction(),
            Way::Fits(acquirer, _) => acquirer.correction(),
        }
    }

    /// Counts until now; frames that threads still have are not in them but as detected.
    pub fn counts(&self) -> Counts {
        let seen = match &self.way {
            Way::Original(front, _) => front.counts,
            Way::Fits(acquirer, _) => acquirer.counts,
        };
        let done = self.counts;
        Counts {
            not_acquired: seen.not_acquired + done.not_acquired,
            delivered: done.delivered,
            mode: done.mode,
            length: done.length,
            check: done.check,
            equaliser: done.equaliser,
            ..seen
        }
    }
}

/// Appends what threads have decoded; all that they were given if `wait`.
fn take(workers: &mut Workers, counts: &mut Counts, frames: &mut Vec<ReceivedFrame>, wait: bool) {
    if let Workers::Threads(pool) = workers {
        pool.take(wait, |frame| append(counts, frames, frame));
    }
}

fn append(
    counts: &mut Counts,
    frames: &mut Vec<ReceivedFrame>,
    frame: Result<ReceivedFrame, Missed>,
) {
    match frame {
        Ok(frame) => {
            counts.add(frame.outcome);
            frames.push(frame);
        }
        Err(missed) => counts.miss(missed),
    }
}

fn give(
    workers: &mut Workers,
    counts: &mut Counts,
    frames: &mut Vec<ReceivedFrame>,
    samples: Samples,
    start: &Start,
) {
    match workers {
        Workers::Here(decoder) => append(counts, frames, decoder.decode(samples, start)),
        Workers::Threads(pool) => {
            let (from, to) = (start.sample - FRAME_BEFORE, start.last() + FRAME_AFTER);
            pool.give(samples, from.max(samples.first), to, start);
        }
    }
}
