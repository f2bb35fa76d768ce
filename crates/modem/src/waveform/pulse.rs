//! The root-raised-cosine pulse.

use std::f64::consts::PI;

use super::SAMPLES_PER_SYMBOL;

/// Roll-off β.
pub const ROLL_OFF: f64 = 0.5;
/// Symbols that the pulse spans.
pub const RRC_SPAN: usize = 16;
/// Taps at the sample rate.
pub const RRC_TAPS: usize = RRC_SPAN * SAMPLES_PER_SYMBOL + 1;

/// The pulse at `t` symbols from its centre, not cut and not normalised, with roll-off β > 0:
///
/// h(t) = [sin(πt(1−β)) + 4βt cos(πt(1+β))] / [πt(1 − (4βt)²)], h(0) = 1 − β + 4β/π,
/// h(±1/4β) = β/√2 · [(1+2/π) sin(π/4β) + (1−2/π) cos(π/4β)].
pub fn rrc_value(roll_off: f64, t: f64) -> f64 {
    let b = roll_off;
    if t.abs() < 1e-9 {
        return 1.0 - b + 4.0 * b / PI;
    }
    let pole = 1.0 - (4.0 * b * t).powi(2);
    if pole.abs() < 1e-9 {
        let angle = PI / (4.0 * b);
        let (sine, cosine) = angle.sin_cos();
        return b / 2f64.sqrt() * ((1.0 + 2.0 / PI) * sine + (1.0 - 2.0 / PI) * cosine);
    }
    let numerator = (PI * t * (1.0 - b)).sin() + 4.0 * b * t * (PI * t * (1.0 + b)).cos();
    numerator / (PI * t * pole)
}

/// The pulse over `span` symbols with `rate` taps per symbol: `span · rate + 1` taps of unit
/// energy.
pub fn rrc(roll_off: f64, span: usize, rate: usize) -> Vec<f64> {
    let half = (span * rate / 2) as i64;
    let taps: Vec<f64> = (-half..=half)
        .map(|i| rrc_value(roll_off, i as f64 / rate as f64))
        .collect();
    let energy: f64 = taps.iter().map(|tap| tap * tap).sum();
    taps.iter().map(|tap| tap / energy.sqrt()).collect()
}

/// The waveform's own 49 taps, of unit energy. The transmitter multiplies them by √3; the
/// receiver's matched filter has them as they are.
pub fn rrc_taps() -> [f64; RRC_TAPS] {
    let mut taps = [0.0; RRC_TAPS];
    taps.copy_from_slice(&rrc(ROLL_OFF, RRC_SPAN, SAMPLES_PER_SYMBOL));
    taps
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [f64; 25] = [
        -0.001441393,
        0.000051196,
        0.001818020,
        0.000134636,
        -0.001944146,
        0.000090996,
        0.002570317,
        -0.000127237,
        -0.003523718,
        -0.000371268,
        0.003872327,
        -0.000286126,
        -0.005834211,
        0.000474832,
        0.009559383,
        0.001750263,
        -0.011217998,
        0.001895338,
        0.024503684,
        -0.005452743,
        -0.079678200,
        -0.061259210,
        0.165627150,
        0.496199604,
        0.656232490,
    ];

    #[test]
    fn taps_are_the_golden_ones() {
        let taps = rrc_taps();
        for (i, golden) in GOLDEN.iter().enumerate() {
            assert!((taps[i] - golden).abs() < 1e-9, "{i}");
            assert_eq!(taps[i], taps[RRC_TAPS - 1 - i]);
        }
    }

    #[test]
    fn a_pair_of_pulses_leaves_interference_at_minus_sixty_decibels() {
        let taps = rrc_taps();
        let pair = |lag: usize| -> f64 { (lag..RRC_TAPS).map(|i| taps[i] * taps[i - lag]).sum() };
        let rest: f64 = (1..=RRC_SPAN).map(|k| 2.0 * pair(3 * k).powi(2)).sum();
        let decibels = 10.0 * (rest / pair(0).powi(2)).log10();
        assert!((decibels + 60.2).abs() < 0.1, "{decibels}");
    }

    #[test]
    fn the_pulse_is_continuous_where_its_formula_is_not() {
        for t in [0.0, 0.5, -0.5] {
            let near = rrc_value(0.5, t + 1e-6);
            assert!((rrc_value(0.5, t) - near).abs() < 1e-5, "{t}");
        }
    }
}
