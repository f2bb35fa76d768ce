use num_complex::{Complex32, Complex64};
use proptest::prelude::*;

use super::*;
use crate::waveform::{FRAME_SYMBOLS, Frame, Modulation};

fn samples(frame: &Frame, gain: f32) -> Vec<Complex32> {
    let mut samples = Vec::new();
    let mut transmitter = Transmitter::new(gain);
    transmitter.frame(frame, &mut samples);
    transmitter.finish(&mut samples);
    samples
}

fn close(found: Complex64, golden: (f64, f64), tolerance: f64) {
    let golden = Complex64::new(golden.0, golden.1);
    assert!((found - golden).norm() < tolerance, "{found} {golden}");
}

#[test]
fn sums_over_whole_frames_are_the_golden_ones() {
    let rows = [
        (Modulation::Bpsk, (-929.465574, 0.0), 48281.8619, 1.4739),
        (
            Modulation::Qpsk,
            (-972.470284, 33.921621),
            48280.2458,
            1.4502,
        ),
        (
            Modulation::Qam16,
            (-1027.664344, 5.688829),
            48287.4037,
            1.7900,
        ),
        (
            Modulation::Qam256,
            (-1026.772488, 2.299573),
            48327.6904,
            1.8673,
        ),
    ];
    for (modulation, sum, power, peak) in rows {
        let model = model_samples(&Frame::golden(modulation).points(), 1.0);
        assert_eq!(model.len(), 48_336);
        close(model.iter().sum(), sum, 1e-6);
        let energy: f64 = model.iter().map(|x| x.norm_sqr()).sum();
        assert!((energy - power).abs() < 1e-4, "{modulation} {energy}");
        let found = model.iter().map(|x| x.norm()).fold(0.0, f64::max);
        assert!((found - peak).abs() < 1e-4, "{modulation} {found}");
    }
}

#[test]
fn single_samples_are_the_golden_ones() {
    let model = model_samples(&Frame::golden(Modulation::Qpsk).points(), 1.0);
    let rows = [
        (0, (0.002496566, 0.0)),
        (24, (-1.073250316, 0.0)),
        (25, (-1.114616665, 0.0)),
        (26, (-1.019236846, 0.0)),
        (27, (-0.977166602, 0.0)),
        (5976, (0.939386812, 0.0)),
        (11352, (-1.404355022, 0.0)),
        (11544, (-0.912489505, -0.837442228)),
        (30000, (-0.960823722, 0.723841523)),
        (48311, (0.193791519, 0.224829853)),
    ];
    for (n, golden) in rows {
        close(model[n], golden, 1e-9);
    }
    let model = model_samples(&Frame::golden(Modulation::Qam256).points(), 1.0);
    close(model[11544], (-1.2998918, 1.0756283), 1e-7);
    close(model[30000], (-0.8868202, -1.0851174), 1e-7);
}

#[test]
fn samples_are_the_models_in_single_precision() {
    for modulation in Modulation::ALL {
        let frame = Frame::golden(modulation);
        let model = model_samples(&frame.points(), 0.5);
        let samples = samples(&frame, 0.5);
        assert_eq!(samples.len(), model.len());
        for (n, (sample, model)) in samples.iter().zip(&model).enumerate() {
            let sample = Complex64::new(sample.re.into(), sample.im.into());
            assert!((sample - model).norm() < 1e-6, "{modulation} {n}");
        }
    }
}

#[test]
fn frames_and_pauses_add_up_as_in_the_model() {
    let frame = Frame::golden(Modulation::Qam64);
    let mut samples = Vec::new();
    let mut transmitter = Transmitter::new(1.0);
    transmitter.frame(&frame, &mut samples);
    transmitter.blanks(5, &mut samples);
    transmitter.frame(&frame, &mut samples);
    transmitter.blanks(1000, &mut samples);
    transmitter.frame(&frame, &mut samples);
    transmitter.finish(&mut samples);
    let mut points = frame.points();
    points.resize(FRAME_SYMBOLS + 5, Complex64::default());
    points.extend(frame.points());
    points.resize(2 * FRAME_SYMBOLS + 1005, Complex64::default());
    points.extend(frame.points());
    let model = model_samples(&points, 1.0);
    assert_eq!(samples.len(), model.len());
    for (n, (sample, model)) in samples.iter().zip(&model).enumerate() {
        let sample = Complex64::new(sample.re.into(), sample.im.into());
        assert!((sample - model).norm() < 2e-6, "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn samples_depend_not_on_how_points_are_cut(
        cuts in prop::collection::vec(0usize..700, 1..6),
        seed in 1u32..1000,
    ) {
        let count: usize = cuts.iter().sum();
        let points: Vec<Complex32> = (0..count as u32)
            .map(|k| Complex32::from_polar(1.0, (k * seed % 997) as f32))
            .collect();
        let mut whole = Vec::new();
        PulseShaper::new(1.0).shape(&points, &mut whole);
        let (mut parts, mut shaper, mut rest) = (Vec::new(), PulseShaper::new(1.0), &points[..]);
        for cut in cuts {
            let (now, later) = rest.split_at(cut);
            shaper.shape(now, &mut parts);
            rest = later;
        }
        prop_assert_eq!(whole.len(), 3 * points.len());
        let bits = |samples: &[Complex32]| -> Vec<_> {
            samples.iter().map(|x| (x.re.to_bits(), x.im.to_bits())).collect()
        };
        prop_assert_eq!(bits(&whole), bits(&parts));
    }
}
