//! Sums for statistics against the golden model, and against the CPU backend's.

use dsp::{Dither, dither};
use karoo::engine::{ChannelSums, FineDelay, PeriodSums, Pipeline};
use karoo::gpu::{Fft, KernelChoice};
use karoo::model::Model;

use crate::case::{CUFFT, Case, START};
use crate::support::gpu::FENG_ID;
use crate::support::{device, output};

/// The sums of the period that ends now.
fn ended(pipeline: &mut dyn Pipeline) -> PeriodSums {
    assert!(pipeline.end_period().unwrap());
    loop {
        if let Some(sums) = pipeline.poll_sums().unwrap() {
            return sums;
        }
    }
}

/// Sums of numbers cut off behind ten bits: within a thousandth. Counts are the same but where a
/// rounding error decides.
fn assert_close(what: &str, got: &PeriodSums, expected: &PeriodSums) {
    assert_eq!(got.spectra, expected.spectra, "{what}");
    assert_eq!(got.channels.len(), expected.channels.len(), "{what}");
    let mut off = 0;
    for (k, (got, expected)) in got.channels.iter().zip(&expected.channels).enumerate() {
        let [x, y] = expected.power;
        for pol in 0..2 {
            let power = (got.power[pol] - expected.power[pol]).abs() / expected.power[pol];
            let squared = expected.power_squared[pol];
            let squares = (got.power_squared[pol] - squared).abs() / squared;
            assert!(
                power < 1e-3 && squares < 1e-3,
                "{what}, channel {k}: {got:?} is not {expected:?}"
            );
            off += got.clipped[pol].abs_diff(expected.clipped[pol]);
        }
        let cross = (got.cross - expected.cross).norm() / (x * y).sqrt();
        assert!(
            cross < 1e-3,
            "{what}, channel {k}: {got:?} is not {expected:?}"
        );
    }
    let clipped = expected
        .channels
        .iter()
        .map(|sums| sums.clipped[0] + sums.clipped[1]);
    let clipped = clipped.sum::<u64>();
    assert!(
        clipped > 10 && off <= 1 + clipped / 1000,
        "{what}: {off} of {clipped} clipped"
    );
}

/// Sums over all spectra of a case without delays, by the model.
fn expected(case: &Case) -> PeriodSums {
    let output = &case.config;
    let model = Model::new(output, FENG_ID);
    let source = |pol: usize, t: u64| case.samples[pol][(t - START.0) as usize];
    let spectra = case.fine.len();
    let mut sums = PeriodSums {
        spectra: spectra as u64,
        channels: vec![ChannelSums::default(); output.channels],
    };
    for s in 0..spectra {
        let t = START + (s * output.spectrum_samples()) as u64;
        let [x, y] = model.spectrum(&source, t, &Default::default(), &case.gains);
        for (k, sums) in sums.channels.iter_mut().enumerate() {
            let draws = dither::dither(output.dither_seed, FENG_ID, t.0, k, output.channels);
            for (pol, z) in [x[k], y[k]].into_iter().enumerate() {
                sums.power[pol] += z.norm_sqr();
                sums.power_squared[pol] += z.norm_sqr().powi(2);
                let parts = [
                    z.re as f32 + draws[2 * pol],
                    z.im as f32 + draws[2 * pol + 1],
                ];
                let limit = output.sample_bits.limit();
                sums.clipped[pol] += u64::from(parts.iter().any(|part| part.abs() > limit));
            }
            sums.cross += x[k] * y[k].conj();
        }
    }
    sums
}

#[test]
fn sums_are_those_of_the_model() {
    let Some(gpu) = device() else { return };
    for channels in [64, 1024, 4096] {
        let mut case = Case::new(output(channels, 4, 32, Dither::Uniform), 10, 1, 60.0, 5);
        case.statistics = true;
        case.offset = [0, 0];
        case.fine.fill(FineDelay::default());
        let expected = expected(&case);
        for kernels in [KernelChoice::default(), CUFFT] {
            let mut rig = case.with_kernels(&gpu, &kernels).unwrap();
            case.set_gains(&mut *rig.pipeline);
            case.run(&mut rig, &[]);
            let what = format!("{channels} channels, {}", rig.pipeline.name());
            assert_close(&what, &ended(&mut *rig.pipeline), &expected);
        }
    }
}

#[test]
fn sums_agree_with_the_cpu() {
    let Some(gpu) = device() else { return };
    // Groups that are whole, and chunks that end inside one; missing input; cuts inside groups.
    for (channels, spectra_per_heap) in [(64, 48), (256, 40), (1024, 32), (4096, 32), (16384, 32)] {
        let config = output(channels, 4, spectra_per_heap, Dither::Uniform);
        let mut case = Case::new(config, 10, 2, 45.0, channels as u64);
        case.statistics = true;
        // The CPU takes fewer spectra of many channels.
        let every = match channels {
            ..=1024 => 1,
            1025..=8192 => 2,
            _ => 4,
        };
        let left_out = |s: &usize| [0, 17, 18, 30].contains(s) || !s.is_multiple_of(every);
        case.absent = (0..2 * spectra_per_heap).filter(left_out).collect();
        let mut cpu = case.on_cpu();
        case.set_gains(&mut cpu);
        case.run_on_cpu(&mut cpu, &[]);
        let expected = ended(&mut cpu);
        for kernels in [KernelChoice::default(), CUFFT] {
            let mut rig = case.with_kernels(&gpu, &kernels).unwrap();
            case.set_gains(&mut *rig.pipeline);
            let what = format!("{channels} channels, {}", rig.pipeline.name());
            case.run(&mut rig, &[5, 21]);
            assert_close(&what, &ended(&mut *rig.pipeline), &expected);
            // The next period begins anew. Of its chunks one in so many is summed.
            assert_eq!(ended(&mut *rig.pipeline).spectra, 0);
            let every = if kernels.fft == Fft::Cufft { 64 } else { 8 };
            for chunk in 0..=every {
                case.run(&mut rig, if chunk == every { &[33] } else { &[] });
            }
            let twice = ended(&mut *rig.pipeline);
            assert_eq!(twice.spectra, 2 * expected.spectra, "{what}");
            let ratio = twice.channels[3].power[1] / expected.channels[3].power[1];
            assert!((ratio - 2.0).abs() < 2e-3, "{what}: {ratio}");
        }
    }
}

/// Where a block has no room for sums.
#[test]
fn sums_of_many_channels_agree_with_the_cpu() {
    let Some(gpu) = device() else { return };
    let mut case = Case::new(output(32768, 4, 128, Dither::Uniform), 10, 1, 45.0, 1);
    case.statistics = true;
    // Those that the CPU takes.
    case.absent = (0..128usize).filter(|s| !s.is_multiple_of(4)).collect();
    let mut rig = case.on_gpu(&gpu);
    case.set_gains(&mut *rig.pipeline);
    case.run(&mut rig, &[]);
    let mut cpu = case.on_cpu();
    case.set_gains(&mut cpu);
    case.run_on_cpu(&mut cpu, &[]);
    assert_close(
        "32768 channels",
        &ended(&mut *rig.pipeline),
        &ended(&mut cpu),
    );
}

#[test]
fn sums_are_the_same_in_every_run() {
    let Some(gpu) = device() else { return };
    let mut case = Case::new(output(1024, 4, 256, Dither::Uniform), 10, 2, 45.0, 1);
    case.statistics = true;
    let mut rig = case.on_gpu(&gpu);
    case.set_gains(&mut *rig.pipeline);
    case.run(&mut rig, &[]);
    let once = ended(&mut *rig.pipeline);
    for _ in 0..20 {
        case.run(&mut rig, &[]);
        assert_eq!(ended(&mut *rig.pipeline), once);
    }
}
