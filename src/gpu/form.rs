//! Which kernels compute: what may be asked for, and what it comes to.

use std::fmt;

use super::shape::Shape;

/// Who makes the transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Fft {
    /// Kernels that hold the filter and half a transform, and the other half and all behind it.
    #[default]
    Fused,
    /// NVIDIA's library, between a filter and a kernel for all behind it: for comparison, and for what does not fit.
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
    /// This one, as reports name it.
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

/// Options that pick kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernels {
    /// Who makes the transform.
    pub fft: Fft,
    /// How a shape of the fused kernels is picked.
    pub tune: Tune,
}

/// Kernels that are picked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    Fused(Shape),
    Cufft,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fused(shape) => shape.fmt(f),
            Self::Cufft => f.write_str("cuFFT"),
        }
    }
}
