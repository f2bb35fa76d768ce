//! The rules that a configuration must keep before anything starts.

use std::collections::HashSet;

use dsp::Oversampling;

use super::{ConfigError, EngineConfig, JONES_PER_BATCH, OutputConfig};

/// Largest number of samples per polarisation in one input buffer.
const MAX_SAMPLES: usize = 1 << 29;
/// Fewest elements that real samples of one transform take up: two for each of its bins.
const MIN_TRANSFORM: usize = 128;
/// Spectra per heap come in groups of this many.
const SPECTRA_GROUP: usize = 32;
/// Largest UDP payload that receivers of this protocol accept.
const MAX_UDP_PAYLOAD: usize = 9200;
/// Bytes of header and item pointers in front of a packet's payload.
const PREAMBLE: usize = 72;

impl EngineConfig {
    /// Samples of the next chunk that must follow each chunk: the largest delay difference and the
    /// longest window, rounded up to a multiple of 8. Values that cannot be valid saturate.
    pub fn tail_samples(&self) -> usize {
        let window = self
            .outputs
            .iter()
            .map(OutputConfig::window_samples)
            .max()
            .unwrap_or(0);
        self.max_delay_diff
            .saturating_add(window)
            .checked_next_multiple_of(8)
            .unwrap_or(usize::MAX)
    }

    /// Checks every rule. The first one broken is returned.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_clock()?;
        self.validate_recv()?;
        if self.outputs.is_empty() {
            let way_out = "add --wideband name=wideband,channels=1024,dst=239.10.10.0+7";
            return Err(ConfigError::new(
                "--wideband",
                "missing",
                "at least one output",
                way_out,
            ));
        }
        let mut names = HashSet::new();
        let mut destinations = HashSet::new();
        for output in &self.outputs {
            output.validate()?;
            if !names.insert(&output.name) {
                let option = format!("{} name", output.option());
                let rule = "output names must be unique";
                return Err(refuse(option, &output.name, rule, "rename one"));
            }
            if let Some(dst) = output.dst.iter().find(|&dst| !destinations.insert(dst)) {
                let rule = format!(
                    "of '{}' is another output's too: receivers could not tell them apart",
                    output.name
                );
                let option = format!("{} dst", output.option());
                let way_out = "choose other addresses or ports";
                return Err(refuse(option, dst, rule, way_out));
            }
        }
        self.validate_send()?;
        self.validate_subsampling()?;
        let (tail, chunk) = (self.tail_samples(), self.recv.chunk_samples);
        if tail > chunk {
            let rule = format!(
                "must hold --max-delay-diff ({}) and the longest window, {tail} samples in all",
                self.max_delay_diff
            );
            let step = self.recv.chunk_grid(&self.outputs);
            let least = tail
                .checked_next_power_of_two()
                .and_then(|least| least.checked_next_multiple_of(step))
                .filter(|least| least.saturating_add(tail) <= MAX_SAMPLES);
            let way_out = match least {
                Some(least) => format!("try {least}"),
                None => "lower --max-delay-diff or taps".to_owned(),
            };
            return Err(refuse("--recv-chunk-samples", chunk, rule, way_out));
        }
        if chunk.saturating_add(tail) > MAX_SAMPLES {
            let rule = format!("with its tail of {tail} must not exceed {MAX_SAMPLES} samples");
            return Err(refuse(
                "--recv-chunk-samples",
                chunk,
                rule,
                "make it, --max-delay-diff or taps smaller",
            ));
        }
        Ok(())
    }

    /// Chunks begin on the grid of every output's samples.
    fn validate_subsampling(&self) -> Result<(), ConfigError> {
        let chunk = self.recv.chunk_samples;
        let uneven = |output: &&OutputConfig| !chunk.is_multiple_of(output.subsampling());
        let Some(output) = self.outputs.iter().find(uneven) else {
            return Ok(());
        };
        let s = output.subsampling();
        let rule = format!(
            "must be a multiple of {s}, ADC samples per sample of '{}' before its PFB",
            output.name
        );
        let near = chunk.checked_next_multiple_of(self.recv.chunk_grid(&self.outputs));
        let way_out = match near.filter(|&near| near <= MAX_SAMPLES / 2) {
            Some(near) => format!("try {near}"),
            None => "choose a decimation that is a power of two".to_owned(),
        };
        Err(refuse("--recv-chunk-samples", chunk, rule, way_out))
    }

    fn validate_clock(&self) -> Result<(), ConfigError> {
        check_rate(self.clock.adc_sample_rate)?;
        check_sync_time(self.clock.sync_time)?;
        if !(0.0..=60.0).contains(&self.statistics_period) {
            return Err(refuse(
                "--statistics-period",
                self.statistics_period,
                "must be 0 to 60 seconds",
                "try 1",
            ));
        }
        if !self.gain.is_finite() || !(self.gain as f32).is_finite() {
            return Err(refuse(
                "--gain",
                self.gain,
                "must be finite in single precision",
                "try 1",
            ));
        }
        if self.array_size == 0 || self.array_size > 1 << 40 {
            let rule = "must be at least 1 and at most 2^40";
            return Err(refuse("--array-size", self.array_size, rule, "try 64"));
        }
        if self.feng_id >= self.array_size {
            let rule = format!("must be less than --array-size ({})", self.array_size);
            return Err(refuse("--feng-id", self.feng_id, rule, "try 0"));
        }
        Ok(())
    }

    fn validate_recv(&self) -> Result<(), ConfigError> {
        let recv = &self.recv;
        let bits = recv.sample_bits.get() as usize;
        let heap = recv.packet_samples;
        if heap == 0 || heap > MAX_UDP_PAYLOAD * 8 || !(heap * bits).is_multiple_of(8) {
            let rule = format!("must fill whole bytes at {bits} bits and one packet");
            return Err(refuse("--recv-packet-samples", heap, rule, "try 4096"));
        }
        if recv.heap_bytes() + PREAMBLE > MAX_UDP_PAYLOAD {
            let most = (MAX_UDP_PAYLOAD - PREAMBLE) * 8 / bits / 8 * 8;
            let rule = format!("at {bits} bits must fit a UDP payload of {MAX_UDP_PAYLOAD} bytes");
            return Err(refuse(
                "--recv-packet-samples",
                heap,
                rule,
                format!("try at most {most}"),
            ));
        }
        if recv.mask_timestamp && !heap.is_power_of_two() {
            let rule = "needs a power of two for --recv-packet-samples";
            return Err(refuse(
                "--mask-timestamp",
                heap,
                rule,
                "drop --mask-timestamp",
            ));
        }
        let chunk = recv.chunk_samples;
        if chunk == 0 || !chunk.is_multiple_of(heap) || !chunk.is_multiple_of(8) {
            let rule = format!("must be a multiple of 8 and of --recv-packet-samples ({heap})");
            let near = chunk.clamp(1, MAX_SAMPLES / 2);
            let near = near.next_multiple_of(recv.chunk_step());
            return Err(refuse(
                "--recv-chunk-samples",
                chunk,
                rule,
                format!("try {near}"),
            ));
        }
        Ok(())
    }

    fn validate_send(&self) -> Result<(), ConfigError> {
        let payload = self.send.packet_payload;
        if payload == 0 || !payload.is_multiple_of(8) || payload > MAX_UDP_PAYLOAD - PREAMBLE {
            let most = MAX_UDP_PAYLOAD - PREAMBLE;
            let rule = format!("must be a multiple of 8 from 8 to {most}");
            // What katgpucbf makes of it: it rounds packets down to a multiple of 8.
            let near = (payload / 8 * 8).clamp(8, most);
            return Err(refuse(
                "--send-packet-payload",
                payload,
                rule,
                format!("try {near}"),
            ));
        }
        for output in &self.outputs {
            let (chunk, batch) = (self.send.chunk_jones, output.jones_per_batch);
            if chunk == 0 || chunk % batch != 0 || chunk > MAX_SAMPLES {
                let rule = format!("must be whole batches of {batch}, at most {MAX_SAMPLES}");
                return Err(refuse(
                    "--send-chunk-jones",
                    chunk,
                    rule,
                    format!("try {batch}"),
                ));
            }
        }
        Ok(())
    }
}

impl OutputConfig {
    /// Refuses numbers that make no heaps, whoever makes them.
    pub fn check_heaps(&self) -> Result<(), ConfigError> {
        let option = |key: &str| format!("{} {key} of '{}'", self.option(), self.name);
        let (channels, dst, batch) = (self.channels, self.dst.len(), self.jones_per_batch);
        if !(1..=MAX_SAMPLES).contains(&channels) {
            let rule = format!("must be from 1 to {MAX_SAMPLES}");
            return Err(refuse(option("channels"), channels, rule, "try 1024"));
        }
        if dst == 0 || !channels.is_multiple_of(dst) {
            let rule = format!("destinations must divide the {channels} channels");
            let way_out = "try +7 for eight of them";
            return Err(refuse(option("dst"), dst, rule, way_out));
        }
        if batch == 0 || !batch.is_multiple_of(channels) || batch > MAX_SAMPLES {
            let rule =
                format!("must be a multiple of the {channels} channels, at most {MAX_SAMPLES}");
            let (option, way_out) = (option("jones_per_batch"), self.batch_near(JONES_PER_BATCH));
            return Err(refuse(option, batch, rule, way_out));
        }
        Ok(())
    }

    /// A way out: a batch of about so many Jones vectors, if there is one.
    fn batch_near(&self, jones: usize) -> String {
        let near = jones.next_multiple_of(SPECTRA_GROUP * self.channels);
        match near <= MAX_SAMPLES {
            true => format!("try {near}"),
            false => format!("lower channels to {} at most", MAX_SAMPLES / SPECTRA_GROUP),
        }
    }

    /// Checks what an output has to keep whatever the engine around it; the first rule broken is
    /// returned.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let option = |key: &str| format!("{} {key} of '{}'", self.option(), self.name);
        let channels = self.channels;
        // A discarding transform has twice as many bins as channels; that of wideband has twice as
        // many samples as bins.
        let discards = matches!(&self.narrowband, Some(n) if n.pass_bandwidth.is_none());
        let least = match discards {
            true => MIN_TRANSFORM / 4,
            false => MIN_TRANSFORM / 2,
        };
        let most = MAX_SAMPLES / 2 / self.decimation().max(1);
        if channels < least || !channels.is_power_of_two() || channels > most {
            let rule = format!("must be a power of two, at least {least}, at most {most}");
            return Err(refuse(option("channels"), channels, rule, "try 1024"));
        }
        self.check_heaps()?;
        self.validate_oversampling()?;
        let most = MAX_SAMPLES / self.transform_samples();
        if let Some(dst) = self.dst.iter().find(|dst| !dst.ip().is_multicast()) {
            let rule = "must be an IPv4 multicast group, 224.0.0.0 to 239.255.255.255";
            return Err(refuse(option("dst"), dst, rule, "try 239.10.10.0+7:7148"));
        }
        if self.taps == 0 || self.taps > most {
            let rule = format!("must be at least 1, at most {most} with {channels} channels");
            let way_out = format!("try {}", most.min(16));
            return Err(refuse(option("taps"), self.taps, rule, way_out));
        }
        if !(self.w_cutoff.is_finite() && self.w_cutoff >= 0.0) {
            return Err(refuse(
                option("w_cutoff"),
                self.w_cutoff,
                "must be finite and not negative",
                "try 1.0",
            ));
        }
        let batch = self.jones_per_batch;
        if !self.spectra_per_heap().is_multiple_of(SPECTRA_GROUP) {
            let rule = format!(
                "makes {} spectra per heap of {channels} channels, which must be a multiple of {SPECTRA_GROUP}",
                self.spectra_per_heap()
            );
            let (option, way_out) = (option("jones_per_batch"), self.batch_near(batch));
            return Err(refuse(option, batch, rule, way_out));
        }
        Ok(())
    }
}

impl OutputConfig {
    /// Spectra are whole samples apart, and at least two columns of a transform move together.
    fn validate_oversampling(&self) -> Result<(), ConfigError> {
        let (points, m) = (self.pfb_step(), self.oversampling.numerator());
        if self.oversampling.is_none() || (points.is_multiple_of(m) && points / m >= 2) {
            return Ok(());
        }
        let option = format!("{} oversampling of '{}'", self.option(), self.name);
        let rule = format!(
            "spectra must be whole samples apart: of M/N, M must be a power of two, at most {}, half of the transform's {points} points",
            points / 2
        );
        // The nearest that would do, of those with few turns.
        let near = |m: usize| {
            let n = (m as f64 / self.oversampling.ratio()).round() as usize;
            Oversampling::new(m, n.clamp(1, m - 1)).ok()
        };
        let of = near(32.min(points / 2)).map(|of| format!("try {of}"));
        Err(refuse(
            option,
            self.oversampling,
            rule,
            of.unwrap_or_else(|| "try 4/3".to_owned()),
        ))
    }
}

/// Hertz, above what any digitiser can have.
const MAX_RATE: f64 = 1e12;
/// UNIX seconds, three million years from now: what is in milliseconds is only doubted.
const MAX_TIME: f64 = 1e14;

/// What every rate must be.
pub fn check_rate(rate: f64) -> Result<(), ConfigError> {
    if rate > 0.0 && rate <= MAX_RATE {
        return Ok(());
    }
    let rule = "must be more than 0 Hz and at most 1e12 Hz";
    Err(refuse("--adc-sample-rate", rate, rule, "try 1712e6"))
}

/// What every sync time must be.
pub fn check_sync_time(sync_time: f64) -> Result<(), ConfigError> {
    if sync_time.is_nan() || sync_time.abs() > MAX_TIME {
        let rule = "must be UNIX seconds, of which no clock has more than 1e14";
        return Err(refuse(
            "--sync-time",
            format!("{:e}", sync_time),
            rule,
            "try 1763700000",
        ));
    }
    Ok(())
}

fn refuse(
    option: impl Into<String>,
    value: impl ToString,
    rule: impl Into<String>,
    way_out: impl Into<String>,
) -> ConfigError {
    ConfigError::new(option, value, rule, way_out)
}

#[cfg(test)]
mod tests {
    use super::super::tests::engine;
    use super::*;
    use proptest::prelude::*;

    const WIDEBAND: &str = "name=w,channels=1024,dst=239.10.1.0+1,jones_per_batch=32768";

    /// Small, usual, and at the edges of what a number can hold.
    fn number() -> impl Strategy<Value = usize> {
        prop_oneof![
            0usize..100,
            (0u32..64, 0usize..3).prop_map(|(log, less)| (1usize << log).wrapping_sub(less)),
            any::<usize>(),
        ]
    }

    proptest! {
        #[test]
        fn what_is_accepted_fits_whatever_the_numbers(
            packet in prop_oneof![Just(4096), number()], chunk in number(), diff in number(), jones in number(),
            batch in prop_oneof![Just(32768), number()], taps in prop_oneof![Just(16), number()],
            channels in prop_oneof![Just(1024), number()],
        ) {
            let config = engine(WIDEBAND, |config| {
                config.recv.packet_samples = packet;
                config.recv.chunk_samples = chunk;
                config.max_delay_diff = diff;
                config.send.chunk_jones = jones;
                let output = &mut config.outputs[0];
                (output.jones_per_batch, output.taps, output.channels) = (batch, taps, channels);
            });
            if config.validate().is_ok() {
                let tail = config.tail_samples() as u128;
                let window = 2 * taps as u128 * channels as u128;
                prop_assert!(tail >= diff as u128 + window && tail <= chunk as u128);
                prop_assert!(chunk as u128 + tail <= MAX_SAMPLES as u128);
            }
        }
    }

    #[test]
    fn a_way_out_is_accepted() {
        let refused = |change: &dyn Fn(&mut EngineConfig)| {
            let error = engine(WIDEBAND, change).validate().unwrap_err();
            let value = error.way_out.strip_prefix("try ").expect("a value");
            (error.option, value.parse::<usize>().expect("a number"))
        };
        for packet in [4096, 4100, 4095 * 4] {
            // A packet that is no multiple of 8, and a chunk too short for the tail.
            let short = |config: &mut EngineConfig| {
                config.recv.packet_samples = packet;
                config.recv.sample_bits = dsp::SampleBits::new(4).unwrap();
                config.recv.chunk_samples = 8 * packet;
            };
            let (option, value) = refused(&short);
            assert_eq!(option, "--recv-chunk-samples");
            let mended = engine(WIDEBAND, |config| {
                short(config);
                config.recv.chunk_samples = value;
            });
            mended.validate().unwrap();
        }
        let (_, payload) = refused(&|config| config.send.packet_payload = 1001);
        assert_eq!(payload, 1000);
        let (_, payload) = refused(&|config| config.send.packet_payload = usize::MAX);
        assert_eq!(payload, 9128);
    }

    /// Not the refused value itself, and not what another rule refuses.
    #[test]
    fn ways_out_of_large_numbers_of_channels_are_not_refused_either() {
        let output = |channels, batch, taps| {
            let mut output = engine(WIDEBAND, |_| ()).outputs.remove(0);
            (output.channels, output.jones_per_batch, output.taps) = (channels, batch, taps);
            output
        };
        let refused = |output: &OutputConfig| {
            let checked = output.check_heaps().and_then(|()| output.validate());
            checked.unwrap_err().way_out
        };
        for batch in [1 << 20, 1 << 27] {
            let way_out = refused(&output(1 << 27, batch, 1));
            assert_eq!(way_out, "lower channels to 16777216 at most");
        }
        assert_eq!(refused(&output(1 << 27, 1 << 27, 16)), "try 2");
        // Heaps of others have any number of channels.
        for (channels, batch) in [(1 << 24, 1 << 20), (1 << 24, 1 << 24), (1000, 1)] {
            let mut output = output(channels, batch, 16);
            let way_out = refused(&output);
            output.jones_per_batch = way_out.strip_prefix("try ").unwrap().parse().unwrap();
            output.check_heaps().unwrap();
            assert_eq!(output.spectra_per_heap() % SPECTRA_GROUP, 0);
        }
    }

    #[test]
    fn a_tail_that_no_chunk_holds_is_refused() {
        for diff in [usize::MAX, usize::MAX - 40_000, 1 << 63] {
            let config = engine(WIDEBAND, |config| config.max_delay_diff = diff);
            let error = config.validate().unwrap_err();
            assert!(error.way_out.contains("--max-delay-diff"), "{error}");
        }
    }
}
