//! Which kernels compute: what may be asked for, and what it comes to.

use std::fmt;

use super::shape::KernelShape;
use crate::config::heading;

/// Who makes the transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Fft {
    /// Karoo's own: two kernels for everything, the first of which filters and does half of the
    /// transform.
    #[default]
    Fused,
    /// NVIDIA's library, between kernels for the rest: for comparison, and for channels that do not
    /// fit the fused ones.
    Cufft,
}

/// How a shape of the fused kernels is picked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tune {
    /// The first that fits: the same for the same program on the same kind of device.
    #[default]
    Off,
    /// The fastest, as stored when it was last measured here; measured and stored if it was not.
    Auto,
    /// The fastest, measured now and stored.
    Again,
    /// This one, as reports name it; of several, joined by `+`, the one that is of the output's
    /// channels.
    Fixed(String),
}

impl std::str::FromStr for Tune {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "again" => Ok(Self::Again),
            shape if shape.contains('=') => Ok(Self::Fixed(shape.to_owned())),
            _ => Err("must be off, auto, again or a shape as reports name it, such as log_n1=5,tile=16,…".into()),
        }
    }
}

/// Which kernels are to compute an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelChoice {
    /// Who makes the transform.
    pub fft: Fft,
    /// How a shape of the fused kernels is picked.
    pub tune: Tune,
}

/// [`KernelChoice`] as commands take them.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KernelOptions {
    /// Who makes the transform on a GPU
    #[arg(long, value_enum, default_value_t, help_heading = heading::COMPUTE)]
    pub fft: Fft,
    /// How the GPU's kernels are divided into blocks (their shape): off (the first that fits), auto
    /// (the fastest, as stored or else measured), again (the fastest, measured anew), or a shape as
    /// reports name it, several joined by +; unless given, off in a replay and auto elsewhere
    #[arg(long, value_name = "HOW", help_heading = heading::COMPUTE)]
    pub tune: Option<Tune>,
}

impl KernelOptions {
    /// What they ask for, with `tune` where they leave it open.
    pub fn choice(&self, tune: Tune) -> KernelChoice {
        KernelChoice {
            fft: self.fft,
            tune: self.tune.clone().unwrap_or(tune),
        }
    }
}

/// Kernels that are picked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KernelForm {
    Fused(KernelShape),
    Cufft,
}

impl fmt::Display for KernelForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fused(shape) => shape.fmt(f),
            Self::Cufft => f.write_str("cuFFT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::{FilterForm, FrontendInput};
    use super::*;

    #[test]
    fn tuning_is_a_word_or_the_name_of_a_shape() {
        assert_eq!("off".parse(), Ok(Tune::Off));
        assert_eq!("auto".parse(), Ok(Tune::Auto));
        assert_eq!("again".parse(), Ok(Tune::Again));
        let filter = FilterForm {
            input: FrontendInput::Numbers,
            taps: 16,
            oversampling: dsp::Oversampling::NONE,
        };
        let name = KernelShape::candidates(2048, filter, 90, 1 << 20, false)[0].to_string();
        assert_eq!(name.parse(), Ok(Tune::Fixed(name.clone())));
        let refusal = "fast".parse::<Tune>().unwrap_err();
        assert!(refusal.contains("auto"), "{refusal}");
    }

    #[test]
    fn an_open_choice_is_the_commands() {
        let open = KernelOptions::default();
        assert_eq!(open.choice(Tune::Auto).tune, Tune::Auto);
        let closed = KernelOptions {
            tune: Some(Tune::Again),
            ..open
        };
        assert_eq!(closed.choice(Tune::Off).tune, Tune::Again);
    }
}
