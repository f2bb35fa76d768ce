//! Channelises a file on the CPU: `cargo run --release --example channelise IN.npy OUT.npy`.
//!
//! IN.npy has 16-bit integers of shape (2, samples), one row for each polarisation; OUT.npy gets
//! bytes of shape (batch, channel, spectrum, polarisation, re/im).

use dsp::SampleBits;
use karoo::config::{PipelineConfig, WidebandOptions};
use karoo::cpu::{Workers, channelise};
use npyz::{NpyFile, WriterBuilder};

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let paths: Vec<_> = std::env::args().skip(1).collect();
    let input: Vec<i16> = NpyFile::new(&std::fs::read(&paths[0])?[..])?.into_vec()?;
    let input: Vec<i32> = input.into_iter().map(i32::from).collect();
    let (pol0, pol1) = input.split_at(input.len() / 2);

    let options: WidebandOptions = "name=w,channels=1024,dst=239.10.0.0,taps=16".parse()?;
    let output = options.into_config(1 << 16, 0);
    let config = PipelineConfig {
        output: &output,
        sample_bits: SampleBits::new(16).ok_or("16 bits")?,
        feng_id: 0,
        gain: 1e-3,
        statistics: false,
    };
    let chunk = channelise(&config, [pol0, pol1], Workers::unpinned(2)?)?;

    let shape = [chunk.capacity(), 1024, output.spectra_per_heap(), 2, 2].map(|n| n as u64);
    let mut file = npyz::WriteOptions::<i8>::new()
        .default_dtype()
        .shape(&shape)
        .writer(std::fs::File::create(&paths[1])?)
        .begin_nd()?;
    for batch in 0..chunk.capacity() {
        file.extend(chunk.batch(batch).iter().map(|&byte| byte as i8))?;
    }
    Ok(file.finish()?)
}
