//! The CUDA backend against the golden model and the CPU backend. Without a CUDA device, the tests
//! say so and pass.

use dsp::{Dither, Oversampling, SampleBits, WindowFunction};
use ground::Timestamp;
use karoo::config::{OutputConfig, PipelineConfig};
use karoo::engine::{Block, FineDelay, Intake as _, Pipeline};
use karoo::gpu::measure::{Buffers, KernelTrial, Pass};
use karoo::gpu::{Gpu, GpuChanneliser, GpuIntake, KernelChoice, OutputChunks, Streams};
use karoo::memory::{BatchStats, HostAllocator, MemoryKind};
use karoo::model::Model;
use num_complex::Complex32;

use crate::case::{Case, START, compare, each, padded};
use crate::support::gpu::{FENG_ID, assert_agree, chunk, layout, next_complete};
use crate::support::{device, output, output_chunk};

/// Every number of channels that the kernels have, with several taps and lengths of heaps.
#[test]
fn agrees_with_the_cpu_for_every_number_of_channels() {
    let Some(gpu) = device() else { return };
    for (log, taps) in (6..=16).zip([16, 1, 4, 16, 16, 7, 16, 16, 16, 16, 4]) {
        for dither in [Dither::None, Dither::Uniform] {
            let config = output(1 << log, taps, if log % 2 == 0 { 24 } else { 32 }, dither);
            let case = Case::new(config, 10, 2, 30.0, log);
            let what = format!("{} channels, {taps} taps, {dither:?}", 1 << log);
            compare(&gpu, &what, &case, &[3, 21]);
        }
    }
}

#[test]
fn agrees_with_the_cpu_for_every_width() {
    let Some(gpu) = device() else { return };
    for bits in 2..=16 {
        let case = Case::new(output(256, 16, 32, Dither::Uniform), bits, 2, 30.0, 77);
        compare(&gpu, &format!("{bits} bits"), &case, &[5]);
    }
}

#[test]
fn agrees_with_the_cpu_for_many_taps() {
    let Some(gpu) = device() else { return };
    for taps in [1, 2, 4, 31, 32, 33, 64] {
        let case = Case::new(output(1024, taps, 32, Dither::Uniform), 12, 1, 30.0, 78);
        compare(&gpu, &format!("{taps} taps"), &case, &[]);
    }
}

/// Long runs, those of any number of taps, and cuFFT; with every ratio that kernels differ for.
#[test]
fn agrees_with_the_cpu_when_oversampled() {
    let Some(gpu) = device() else { return };
    for (log, taps, m, n) in [
        (6, 4, 32, 27),
        (8, 16, 4, 3),
        (10, 16, 32, 27),
        (11, 5, 8, 7),
        (12, 16, 32, 27),
        (12, 20, 32, 27),
        (12, 16, 4, 1),
        (12, 16, 8, 1),
        (13, 16, 64, 63),
        (15, 16, 4, 3),
        (16, 4, 32, 27),
    ] {
        let of = Oversampling::new(m, n).unwrap();
        let config = OutputConfig {
            oversampling: of,
            window_function: WindowFunction::Kaiser,
            w_cutoff: WindowFunction::Kaiser.cutoff(taps, of),
            ..output(
                1 << log,
                taps,
                if log % 2 == 0 { 24 } else { 32 },
                Dither::Uniform,
            )
        };
        for bits in [10, 16] {
            let case = Case::new(config.clone(), bits, 2, 30.0, log);
            let what = format!("{} channels, {taps} taps, {of}, {bits} bits", 1 << log);
            compare(&gpu, &what, &case, &[3, 21]);
        }
    }
}

/// Without delays, against the model in double precision, with a gain that clamps one sample in
/// ten.
#[test]
fn agrees_with_the_model() {
    let Some(gpu) = device() else { return };
    for (channels, taps, dither) in [(64, 4, Dither::Uniform), (1024, 16, Dither::None)] {
        let config = output(channels, taps, 32, dither);
        let mut case = Case::new(config.clone(), 10, 1, 60.0, 79);
        case.offset = [0, 0];
        case.fine.fill(FineDelay::default());
        let mut rig = case.on_gpu(&gpu);
        case.set_gains(&mut *rig.pipeline);
        let source = |pol: usize, t: u64| case.samples[pol][(t - START.0) as usize];
        let batch =
            Model::new(&config, FENG_ID).batch(&source, START, &Default::default(), &case.gains);
        let data = batch.data.iter().map(|&x| x as u8).collect();
        let stats = vec![BatchStats {
            clipped: batch.clipped,
            power: batch.power,
        }];
        assert!(stats[0].clipped.iter().all(|&n| n > 100));
        let what = format!("{channels} channels");
        assert_agree(&what, &case.run(&mut rig, &[]), &(data, stats));
    }
}

/// No byte and no count depends on where blocks end, nor on what was computed before.
#[test]
fn same_bytes_however_cut() {
    let Some(gpu) = device() else { return };
    for (channels, sph) in [(64, 20), (512, 64)] {
        let case = Case::new(output(channels, 16, sph, Dither::Uniform), 10, 4, 60.0, 80);
        for mut rig in [case.on_gpu(&gpu), case.on_cufft(&gpu)] {
            case.set_gains(&mut *rig.pipeline);
            let expected = case.run(&mut rig, &[]);
            let cuts: [&[usize]; 5] = [
                &[16, 32],
                &[1, 2, 3, 5, 40, 79],
                &[15, 17, 31, 33],
                &[79],
                &[8, 48],
            ];
            for cuts in cuts {
                let got = case.run(&mut rig, cuts);
                let kernels = rig.pipeline.name();
                assert!(
                    got == expected,
                    "{channels} channels cut at {cuts:?}, {kernels}"
                );
            }
        }
    }
}

/// Kernels of successive passes overlap where nothing comes between them. What is small is resident
/// at once, so that several do.
#[test]
fn passes_that_overlap_make_the_same() {
    let Some(gpu) = device() else { return };
    for (channels, taps) in [(64, 4), (256, 16), (1024, 32), (4096, 16), (32768, 16)] {
        let sets = [86, 87, 88].map(|seed| {
            let config = output(channels, taps, 32, Dither::Uniform);
            Case::new(config, 10, 2, 60.0, seed)
        });
        let case = &sets[0];
        let pass = Pass {
            output: &case.config,
            bits: case.bits,
            feng_id: FENG_ID,
            start: START,
            packed: &sets.each_ref().map(|case| padded(&case.packed)),
            begin: Timestamp(0),
            offset: case.offset,
            fine: &case.fine,
            gains: &case.gains,
        };
        let buffers = Buffers::new(&gpu, &pass).unwrap();
        let mut trial = KernelTrial::new(&buffers, &KernelChoice::default(), false).unwrap();
        let mut rig = case.on_gpu(&gpu);
        case.set_gains(&mut *rig.pipeline);
        let what = format!("{channels} channels, {taps} taps");
        assert!(trial.output().unwrap() == case.run(&mut rig, &[]), "{what}");
        assert!(trial.repeats().unwrap(), "{what}");
    }
}

/// Gains set during a chunk wait for the next one; a chunk may end early, or be given up; what
/// follows starts afresh.
#[test]
fn gains_wait_for_the_next_chunk() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(128, 4, 20, Dither::Uniform), 10, 2, 60.0, 81);
    let mut rig = case.on_gpu(&gpu);
    case.set_gains(&mut *rig.pipeline);
    let before = case.run(&mut rig, &[]);
    let packed = case.packed.each_ref().map(|pol| &pol[..]);
    let received = chunk(case.layout(), &HostAllocator::default(), packed);
    rig.intake.load(received, false).unwrap();
    let mut filled = output_chunk(&case.config, 2, START);
    // The first two are given up.
    for (first, end) in [(0, 33), (0, 5), (0, 10), (10, 27)] {
        let block = Block {
            first,
            offset: case.offset.map(|o| o + first * 256),
            fine: &case.fine[first..end],
            absent: &[],
        };
        let view = rig.intake.view(Timestamp(0), case.samples[0].len());
        let view = view.unwrap().unwrap();
        let issued = rig
            .pipeline
            .run_frontend(&view, &block, &mut filled.writer().span());
        issued.unwrap();
        if first == 0 && end < 10 {
            continue;
        }
        for pol in 0..2 {
            let gains = if end == 33 {
                &case.gains[pol][..]
            } else {
                &[Complex32::new(0.01, 0.0); 128]
            };
            rig.pipeline.set_gains(pol, &mut each(gains));
        }
    }
    rig.pipeline.finish_chunk(1, filled).unwrap();
    rig.intake.release().unwrap();
    let (data, stats) = next_complete(&mut *rig.pipeline);
    let batch = case.config.batch_bytes();
    assert!(data[..batch] == before.0[..batch] && data[batch..].iter().all(|&x| x == 0));
    assert_eq!(stats[0], before.1[0]);
    let after = case.run(&mut rig, &[]);
    let mut fresh = case.on_gpu(&gpu);
    for pol in 0..2 {
        fresh
            .pipeline
            .set_gains(pol, &mut each(&[Complex32::new(0.01, 0.0); 128]));
    }
    assert!(after == case.run(&mut fresh, &[]) && after != before);
}

/// Whatever a view says of itself, kernels read what the intake has, and no more.
#[test]
fn a_view_has_no_more_samples_than_its_intake() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(128, 4, 20, Dither::Uniform), 10, 2, 60.0, 81);
    let mut rig = case.on_gpu(&gpu);
    let packed = case.packed.each_ref().map(|pol| &pol[..]);
    let received = chunk(case.layout(), &HostAllocator::default(), packed);
    rig.intake.load(received, false).unwrap();
    let mut filled = output_chunk(&case.config, 2, START);
    let block = Block {
        first: 0,
        offset: [case.samples[0].len(); 2],
        fine: &case.fine[..1],
        absent: &[],
    };
    let view = rig.intake.view(Timestamp(0), case.samples[0].len());
    let mut view = view.unwrap().unwrap();
    view.samples = usize::MAX;
    let span = &mut filled.writer().span();
    let refused = rig.pipeline.run_frontend(&view, &block, span);
    let refused = refused.expect_err("nothing is there").to_string();
    assert!(refused.contains("front end"), "{refused}");
}

/// Outputs of one engine share its intake; engines share the GPU.
#[test]
fn outputs_and_engines_share_the_gpu() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(256, 16, 32, Dither::Uniform), 10, 2, 30.0, 82);
    let mut other = Case::new(output(1024, 4, 8, Dither::None), 10, 2, 30.0, 82);
    other.samples = case.samples.clone();
    other.packed = case.packed.clone();
    let kernels = KernelChoice::default();
    let engine = || {
        let streams = Streams::new(gpu.clone()).unwrap();
        let intake = GpuIntake::new(streams.clone(), &case.layout(), MemoryKind::Host);
        let outputs = (
            case.pipeline(&streams, 0.05, &kernels).unwrap(),
            other.pipeline(&streams, 0.1, &kernels).unwrap(),
        );
        (intake.unwrap(), outputs)
    };
    let mut engines = [engine(), engine()];
    for (intake, (one, two)) in &mut engines {
        let packed = case.packed.each_ref().map(|pol| &pol[..]);
        let received = chunk(case.layout(), &HostAllocator::default(), packed);
        intake.load(received, false).unwrap();
        let view = intake.view(Timestamp(0), case.samples[0].len());
        let view = view.unwrap().unwrap();
        case.issue(one, &view, &[]);
        other.issue(two, &view, &[]);
        intake.release().unwrap();
    }
    let expected = [(&case, 0.05), (&other, 0.1)].map(|(case, gain)| {
        let mut alone = case.on_cpu();
        let gains = vec![Complex32::new(gain, 0.0); case.config.channels];
        (0..2).for_each(|pol| alone.set_gains(pol, &mut each(&gains)));
        case.run_on_cpu(&mut alone, &[])
    });
    for (_, (one, two)) in &mut engines {
        assert_agree("the first output", &next_complete(one), &expected[0]);
        assert_agree("the second output", &next_complete(two), &expected[1]);
    }
}

#[test]
fn a_gpu_is_opened_by_its_address() {
    let Some(gpu) = device() else {
        return;
    };
    let same = Gpu::open_at(gpu.address()).unwrap();
    assert_eq!((same.address(), same.name()), (gpu.address(), gpu.name()));
    // No bus has a device of this number.
    let error = Gpu::open_at("0000:00:20.0").unwrap_err().to_string();
    assert!(
        error.contains("0000:00:20.0") && error.contains(gpu.address()),
        "{error}"
    );
}

/// Whatever cannot run on the GPU is refused with a way out.
#[test]
fn refusals_name_the_way_out() {
    let Some(gpu) = device() else {
        let error = Gpu::open().unwrap_err().to_string();
        // Without a driver, or without a GPU behind it. Who may do without says how.
        let ways_out = ["install NVIDIA's driver", "nvidia-smi", "update it"];
        assert!(ways_out.iter().any(|way| error.contains(way)), "{error}");
        return;
    };
    let streams = Streams::new(gpu).unwrap();
    let bits = SampleBits::new(16).unwrap();
    let chunks = OutputChunks {
        batches: 1 << 28,
        count: 4,
    };
    let (config, kernels) = (output(1024, 4, 32, Dither::None), KernelChoice::default());
    let config = PipelineConfig {
        output: &config,
        sample_bits: bits,
        feng_id: 0,
        gain: 1.0,
        statistics: false,
    };
    let refused = GpuChanneliser::new(streams.clone(), &config, chunks, &kernels);
    let error = refused.err().expect("a refusal").to_string();
    assert!(error.contains("--send-chunk-jones"), "{error}");
    let huge = layout(bits, 1 << 40, 0);
    let refused = GpuIntake::new(streams, &huge, MemoryKind::Host).err();
    let error = refused.expect("a refusal").to_string();
    assert!(error.contains("--recv-chunk-samples"), "{error}");
}
