//! Samples as bytes: raw complex samples, and recordings with metadata.
//!
//! | format | bytes | |
//! |---|---|---|
//! | `cf32` | 8 | two little-endian floats |
//! | `ci16` | 4 | two little-endian 16-bit integers; 32767 is the full scale, 4.0 by default |
//!
//! A [SigMF](https://sigmf.org) recording is a file of such samples (`.sigmf-data`) beside a file
//! that says what they are (`.sigmf-meta`). Between the original's programs samples go in blocks of
//! real and of imaginary parts ([`PlanarReader`]).

mod planar;
mod samples;
mod sigmf;

pub use planar::{PLANAR_SAMPLES, PlanarReader, PlanarWriter};
pub(crate) use samples::quantised;
pub use samples::{
    DEFAULT_FULL_SCALE, FullScale, FullScaleError, ReadCounts, SampleFormat, SampleReader,
    SampleWriter, UnknownFormat, WriteCounts,
};
pub use sigmf::{Annotation, MOST_META_BYTES, Recording, RecordingPaths, SigmfError};
