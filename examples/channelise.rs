//! Channelises a file on the CPU: `cargo run --release --example channelise IN.npy OUT.npy`.
//!
//! IN.npy has 16-bit integers of shape (2, samples), one row for each polarisation; OUT.npy gets
//! bytes of shape (batch, channel, spectrum, polarisation, re/im).

use std::process::ExitCode;

use dsp::SampleBits;
use karoo::config::{PipelineConfig, WidebandOptions};
use karoo::cpu::{Workers, channelise};
use npyz::{NpyFile, Order, WriterBuilder};

/// Any error with a message.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Why a file has no samples of two polarisations.
#[derive(Debug, thiserror::Error)]
enum InputError {
    #[error("{0}")]
    File(#[from] std::io::Error),
    #[error(
        "the array has the shape {shape:?} in {order:?} order; it must have (2, samples) in C \
         order, as numpy.ascontiguousarray makes it"
    )]
    Shape { shape: Vec<u64>, order: Order },
}

/// Reads 16-bit samples of shape (2, samples), polarisation by polarisation.
fn read(path: &str) -> Result<Vec<i32>, InputError> {
    let bytes = std::fs::read(path)?;
    let file = NpyFile::new(&bytes[..])?;
    let (shape, order) = (file.shape().to_vec(), file.order());
    if !matches!(shape[..], [2, _]) || order != Order::C {
        return Err(InputError::Shape { shape, order });
    }
    let samples: Vec<i16> = file.into_vec()?;
    Ok(samples.into_iter().map(i32::from).collect())
}

/// Channelises one file to another.
pub fn run(input: &str, output: &str) -> Result<(), Error> {
    let samples = read(input).map_err(|error| format!("{input}: {error}"))?;
    let (pol0, pol1) = samples.split_at(samples.len() / 2);

    let options: WidebandOptions = "name=w,channels=1024,dst=239.10.0.0,taps=16".parse()?;
    let wideband = options.into_config(1 << 16, 0);
    let config = PipelineConfig {
        output: &wideband,
        sample_bits: SampleBits::new(16).ok_or("16 bits")?,
        feng_id: 0,
        gain: 1e-3,
        statistics: false,
    };
    let chunk = channelise(&config, [pol0, pol1], Workers::unpinned(2)?)?;

    let shape = [chunk.capacity(), 1024, wideband.spectra_per_heap(), 2, 2].map(|n| n as u64);
    let mut bytes = Vec::new();
    let mut array = npyz::WriteOptions::<i8>::new()
        .default_dtype()
        .shape(&shape)
        .writer(&mut bytes)
        .begin_nd()?;
    for batch in 0..chunk.capacity() {
        array.extend(chunk.batch(batch).iter().map(|&byte| byte as i8))?;
    }
    array.finish()?;
    Ok(std::fs::write(output, bytes)?)
}

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = &paths[..] else {
        eprintln!("usage: channelise IN.npy OUT.npy");
        return ExitCode::from(2);
    };
    match run(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("channelise: {error}");
            ExitCode::FAILURE
        }
    }
}
