//! Qualification: the properties that SARAO requires of its F-engines, measured from outside.
//!
//! Each requirement is measured on what the program does with a capture, by its own commands: a
//! digitiser is simulated (`karoo dsim`), the F-engine runs over it (`replay`), and its packets are
//! read back (`karoo sink`). So the whole is measured, from packets to packets, and any program
//! with this `replay` can be.
//!
//! | module | what |
//! |---|---|
//! | [`chain`] | the three commands, one behind another |
//! | [`subject`] | the output that is measured, and what is known of it |
//! | `response` | channels, their shape, and what leaks |
//! | `narrowband` | the filter and the centre frequency of narrowband outputs |
//! | `delays` | delay, phase, their rates, when they begin and how often they change |
//! | `group_delay` | the delay of the filters |
//! | `levels` | gains, linearity, rounding |
//! | `tones`, `numbers` | what these measure with |
//! | `live` | requests and sensors of an engine that runs |
//!
//! Requirements and limits are those of MeerKAT's correlator (CBF-REQ), as katgpucbf's
//! qualification of its antenna-channelised-voltage stream has them.

pub mod chain;
mod delays;
mod group_delay;
mod levels;
mod live;
mod narrowband;
mod numbers;
mod response;
pub mod subject;
mod tones;

use crate::report::qualification::{Checked, Curve, Requirement};

pub use chain::{Chain, QualifyError};
pub use live::{LIVE_RULES, LiveError, LiveRule, outputs};
pub use subject::Subject;

/// What was measured for a requirement.
type Measured = Result<(Vec<Checked>, Vec<Curve>), QualifyError>;

/// A requirement, and how it is measured.
pub struct Rule {
    /// Name of the requirement.
    pub name: &'static str,
    /// What it says.
    pub title: &'static str,
    /// Numbers of SARAO's requirements that it is of.
    pub numbers: &'static [&'static str],
    /// How it is measured.
    pub method: &'static str,
    /// Whether it concerns an output.
    concerns: fn(&Subject) -> bool,
    measure: fn(&Chain, &Subject) -> Measured,
}

/// Concerns each output.
fn every(_: &Subject) -> bool {
    true
}

/// All requirements.
pub const RULES: [Rule; 15] = [
    Rule {
        name: "channelisation",
        title: "Tones come out in their channels",
        numbers: &["CBF-REQ-0126"],
        method: "Tones of 0.99 of full scale and 10 bits, at channel 8 and each 3111 channels after it. Powers are those of \
                 up to four runs whose gains are 100 apart: of each channel the one with the highest gain that does not clip, \
                 without the power of quantisation.",
        concerns: every,
        measure: response::channelisation,
    },
    Rule {
        name: "channel-shape",
        title: "Channels are as narrow as they have to be",
        numbers: &["CBF-REQ-0126"],
        method: "Tones of 16 bits at 128 offsets a channel, many at a time, channels apart: the response of a channel over \
                 the offset from its centre.",
        concerns: every,
        measure: response::shape,
    },
    Rule {
        name: "floor",
        title: "Far channels hear nothing of a tone",
        numbers: &["CBF-REQ-0126"],
        method: "A tone of 16 bits at the centre of a channel. Of each channel the part that turns with the tone, which \
                 averages noise away.",
        concerns: every,
        measure: response::floor,
    },
    Rule {
        name: "filter-response",
        title: "The pass band is flat, and without aliases",
        numbers: &[],
        method: "Tones of 16 bits across the pass band, and at frequencies that the decimation folds onto it.",
        concerns: Subject::has_pass_band,
        measure: narrowband::filter,
    },
    Rule {
        name: "centre-frequency",
        title: "The centre frequency can be set in steps of 100 Hz",
        numbers: &["CBF-REQ-0044"],
        method: "The same tone through the output as it is, and with its centre 100 Hz higher. How fast its phase turns \
                 tells its frequency.",
        concerns: Subject::is_narrowband,
        measure: narrowband::centre_frequency,
    },
    Rule {
        name: "delay",
        title: "Delays are applied",
        numbers: &["CBF-REQ-0128", "CBF-REQ-0185"],
        method: "Noise that both polarisations have in common, one of them delayed by whole samples; the delay model of the \
                 other makes up for it. The phase between the two, averaged over spectra, beside the one that remains.",
        concerns: every,
        measure: delays::delay,
    },
    Rule {
        name: "delay-rate",
        title: "Delays change as they are told to",
        numbers: &["CBF-REQ-0128", "CBF-REQ-0185"],
        method: "Common noise, and rates of opposite signs: by how much the phase of each channel turns from the first \
                 quarter of the run to the last.",
        concerns: every,
        measure: delays::delay_rate,
    },
    Rule {
        name: "phase",
        title: "Phases are applied",
        numbers: &["CBF-REQ-0112", "CBF-REQ-0128"],
        method: "Common noise, and a phase of one polarisation.",
        concerns: every,
        measure: delays::phase,
    },
    Rule {
        name: "phase-rate",
        title: "Phases turn as they are told to",
        numbers: &["CBF-REQ-0112", "CBF-REQ-0128"],
        method: "As for rates of delays.",
        concerns: every,
        measure: delays::phase_rate,
    },
    Rule {
        name: "application-time",
        title: "A delay model begins when it is told to",
        numbers: &["CBF-REQ-0077"],
        method: "A request to turn the phase by 90 degrees at a time within a spectrum: the first spectrum that has turned.",
        concerns: every,
        measure: delays::application_time,
    },
    Rule {
        name: "application-rate",
        title: "Delays and phases are made anew often enough",
        numbers: &["CBF-REQ-0187", "CBF-REQ-0188"],
        method: "Each spectrum has a delay and a phase of its own. So it is the rate of spectra, by their timestamps.",
        concerns: every,
        measure: delays::application_rate,
    },
    Rule {
        name: "group-delay",
        title: "The filters' delay is the one that sensors tell",
        numbers: &[],
        method: "Tones of 16 bits, one in each polarisation, by a 128th and by two thirds of a channel apart, in up to 16 channels: \
                 how far their phases have run away from each other.",
        concerns: every,
        measure: group_delay::group_delay,
    },
    Rule {
        name: "gain",
        title: "Gains are applied",
        numbers: &["CBF-REQ-0119"],
        method: "Common noise, and gains of one polarisation of 0.5 to 2 and any phase, another in each channel.",
        concerns: every,
        measure: levels::gain,
    },
    Rule {
        name: "linearity",
        title: "Amplitudes come out in proportion",
        numbers: &[],
        method: "A tone of 10 bits at amplitudes of 1 to 1/512 of full scale, each with the gain that brings it to the same \
                 level: by how much that gain is off.",
        concerns: every,
        measure: levels::linearity,
    },
    Rule {
        name: "rounding",
        title: "Values are rounded, not cut off",
        numbers: &[],
        method: "Noise: the mean of all real and imaginary parts, which is half a count off if they are cut off downwards; and \
                 zeros, of which there are twice as many as ones if they are cut off towards zero.",
        concerns: every,
        measure: levels::rounding,
    },
];

impl Rule {
    /// Whether it concerns an output.
    pub fn concerns(&self, subject: &Subject) -> bool {
        (self.concerns)(subject)
    }

    /// Measures an output.
    pub fn measure(&self, chain: &Chain, subject: &Subject) -> Requirement {
        let measured = (self.measure)(chain, subject);
        let (figures, curves, error) = match measured {
            Ok((figures, curves)) => (figures, curves, None),
            Err(error) => (Vec::new(), Vec::new(), Some(error.to_string())),
        };
        Requirement {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            numbers: self
                .numbers
                .iter()
                .map(|&number| number.to_owned())
                .collect(),
            output: subject.text(),
            method: self.method.to_owned(),
            figures,
            curves,
            error,
        }
    }
}
