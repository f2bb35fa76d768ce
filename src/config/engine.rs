//! The engine's configuration as types.

use std::net::SocketAddrV4;

use super::ConfigError;
use crate::units::{Clock, N_POL};

/// Digitiser bits per sample: 2 to 16, two's complement, packed most significant bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct SampleBits(u32);

impl SampleBits {
    /// Accepts 2 to 16.
    pub fn new(bits: u32) -> Option<Self> {
        (2..=16).contains(&bits).then_some(Self(bits))
    }

    /// Bits per sample.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Bytes of `samples` packed samples, rounded up.
    pub fn bytes(self, samples: usize) -> usize {
        (samples * self.0 as usize).div_ceil(8)
    }
}

/// Window of the PFB prototype filter (reference: PFB prototype filter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum WindowFunction {
    /// sin², symmetric.
    Hann,
    /// All ones.
    Rect,
}

/// What is added before quantisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dither {
    /// Nothing.
    None,
    /// Uniform in the open interval (−0.5, 0.5), independent per component.
    Uniform,
}

/// Receive side: geometry of digitiser heaps and chunks.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RecvConfig {
    /// Samples per digitiser heap (H).
    pub packet_samples: usize,
    /// Digitiser bits per sample.
    pub sample_bits: SampleBits,
    /// Samples per polarisation of one receive chunk; a multiple of `packet_samples`.
    pub chunk_samples: usize,
    /// Clear the low bits of timestamps (`packet_samples` is then a power of two).
    pub mask_timestamp: bool,
}

impl RecvConfig {
    /// Payload bytes of one heap.
    pub fn heap_bytes(&self) -> usize {
        self.sample_bits.bytes(self.packet_samples)
    }

    /// What `chunk_samples` must be a multiple of: whole heaps, and whole bytes of samples.
    pub fn chunk_step(&self) -> usize {
        let heap = self.packet_samples.max(1);
        if heap.is_multiple_of(8) {
            heap
        } else {
            heap.saturating_mul(8)
        }
    }

    /// Heaps per polarisation in one chunk.
    pub fn chunk_heaps(&self) -> usize {
        self.chunk_samples / self.packet_samples
    }
}

/// Send side, common to all outputs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SendConfig {
    /// Payload bytes per packet, without the 72-byte preamble.
    pub packet_payload: usize,
    /// Jones vectors per output chunk, a multiple of every output's `jones_per_batch`.
    pub chunk_jones: usize,
    /// Multicast time to live.
    pub ttl: u8,
}

impl SendConfig {
    /// `jones` rounded up to whole batches of every output.
    pub fn whole_batches(jones: usize, outputs: &[OutputConfig]) -> Result<usize, ConfigError> {
        let unit = outputs.iter().try_fold(1usize, |unit, output| {
            let batch = output.jones_per_batch.max(1);
            unit.checked_mul(batch / gcd(unit, batch))
        });
        let unit = unit.ok_or_else(|| {
            let rule = "the outputs' values have no common multiple that fits memory";
            ConfigError::new("--wideband jones_per_batch", "", rule, "use powers of two")
        })?;
        jones.max(1).checked_next_multiple_of(unit).ok_or_else(|| {
            let rule = "does not fit memory";
            ConfigError::new("--send-chunk-jones", jones, rule, "try 1048576")
        })
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One wideband output stream.
#[derive(Clone, Debug, serde::Serialize)]
pub struct OutputConfig {
    /// Stream name: prefix of sensors, label of metrics.
    pub name: String,
    /// Channels (C), a power of two.
    pub channels: usize,
    /// One destination per substream.
    pub dst: Vec<SocketAddrV4>,
    /// Jones vectors per batch; spectra per heap × channels.
    pub jones_per_batch: usize,
    /// PFB taps (T).
    pub taps: usize,
    /// Scale of the prototype filter's width.
    pub w_cutoff: f64,
    /// Window of the prototype filter.
    pub window_function: WindowFunction,
    /// Dither before quantisation.
    pub dither: Dither,
    /// Key of the dither generator.
    pub dither_seed: u64,
}

impl OutputConfig {
    /// Spectra per output heap (SPH).
    pub fn spectra_per_heap(&self) -> usize {
        self.jones_per_batch / self.channels
    }

    /// ADC samples between successive spectra (SS = 2C).
    pub fn spectrum_samples(&self) -> usize {
        self.channels.saturating_mul(2)
    }

    /// ADC samples that contribute to one spectrum (W = T·SS).
    pub fn window_samples(&self) -> usize {
        self.taps.saturating_mul(self.spectrum_samples())
    }

    /// ADC samples between successive heaps of a substream (SPH·SS).
    pub fn batch_samples(&self) -> usize {
        2 * self.jones_per_batch
    }

    /// Channels per substream.
    pub fn channels_per_substream(&self) -> usize {
        self.channels / self.dst.len()
    }

    /// Bytes of one output heap: 8-bit real and imaginary parts of two polarisations.
    pub fn heap_bytes(&self) -> usize {
        self.channels_per_substream() * self.spectra_per_heap() * N_POL * 2
    }

    /// Bytes of one batch, all substreams.
    pub fn batch_bytes(&self) -> usize {
        self.jones_per_batch * N_POL * 2
    }
}

/// Everything an engine needs to know before it starts.
#[derive(Clone, Debug, serde::Serialize)]
pub struct EngineConfig {
    /// Sample counts to UNIX time.
    pub clock: Clock,
    /// This F-engine's number (F).
    pub feng_id: u64,
    /// F-engines in the array (A): step of heap counts.
    pub array_size: u64,
    /// Receive geometry.
    pub recv: RecvConfig,
    /// Send geometry.
    pub send: SendConfig,
    /// Largest difference of coarse delay between polarisations, in samples.
    pub max_delay_diff: usize,
    /// Initial gain of every channel of every output.
    pub gain: f64,
    /// Outputs, at least one.
    pub outputs: Vec<OutputConfig>,
}
