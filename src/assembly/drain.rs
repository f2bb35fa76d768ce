//! How long the end of an engine may take.

use std::time::Duration;

use crate::config::{EngineConfig, OutputConfig};
use crate::memory::OUTPUT_CHUNKS;

/// The slowest pace that is waited for, as a multiple of an output's own rate: below 1 an engine
/// falls behind anyway.
const SLOWEST: f64 = 0.5;
/// Receive chunks whose data may still be to come out: one at work, one that was being filled.
const RECEIVE_CHUNKS: usize = 2;
/// For all that is not sending: computing what was received, stop heaps, lcores that end.
const REST: Duration = Duration::from_secs(5);

/// How long what is under way in `engine` may take to come out once its input has ended: what was
/// received and all output chunks may wait, each for as long as its data took, or up to twice as
/// long where `rate_factor`, the pace as a multiple of an output's own rate, is below 1. 0 is no
/// pace. `spare_chunks` are the receive chunks beside those that the engine needs: they may all be
/// full.
pub fn drain(engine: &EngineConfig, rate_factor: f64, spare_chunks: usize) -> Duration {
    let chunk_samples = |output: &OutputConfig| {
        let batches = engine.send.chunk_jones / output.jones_per_batch;
        batches.saturating_mul(output.batch_samples())
    };
    let longest = engine.outputs.iter().map(chunk_samples).max();
    let sent = OUTPUT_CHUNKS as f64 * longest.unwrap_or(0) as f64;
    let received = ((RECEIVE_CHUNKS + spare_chunks) * engine.recv.chunk_samples) as f64;
    let waits = (sent + received) / engine.clock.adc_sample_rate;
    let slowed = if rate_factor > 0.0 {
        rate_factor.clamp(SLOWEST, 1.0)
    } else {
        1.0
    };
    let paced = Duration::try_from_secs_f64(waits / slowed);
    REST.saturating_add(paced.unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NarrowbandOptions;
    use crate::config::tests::engine;

    const WIDEBAND: &str = "name=w,channels=4096,dst=239.10.0.0+63";

    /// katgpucbf's defaults at 1712 MHz, with outputs of which the second is narrower by
    /// `decimation`.
    fn defaults(decimation: usize) -> EngineConfig {
        engine(WIDEBAND, |config| {
            config.send.chunk_jones = 1 << 23;
            let narrowband = format!(
                "name=n,channels=4096,dst=239.10.1.0+7,centre_frequency=428e6,decimation={decimation},ddc_taps={}",
                4 * decimation
            );
            let narrowband: NarrowbandOptions = narrowband.parse().unwrap();
            let output = narrowband.into_config(1 << 20, 0, config.clock);
            config.outputs.push(output.unwrap());
        })
    }

    fn seconds(engine: &EngineConfig, rate_factor: f64) -> f64 {
        drain(engine, rate_factor, 0).as_secs_f64()
    }

    /// A chunk has 2048 spectra of 4096 channels; the time of a spectrum is the inverse of a
    /// channel's width.
    #[test]
    fn narrow_outputs_have_longer() {
        let channel = |decimation: f64| 856e6 / decimation / 4096.0;
        let chunk = |decimation: f64| 2048.0 / channel(decimation);
        for decimation in [8, 512, 1024] {
            let engine = defaults(decimation as usize);
            let received = 2.0 * engine.recv.chunk_samples as f64 / 1712e6;
            let all = 4.0 * chunk(decimation.into()) + received;
            assert!((seconds(&engine, 1.1) - 5.0 - all).abs() < 1e-6);
        }
        assert!(chunk(1024.0) > 9.0);
    }

    /// Output chunks may be much smaller than what was received for them.
    #[test]
    fn what_was_received_has_its_time() {
        let mut engine = defaults(8);
        engine.clock.adc_sample_rate = 1e6;
        engine.recv.chunk_samples = 1 << 25;
        engine.send.chunk_jones = 1 << 20;
        assert!(seconds(&engine, 1.1) > 67.0);
        let spare = drain(&engine, 1.1, 10).as_secs_f64() - seconds(&engine, 1.1);
        assert!((spare - 335.5).abs() < 0.1, "{spare}");
    }

    #[test]
    fn slow_paces_have_longer() {
        let engine = defaults(512);
        let sending = |rate_factor| seconds(&engine, rate_factor) - 5.0;
        assert_eq!(sending(0.0), sending(1.0));
        assert_eq!(sending(1.1), sending(1.0));
        assert!((sending(0.8) - sending(1.0) / 0.8).abs() < 1e-6);
        // Hardly any pace at all would take for ever.
        assert!((sending(f64::MIN_POSITIVE) - 2.0 * sending(1.0)).abs() < 1e-6);
    }
}
