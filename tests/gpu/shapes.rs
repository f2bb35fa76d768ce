//! The shapes of the kernels: each is right, and is had as asked for.

use dsp::Dither;
use karoo::gpu::{Fft, Gpu, GpuError, KernelChoice, Tune};

use super::case::Case;
use crate::support::gpu::assert_agree;
use crate::support::{device, output};

/// All shapes that the tuner may take for so many channels and taps.
fn every_shape_agrees_with_the_cpu(channels: usize, taps: usize) {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(channels, taps, 32, Dither::Uniform), 10, 1, 30.0, 89);
    let with = |shape: &str| {
        let (fft, tune) = (Fft::Fused, Tune::Fixed(shape.into()));
        case.with_kernels(&gpu, &KernelChoice { fft, tune })
    };
    let known = match with("none") {
        Err(GpuError::Shape { known, .. }) => known,
        // Too little shared memory for any.
        Ok(rig) => return assert!(rig.pipeline.name().contains("cuFFT")),
        Err(error) => panic!("{error}"),
    };
    let mut cpu = case.on_cpu();
    case.set_gains(&mut cpu);
    let expected = case.run_on_cpu(&mut cpu, &[]);
    for shape in known.split(" and ") {
        let mut rig = with(shape).unwrap();
        case.set_gains(&mut *rig.pipeline);
        assert_agree(shape, &case.run(&mut rig, &[9]), &expected);
    }
}

/// A test for each number of channels: under compute-sanitizer they take minutes.
macro_rules! every_shape {
    ($($name:ident: $channels:literal)*) => {$(
        #[test]
        fn $name() {
            every_shape_agrees_with_the_cpu($channels, 16);
            every_shape_agrees_with_the_cpu($channels, 32);
        }
    )*};
}

every_shape! {
    every_shape_of_64: 64
    every_shape_of_128: 128
    every_shape_of_256: 256
    every_shape_of_512: 512
    every_shape_of_1024: 1024
    every_shape_of_2048: 2048
    every_shape_of_4096: 4096
    every_shape_of_8192: 8192
    every_shape_of_16384: 16384
    every_shape_of_32768: 32768
    every_shape_of_65536: 65536
}

/// What the fused kernels have no shape for runs on cuFFT, unless a shape is asked for by name.
#[test]
fn what_does_not_fit_runs_on_cufft() {
    let Some(gpu) = device() else { return };
    let case = Case::new(output(1 << 17, 4, 16, Dither::Uniform), 8, 1, 30.0, 84);
    let mut rig = case.on_gpu(&gpu);
    let name = rig.pipeline.name();
    assert!(name.contains("cuFFT"), "{name}");
    let mut cpu = case.on_cpu();
    case.set_gains(&mut *rig.pipeline);
    case.set_gains(&mut cpu);
    let expected = case.run_on_cpu(&mut cpu, &[]);
    assert_agree("131072 channels", &case.run(&mut rig, &[7]), &expected);

    let other = Case::new(output(1024, 4, 16, Dither::None), 8, 1, 30.0, 84);
    let with = |tune| {
        let fft = Fft::Fused;
        other.with_kernels(&gpu, &KernelChoice { fft, tune })
    };
    let error = with(Tune::Fixed("log_n1=99".into()))
        .err()
        .expect("no such shape");
    let text = error.to_string();
    assert!(
        matches!(error, GpuError::Shape { .. }) && text.contains("--tune auto"),
        "{text}"
    );
}

/// The fastest shape is kept, and can be had again by the name that reports give it.
#[test]
fn a_tuned_shape_is_kept_and_has_a_name() {
    if device().is_none() {
        return;
    }
    // Other processes may tune for the same, and find another to be the fastest.
    let folder = tempfile::tempdir().unwrap();
    let gpu = Gpu::open_caching_in(&folder.path().join("cache")).unwrap();
    let case = Case::new(output(8192, 4, 16, Dither::Uniform), 9, 1, 30.0, 85);
    let run = |tune| {
        let fft = Fft::Fused;
        let mut rig = case
            .with_kernels(&gpu, &KernelChoice { fft, tune })
            .unwrap();
        case.set_gains(&mut *rig.pipeline);
        (rig.pipeline.name(), case.run(&mut rig, &[]))
    };
    let again = run(Tune::Again);
    let shape = again.0.rsplit("; ").next().unwrap().trim_end_matches(')');
    assert!(run(Tune::Auto) == again, "{}", again.0);
    assert!(run(Tune::Fixed(shape.into())) == again, "{}", again.0);
    let mut cpu = case.on_cpu();
    case.set_gains(&mut cpu);
    assert_agree(&again.0, &again.1, &case.run_on_cpu(&mut cpu, &[]));
}
