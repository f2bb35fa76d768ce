//! The engine's configuration as types.

use std::net::SocketAddrV4;
use std::ops::Range;

use dsp::{Dither, OutputBits, Oversampling, SampleBits, WindowFunction, pfb};
use ground::{SampleClock, Timestamp};
use num_integer::gcd;

use super::{ConfigError, Narrowband};

/// Receive side: geometry of digitiser heaps and chunks.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
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

    /// The same, and whole samples of the PFBs' inputs of all `outputs`.
    pub fn chunk_grid(&self, outputs: &[OutputConfig]) -> usize {
        outputs.iter().fold(self.chunk_step(), |grid, output| {
            let s = output.subsampling().max(1);
            (grid / gcd(grid, s)).saturating_mul(s)
        })
    }

    /// Heaps per polarisation in one chunk.
    pub fn chunk_heaps(&self) -> usize {
        self.chunk_samples / self.packet_samples
    }
}

/// Send side, common to all outputs.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
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
            let values = outputs.iter().map(|of| of.jones_per_batch.to_string());
            let values = values.collect::<Vec<_>>().join(" and ");
            let option = "--wideband or --narrowband jones_per_batch";
            let rule = "the outputs' values have no common multiple that fits memory";
            ConfigError::new(option, values, rule, "use powers of two")
        })?;
        jones.max(1).checked_next_multiple_of(unit).ok_or_else(|| {
            let rule = "does not fit memory";
            ConfigError::new("--send-chunk-jones", jones, rule, "try 1048576")
        })
    }
}

/// One output stream.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
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
    /// Spectra for each transform's length of time (M/N).
    pub oversampling: Oversampling,
    /// Dither before quantisation.
    pub dither: Dither,
    /// Key of the dither generator.
    pub dither_seed: u64,
    /// Width of what is sent.
    pub sample_bits: OutputBits,
    /// What is done before the PFB, and which channels are kept: narrowband. `None`: wideband.
    pub narrowband: Option<Narrowband>,
}

impl OutputConfig {
    /// The option that asks for such an output.
    pub fn option(&self) -> &'static str {
        match self.narrowband {
            None => "--wideband",
            Some(_) => "--narrowband",
        }
    }

    /// Spectra per output heap (SPH).
    pub fn spectra_per_heap(&self) -> usize {
        self.jones_per_batch / self.channels
    }

    /// By how much the output band is narrower than the digitised one (D); 1 for wideband.
    pub fn decimation(&self) -> usize {
        self.narrowband.as_ref().map_or(1, |n| n.decimation)
    }

    /// ADC samples from one sample of the PFB's input to the next (S), and what a window's first
    /// timestamp is a multiple of; 1 for wideband.
    pub fn subsampling(&self) -> usize {
        self.narrowband.as_ref().map_or(1, Narrowband::subsampling)
    }

    /// Samples of the PFB's input that a transform has, and the stride of its taps: 2C real ones
    /// for wideband; complex ones for narrowband, 2C where the outer half of the transform is
    /// discarded, C where it is not.
    pub fn pfb_step(&self) -> usize {
        match &self.narrowband {
            Some(Narrowband {
                pass_bandwidth: Some(_),
                ..
            }) => self.channels,
            _ => self.channels.saturating_mul(2),
        }
    }

    /// Element of the transform that is output channel `c`, for narrowband: bin (c − C/2) mod
    /// [`pfb_step`](Self::pfb_step). For wideband it is c itself.
    pub fn bin(&self, c: usize) -> usize {
        match self.narrowband {
            None => c,
            Some(_) => (c + self.pfb_step() - self.channels / 2) % self.pfb_step(),
        }
    }

    /// Samples of the PFB's input from one spectrum to the next: as many as a transform has, or
    /// N/M of them in an oversampled bank.
    pub fn pfb_hop(&self) -> usize {
        self.oversampling.hop(self.pfb_step())
    }

    /// ADC samples between successive spectra (SS = 2CD, or N/M of that): what X-engines call
    /// samples between spectra.
    pub fn spectrum_samples(&self) -> usize {
        self.pfb_hop().saturating_mul(self.subsampling())
    }

    /// ADC samples of one transform (2CD): what each tap of a window spans.
    pub fn transform_samples(&self) -> usize {
        self.pfb_step().saturating_mul(self.subsampling())
    }

    /// ADC samples from a window's first to the first of its last tap. Σx² of a spectrum is over
    /// the [`spectrum_samples`](Self::spectrum_samples) from there on, which tile the time axis.
    pub fn last_tap(&self) -> usize {
        let before = self.taps.saturating_sub(1);
        before.saturating_mul(self.transform_samples())
    }

    /// Coefficients of the prototype filter, `taps` rows of [`pfb_step`](Self::pfb_step).
    pub fn weights(&self) -> Vec<f32> {
        let (step, taps) = (self.pfb_step(), self.taps);
        let window = self.window_function;
        pfb::prototype(step, taps, self.w_cutoff, window, self.oversampling)
    }

    /// Number of the spectrum at timestamp `t`, counted from time 0.
    pub fn spectrum_number(&self, t: Timestamp) -> u64 {
        t.0 / self.spectrum_samples().max(1) as u64
    }

    /// Where in its transform the first sample of the spectrum at timestamp `t` belongs
    /// ([`Oversampling::rotation`]); 0 without oversampling.
    pub fn rotation(&self, t: Timestamp) -> usize {
        let number = self.spectrum_number(t);
        self.oversampling.rotation(self.pfb_step(), number)
    }

    /// ADC samples that contribute to one spectrum: W = T·2CD, and for narrowband L − S more.
    pub fn window_samples(&self) -> usize {
        let window = self.taps.saturating_mul(self.transform_samples());
        match &self.narrowband {
            None => window,
            Some(narrowband) => window
                .saturating_add(narrowband.ddc_taps())
                .saturating_sub(self.subsampling()),
        }
    }

    /// Group delay of the PFB in ADC samples, as telescopes publish it: −(step·T − 1)/2·S.
    /// Timestamps are not corrected for it.
    pub fn pfb_group_delay(&self) -> f64 {
        let window = self.taps.saturating_mul(self.pfb_step());
        -(window as f64 - 1.0) / 2.0 * self.subsampling() as f64
    }

    /// Group delay of the down-conversion in ADC samples, −(L − 1)/2; 0 for wideband.
    pub fn ddc_group_delay(&self) -> f64 {
        self.narrowband
            .as_ref()
            .map_or(0.0, |n| -(n.ddc_taps() as f64 - 1.0) / 2.0)
    }

    /// From the centre of channel 0 to where that of channel C would be, in hertz above 0 Hz of the
    /// digitised band, for samples at `adc_sample_rate`.
    pub fn band(&self, adc_sample_rate: f64) -> Range<f64> {
        let width = adc_sample_rate / 2.0 / self.decimation() as f64;
        let narrowband = self.narrowband.as_ref();
        let low = narrowband.map_or(0.0, |n| n.centre_frequency - width / 2.0);
        low..low + width
    }

    /// ADC samples between successive heaps of a substream (SPH·SS).
    pub fn batch_samples(&self) -> usize {
        match self.oversampling.is_none() {
            true => self
                .jones_per_batch
                .saturating_mul(self.decimation())
                .saturating_mul(2),
            false => self
                .spectra_per_heap()
                .saturating_mul(self.spectrum_samples()),
        }
    }

    /// ADC samples from the first to the last that contribute to so many successive batches.
    pub fn span_samples(&self, batches: usize) -> usize {
        match batches {
            0 => 0,
            _ => batches * self.batch_samples() - self.spectrum_samples() + self.window_samples(),
        }
    }

    /// Channels per substream.
    pub fn channels_per_substream(&self) -> usize {
        self.channels / self.dst.len()
    }

    /// Bytes of one output heap.
    pub fn heap_bytes(&self) -> usize {
        self.channels_per_substream() * self.spectra_per_heap() * self.sample_bits.jones_bytes()
    }

    /// Bytes of one batch, all substreams.
    pub fn batch_bytes(&self) -> usize {
        self.jones_per_batch * self.sample_bits.jones_bytes()
    }
}

/// Everything an engine needs to know before it starts.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct EngineConfig {
    /// Sample counts to UNIX time.
    pub clock: SampleClock,
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
    /// Seconds of samples over which statistics are taken; 0: none are.
    pub statistics_period: f64,
    /// Outputs, at least one; wideband ones come first.
    pub outputs: Vec<OutputConfig>,
}

/// What one pipeline of an engine computes.
#[derive(Clone, Copy, Debug)]
pub struct PipelineConfig<'a> {
    /// The output stream.
    pub output: &'a OutputConfig,
    /// Digitiser bits per sample.
    pub sample_bits: SampleBits,
    /// Number of the engine, which dither depends on.
    pub feng_id: u64,
    /// Gain of all channels until there are others.
    pub gain: f64,
    /// Whether sums for statistics are taken.
    pub statistics: bool,
}

impl EngineConfig {
    /// What the pipeline of one of the engine's outputs computes.
    pub fn pipeline<'a>(&self, output: &'a OutputConfig) -> PipelineConfig<'a> {
        PipelineConfig {
            output,
            sample_bits: self.recv.sample_bits,
            feng_id: self.feng_id,
            gain: self.gain,
            statistics: self.statistics_samples().is_some(),
        }
    }

    /// Samples of a period of statistics, if any are taken.
    pub fn statistics_samples(&self) -> Option<u64> {
        let samples = self.statistics_period * self.clock.adc_sample_rate;
        (samples > 0.0).then(|| (samples.round() as u64).max(1))
    }
}
