//! From samples to spectra of an oversampled output and back: by the golden model in double
//! precision, and by the CPU backend with 8 bits.

use std::f64::consts::TAU;
use std::path::Path;
use std::sync::Arc;

use dsp::delay::DelayModels;
use dsp::{Dither, SampleBits};
use ground::{SampleClock, Timestamp};
use karoo::config::{NarrowbandOptions, OutputConfig, PipelineConfig, SynthesisOptions};
use karoo::cpu::{CpuChanneliser, Workers};
use karoo::engine::{Block, FineDelay, Pipeline};
use karoo::model::Model;
use karoo::net::{CaptureWriter, HeaderTemplate, MacAddr, capture::Precision};
use karoo::sink::synthesis::{Sample, Synthesiser};
use karoo::sink::{self, SinkOptions};
use karoo_fft::forward_f64;
use num_complex::{Complex32, Complex64};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spead::{Descriptor, SpectraRepr, descriptor, spectra};

use crate::support::{array, contents, output_chunk, output_config, view};

const CHANNELS: usize = 64;
/// So that rounding to integers is far below what is tested.
const AMPLITUDE: f64 = 2e8;

fn wideband(keys: &str) -> OutputConfig {
    let text = format!("name=w,channels={CHANNELS},dst=239.1.1.1,jones_per_batch=2048,{keys}");
    output_config(&text)
}

fn narrowband(keys: &str) -> OutputConfig {
    let text = format!(
        "name=n,channels={CHANNELS},dst=239.1.1.1,jones_per_batch=2048,centre_frequency=408173015.6,{keys}"
    );
    let options: NarrowbandOptions = text.parse().expect("options");
    let clock = SampleClock {
        adc_sample_rate: 1712e6,
        sync_time: 0.0,
    };
    options.into_config(2048, 0, clock).expect("an output")
}

fn synthesiser(keys: &str) -> Synthesiser {
    let options: SynthesisOptions = keys.parse().expect("options");
    Synthesiser::new(&options, CHANNELS).expect("a bank with an inverse")
}

/// Real noise of full band but for `lost` of it below half the sample rate, repeated.
fn noise(len: usize, lost: f64, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut bins = vec![Complex64::default(); len];
    for k in 1..(len as f64 / 2.0 * (1.0 - lost)) as usize {
        bins[k] = Complex64::from_polar(1.0, rng.random_range(0.0..TAU));
        bins[len - k] = bins[k].conj();
    }
    forward_f64(len).process(&mut bins);
    let peak = bins.iter().map(|x| x.re.abs()).fold(0.0, f64::max);
    bins.iter().map(|x| x.re / peak).collect()
}

/// The model's spectra of `source` through the inverse, and the time of its first sample, in
/// samples of the filter bank's input.
fn back(
    config: &OutputConfig,
    keys: &str,
    source: &dyn Fn(usize, u64) -> i32,
    spectra: u64,
) -> (i64, Vec<Sample>) {
    let mut inverse = synthesiser(keys);
    let model = Model::new(config, 0);
    let delays = [0; 2].map(|_| DelayModels::with_subsampling(config.subsampling() as u32));
    let gains = [0; 2].map(|_| vec![Complex32::new(1.0, 0.0); CHANNELS]);
    // Far from time 0, at any place of the rotation.
    let first = 5000 * 32 + 13;
    let mut samples = Vec::new();
    let numbers = first..first + spectra;
    let times = numbers
        .clone()
        .map(|number| Timestamp(number * config.spectrum_samples() as u64));
    let of_times = model.spectra(&source, times, &delays, &gains);
    for (number, spectrum) in numbers.zip(of_times) {
        let spectrum = spectrum.each_ref().map(|bins| &bins[..]);
        inverse.push(number, Some(spectrum), |sample| samples.push(sample));
    }
    (inverse.first_sample(first), samples)
}

/// Of `got`, root mean square of what is not `want`, in dB of `want`.
fn error(got: &[Sample], pol: usize, want: impl Fn(usize) -> Complex64) -> f64 {
    let pairs = got.iter().enumerate().map(|(i, got)| (got[pol], want(i)));
    let (off, all) = pairs.fold((0.0, 0.0), |(off, all), (got, want)| {
        (off + (got - want).norm_sqr(), all + want.norm_sqr())
    });
    10.0 * (off / all).log10()
}

/// Noise in all of the band but one channel's width below half the sample rate, and tones at
/// channels' centres, edges and between, come back with errors, aliases among them, below −100 dB.
#[test]
fn the_models_spectra_give_samples_back() {
    for keys in [
        "oversampling=32/27",
        "oversampling=32/27,taps=32",
        "oversampling=4/3",
        "oversampling=4/3,taps=8",
        "oversampling=8/7",
        "oversampling=2/1,taps=8",
    ] {
        let config = wideband(keys);
        let samples = [3, 4].map(|seed| noise(1 << 14, 1.5 / CHANNELS as f64, seed));
        let of = |pol: usize, t: u64| AMPLITUDE * samples[pol][t as usize % (1 << 14)];
        let source = |pol: usize, t: u64| of(pol, t).round() as i32;
        let (first, got) = back(&config, keys, &source, 500);
        assert!(got.len() > 20_000, "{keys}: {} samples", got.len());
        for pol in 0..2 {
            let db = error(&got, pol, |i| of(pol, (first + i as i64) as u64).into());
            assert!(db < -100.0, "{keys}, noise of pol {pol}: {db:.1} dB");
        }
        for channel in [7.0, 20.5, 33.31, 61.9] {
            let f = channel / (2 * CHANNELS) as f64;
            let turns = |t: u64| (f * t as f64).fract();
            let of = |pol: usize, t: u64| AMPLITUDE * (TAU * turns(t) + pol as f64).cos();
            let source = |pol: usize, t: u64| of(pol, t).round() as i32;
            let (first, got) = back(&config, keys, &source, 300);
            for pol in 0..2 {
                let db = error(&got, pol, |i| of(pol, (first + i as i64) as u64).into());
                assert!(
                    db < -100.0,
                    "{keys}, tone at {channel}, pol {pol}: {db:.1} dB"
                );
            }
        }
    }
}

/// Narrowband: what comes back is the down-conversion's output.
#[test]
fn narrowband_spectra_give_the_down_converted_samples_back() {
    for (keys, centre, edge) in [
        ("oversampling=4/3,decimation=4", 0.1, 0.4),
        (
            "oversampling=32/27,decimation=4,pass_bandwidth=120M",
            -0.2,
            0.25,
        ),
    ] {
        let config = narrowband(keys);
        let of = config.narrowband.as_ref().expect("narrowband");
        let mixed = dsp::ddc::mixed(&of.filter, &of.mixer);
        // In output bands from the centre.
        for place in [0.0, centre, edge] {
            let band = 0.5 / config.decimation() as f64;
            let f = of.centre_frequency / 1712e6 + place * band;
            let source = |pol: usize, t: u64| {
                let turns = (f * t as f64).fract();
                (AMPLITUDE * (TAU * turns + pol as f64).cos()) as i32
            };
            let (first, got) = back(&config, keys, &source, 400);
            assert!(got.len() > 5_000, "{keys}: {} samples", got.len());
            // What the tone alone, without its image at −f, makes of the filter.
            let terms = mixed.iter().enumerate();
            let terms = terms.map(|(l, g)| g * Complex64::cis(TAU * (f * l as f64).fract()));
            let response: Complex64 = terms.sum();
            for pol in 0..2 {
                let db = error(&got, pol, |i| {
                    let t = (first + i as i64) * config.subsampling() as i64;
                    let turns = (f * t as f64).fract();
                    let tone = Complex64::from_polar(AMPLITUDE / 2.0, TAU * turns + pol as f64);
                    of.mixer.phasor(t) * response * tone
                });
                assert!(
                    db < -100.0,
                    "{keys}, tone at {place}, pol {pol}: {db:.1} dB"
                );
            }
        }
    }
}

/// Batches that the CPU backend makes of samples of 12 bits.
fn batches(config: &OutputConfig, gain: f64, samples: &[Vec<i32>; 2]) -> Vec<u8> {
    let bits = 12;
    let count = samples[0].len();
    let packed = samples.each_ref();
    let packed = packed.map(|samples| crate::support::packed(samples.iter().copied(), bits));
    let view = view(Timestamp(0), count, &packed);
    let spectra = (count - config.window_samples()) / config.spectrum_samples() + 1;
    let per_heap = config.spectra_per_heap();
    let batches = spectra / per_heap;
    let pipeline = PipelineConfig {
        output: config,
        sample_bits: SampleBits::new(bits).expect("2 to 16"),
        feng_id: 1,
        gain,
        statistics: false,
    };
    let workers = Arc::new(Workers::unpinned(2).expect("threads"));
    let mut pipeline = CpuChanneliser::new(&pipeline, workers);
    let mut chunk = output_chunk(config, batches, Timestamp(0));
    let block = Block {
        first: 0,
        offset: [0; 2],
        fine: &vec![FineDelay::default(); batches * per_heap],
        absent: &[],
    };
    let done = pipeline.run_frontend(&view, &block, &mut chunk.writer().span());
    done.expect("computed");
    pipeline.finish_chunk(batches, chunk).expect("finished");
    contents(&pipeline.poll_finished().expect("polled").expect("a chunk")).0
}

/// Through these bytes and back.
fn through_bytes(
    config: &OutputConfig,
    keys: &str,
    gain: f64,
    samples: &[Vec<i32>; 2],
) -> (i64, Vec<Sample>) {
    let data = batches(config, gain, samples);
    let per_heap = config.spectra_per_heap();
    let mut inverse = synthesiser(&format!("{keys},gain={gain}"));
    let mut got = Vec::new();
    for s in 0..data.len() / config.batch_bytes() * per_heap {
        let spectrum = [0, 1].map(|pol: usize| -> Vec<Complex64> {
            let value = |k: usize| {
                let batch = s / per_heap * CHANNELS * per_heap;
                let at = ((batch + k * per_heap + s % per_heap) * 2 + pol) * 2;
                Complex64::new((data[at] as i8).into(), (data[at + 1] as i8).into())
            };
            (0..CHANNELS).map(value).collect()
        });
        let spectrum = spectrum.each_ref().map(|bins| &bins[..]);
        inverse.push(s as u64, Some(spectrum), |sample| got.push(sample));
    }
    (inverse.first_sample(0), got)
}

/// A tone goes through 8 bits without a line beside it, of an alias or an image, above −60 dB.
#[test]
fn a_tone_of_8_bits_comes_back_without_aliases() {
    const LINES: usize = 1 << 19;
    let keys = "oversampling=32/27";
    let config = OutputConfig {
        dither: Dither::Uniform,
        ..wideband(keys)
    };
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    // In no channel's centre, and at a channel's edge, in the two polarisations.
    let f = [20.37, 41.5].map(|channel| channel / (2 * CHANNELS) as f64);
    let samples = f.map(|f| {
        let sample = |t: usize| {
            let tone = 2000.0 * (TAU * (f * t as f64).fract()).cos();
            (tone + rng.random_range(-0.5..0.5)).round() as i32
        };
        (0..LINES + 30_000).map(sample).collect::<Vec<_>>()
    });
    let sum: f64 = config.weights().iter().map(|&w| f64::from(w)).sum();
    let gain = 100.0 / (1000.0 * sum);
    let (_, got) = through_bytes(&config, keys, gain, &samples);
    for (pol, f) in f.into_iter().enumerate() {
        // Blackman and Harris's window: −92 dB beside the lines themselves.
        let window = |i: usize| {
            let a = TAU * i as f64 / LINES as f64;
            0.35875 - 0.48829 * a.cos() + 0.14128 * (2.0 * a).cos() - 0.01168 * (3.0 * a).cos()
        };
        let mut lines: Vec<Complex64> = (0..LINES)
            .map(|i| Complex64::from(got[i][pol].re * window(i)))
            .collect();
        forward_f64(LINES).process(&mut lines);
        let own = (f * LINES as f64).round() as usize;
        let power = |k: usize| lines[k].norm_sqr();
        let tone = (own - 4..=own + 4).map(power).fold(0.0, f64::max);
        let others = (0..LINES / 2).filter(|k| k.abs_diff(own) > 8);
        let most = others.map(power).fold(0.0, f64::max);
        let db = 10.0 * (most / tone).log10();
        assert!(db < -60.0, "pol {pol}: {db:.1} dB");
    }
}

/// Noise through 8 bits: the response of bank and inverse is 1 to −60 dB wherever in a channel, and
/// what else there is in the samples is the noise of quantisation, as strong as predicted.
#[test]
fn noise_of_8_bits_comes_back_with_no_more_than_quantisation_adds() {
    const BINS: usize = 1024;
    let keys = "oversampling=32/27";
    let config = OutputConfig {
        dither: Dither::Uniform,
        ..wideband(keys)
    };
    let len = 1 << 19;
    // So that nothing is beyond 12 bits.
    let deviation = 380.0;
    let samples = [5, 6].map(|seed| {
        let noise = noise(len, 1.5 / CHANNELS as f64, seed);
        let rms = (noise.iter().map(|x| x * x).sum::<f64>() / len as f64).sqrt();
        let scaled = noise.iter().map(|x| (x / rms * deviation).round() as i32);
        scaled.collect::<Vec<_>>()
    });
    // A fifth of full scale in each part.
    let gain = 127.0 / 5.0 / (deviation / 2f64.sqrt());
    let (first, got) = through_bytes(&config, keys, gain, &samples);
    let first = usize::try_from(first).expect("behind time 0");
    let fft = forward_f64(BINS);
    for (pol, samples) in samples.iter().enumerate() {
        let mut cross = vec![Complex64::default(); BINS];
        let mut own = vec![0.0; BINS];
        let mut off = 0.0;
        let segments = got.len() / BINS;
        for segment in 0..segments {
            let window = |i: usize| {
                (std::f64::consts::PI * i as f64 / BINS as f64)
                    .sin()
                    .powi(2)
            };
            let of = |i: usize| f64::from(samples[first + segment * BINS + i]);
            let back = |i: usize| got[segment * BINS + i][pol].re;
            off += (0..BINS).map(|i| (back(i) - of(i)).powi(2)).sum::<f64>();
            let mut x: Vec<_> = (0..BINS)
                .map(|i| Complex64::from(of(i) * window(i)))
                .collect();
            let mut y: Vec<_> = (0..BINS)
                .map(|i| Complex64::from(back(i) * window(i)))
                .collect();
            fft.process(&mut x);
            fft.process(&mut y);
            let pairs = x.iter().zip(&y);
            for ((cross, own), (x, y)) in cross.iter_mut().zip(&mut own).zip(pairs) {
                *cross += y * x.conj();
                *own += x.norm_sqr();
            }
        }
        // Channels are BINS/(2·CHANNELS) bins wide and alike.
        let width = BINS / (2 * CHANNELS);
        for place in 0..width {
            let bins = (2..CHANNELS - 3).map(|channel| channel * width + place);
            let (y, x) = bins.fold((Complex64::default(), 0.0), |(y, x), k| {
                (y + cross[k], x + own[k])
            });
            let db = 20.0 * (y / x - 1.0).norm().log10();
            assert!(db < -60.0, "pol {pol}, {place} of {width}: {db:.1} dB");
        }
        // Uniform errors of rounding, and of dither, of either part.
        let added = 4.0 / 12.0 * synthesiser(keys).noise() / (gain * gain);
        let ratio = off / (segments * BINS) as f64 / added;
        assert!((0.97..1.03).contains(&ratio), "pol {pol}: {ratio}");
    }
}

/// Captured heaps give what the inverse makes of their bytes, with the time of the first sample, as
/// far as there is no gap.
#[test]
fn captured_heaps_become_samples_again() {
    let keys = "oversampling=32/27";
    let config = wideband(keys);
    let noise = [7, 8].map(|seed| {
        let noise = noise(1 << 17, 1.5 / CHANNELS as f64, seed);
        noise
            .iter()
            .map(|x| (2000.0 * x).round() as i32)
            .collect::<Vec<_>>()
    });
    let gain = 0.1;
    let data = batches(&config, gain, &noise);
    let (first, want) = through_bytes(&config, keys, gain, &noise);
    let step = config.batch_samples() as u64;
    // From a batch on that is no multiple of a wideband one.
    let start = (1 << 20) / step * step + step;
    let all = data.len() / config.batch_bytes();
    let dir = tempfile::tempdir().expect("a folder");
    // One behind a gap, which is not part of the longest run.
    let last = all - 2;
    let sent = (0..all).filter(|&batch| batch != last);
    let path = dir.path().join("output.pcap");
    let dst = "239.1.1.1:7148".parse().expect("an endpoint");
    let src = "10.0.0.1:5000".parse().expect("an endpoint");
    let template = HeaderTemplate::multicast(MacAddr([2, 0, 0, 0, 0, 1]), src, dst, 4);
    let template = template.expect("headers");
    let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).expect("a file");
    let mut send = |payload: &[u8]| {
        let mut headers = [0; karoo::net::frame::HEADERS_LEN];
        template.emit(payload.len(), &mut headers);
        writer
            .write_frame(0, &[&headers, payload])
            .expect("written");
    };
    let spectra_per_heap = config.spectra_per_heap() as u64;
    let shape = Descriptor::spectra(CHANNELS as u64, spectra_per_heap, 8);
    send(&descriptor::emit_heap(0, &shape));
    for (count, batch) in sent.enumerate() {
        let heap = &data[batch * config.batch_bytes()..][..config.batch_bytes()];
        let repr = SpectraRepr {
            heap_count: 1 + count as u64,
            heap_length: heap.len() as u64,
            payload_offset: 0,
            payload_length: heap.len() as u64,
            timestamp: start + batch as u64 * step,
            feng_id: 0,
            first_channel: 0,
        };
        let mut payload = vec![0; spectra::PREAMBLE_LEN];
        repr.emit(payload.first_chunk_mut().expect("a preamble"));
        payload.extend_from_slice(heap);
        send(&payload);
    }
    writer.finish().expect("a capture");
    let options = SinkOptions {
        output_dir: Some(dir.path().join("out")),
        synthesis: Some(format!("{keys},gain={gain}").parse().expect("options")),
        ..SinkOptions::default()
    };
    let report = sink::read(&path, &options).expect("read");
    let stream = &report.streams[0];
    assert_eq!(
        (stream.batch_samples, stream.batches),
        (step, all as u64 - 1)
    );
    let of = stream.synthesis.as_ref().expect("samples");
    assert_eq!((of.batches, of.step), (last as u64, 1));
    assert_eq!(of.first_timestamp, first + start as i64);
    let (shape, got) = array::<f32>(Path::new(&of.file));
    assert_eq!(shape, [of.samples, 2]);
    assert!(got.len() > 50_000);
    // Phases count from time 0: bytes are the same at both times because a heap has whole turns.
    assert_eq!(start / config.spectrum_samples() as u64 % 32, 0);
    for (i, pair) in got.chunks(2).enumerate() {
        for (pol, &got) in pair.iter().enumerate() {
            let want = want[i][pol].re;
            assert!(
                (f64::from(got) - want).abs() < 1e-2 + 1e-6 * want.abs(),
                "{i}: {pair:?}, not {want}"
            );
        }
    }
    // Without the keys, the batch is found out.
    let report = sink::read(&path, &SinkOptions::default()).expect("read");
    assert_eq!(report.streams[0].batch_samples, step);
    let notes = &report.streams[0].notes;
    assert!(
        notes.iter().any(|note| note.contains("oversampled")),
        "{notes:?}"
    );
}
