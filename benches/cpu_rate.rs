//! Rate of the CPU backend on given data, as one line of JSON; `scripts/compare-numpy` runs it.
//!
//! All options are needed but the last: `--channels`, `--taps`, `--spectra-per-heap`, `--spectra`,
//! `--gain`, `--repeats`, `--cores` (with commas), `--input` (a file of packed 10-bit samples of
//! polarisation 0, then of 1), `--output` (a file for the spectra), and for narrowband around an
//! eighth of the sample rate `--decimation`. Without any option there is nothing to do.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use dsp::{Dither, OutputBits, SampleBits, WindowFunction};
use ground::{SampleClock, Timestamp};
use karoo::config::{Narrowband, NarrowbandSpec, OutputConfig, PipelineConfig};
use karoo::cpu::{CpuChanneliser, Workers};
use karoo::engine::{Block, FineDelay, OutputChunk, Pipeline};
use karoo::memory::{HostAllocator, OutputMemory, SampleView};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1);
    let option = |name: &str| given(name).ok_or_else(|| format!("{name} is missing"));
    // `cargo bench` and `cargo test` start all benches, with arguments of their own.
    if given("--input").is_none() {
        println!("cpu_rate: no --input; scripts/compare-numpy gives one");
        return Ok(());
    }
    let (input, output) = (option("--input")?, option("--output")?);
    let clock = SampleClock {
        adc_sample_rate: 1.0,
        sync_time: 0.0,
    };
    let narrowband = given("--decimation").map(|decimation| -> Result<_, Box<dyn Error>> {
        let spec = NarrowbandSpec {
            centre_frequency: 0.125,
            decimation: decimation.parse()?,
            ddc_taps: None,
            weight_pass: 0.005,
            pass_bandwidth: None,
        };
        Ok(Narrowband::new(&spec, clock)?)
    });
    let channels: usize = option("--channels")?.parse()?;
    let taps: usize = option("--taps")?.parse()?;
    let spectra_per_heap: usize = option("--spectra-per-heap")?.parse()?;
    let spectra: usize = option("--spectra")?.parse()?;
    let gain: f64 = option("--gain")?.parse()?;
    let repeats: usize = option("--repeats")?.parse()?;
    let cores = option("--cores")?
        .split(',')
        .map(str::parse)
        .collect::<Result<Vec<usize>, _>>()?;
    let bits = SampleBits::new(10).ok_or("10 bits")?;
    let config = OutputConfig {
        name: "wideband".into(),
        channels,
        dst: vec!["239.1.2.3:7148".parse()?],
        jones_per_batch: channels * spectra_per_heap,
        taps,
        w_cutoff: 1.0,
        window_function: WindowFunction::Hann,
        oversampling: dsp::Oversampling::NONE,
        dither: Dither::None,
        dither_seed: 1,
        sample_bits: OutputBits::Eight,
        narrowband: narrowband.transpose()?,
    };
    let samples = (spectra - 1) * config.spectrum_samples() + config.window_samples();
    let file = std::fs::read(input)?;
    let pols: Vec<Vec<u8>> = file
        .chunks_exact(bits.bytes(samples))
        .map(|pol| [pol, &[0; SampleView::PADDING]].concat())
        .collect();
    let [pol0, pol1] = &pols[..] else {
        return Err(
            format!("{input}: {samples} samples for each of two polarisations are needed").into(),
        );
    };
    let input = SampleView {
        start: Timestamp(0),
        samples,
        pol: [pol0, pol1],
        device: None,
    };
    let batches = spectra / config.spectra_per_heap();
    let fine = vec![FineDelay::default(); batches * config.spectra_per_heap()];
    let mut chunk = OutputChunk::lone(OutputMemory::new(
        batches,
        config.batch_bytes(),
        &HostAllocator::default(),
    )?);
    let mut pipeline = CpuChanneliser::new(
        &PipelineConfig {
            output: &config,
            sample_bits: bits,
            feng_id: 0,
            gain,
            statistics: false,
        },
        Arc::new(Workers::pinned(&cores)?),
    );
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let begun = Instant::now();
        let block = Block {
            first: 0,
            offset: [0, 0],
            fine: &fine,
            absent: &[],
        };
        pipeline.run_frontend(&input, &block, &mut chunk.writer().span())?;
        pipeline.finish_chunk(batches, chunk)?;
        chunk = pipeline
            .poll_finished()?
            .ok_or("the chunk did not come back")?;
        best = best.min(begun.elapsed().as_secs_f64());
    }
    let batch = |batch| chunk.batch(batch).to_vec();
    let data: Vec<u8> = (0..batches).flat_map(batch).collect();
    std::fs::write(output, data)?;
    let phases: Vec<_> = pipeline
        .thread_reports()
        .into_iter()
        .map(|l| l.phases)
        .collect();
    let rate = (fine.len() * config.spectrum_samples()) as f64 / best / 1e6;
    println!(
        "{}",
        serde_json::json!({
            "channels": channels,
            "cores": cores,
            "level": pipeline.level().name(),
            "msamples_per_second_per_pol": rate,
            "phases": phases,
        })
    );
    Ok(())
}
