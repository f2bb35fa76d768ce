//! The eye of a frame: how its matched-filtered signal goes from symbol to symbol.

use std::f64::consts::TAU;

use karoo_modem::rx::ReceivedFrame;
use karoo_modem::waveform::{
    HEADER_SYMBOLS, PREAMBLE_SYMBOLS, ROLL_OFF, RRC_SPAN, SAMPLES_PER_SYMBOL, rrc_value,
};
use num_complex::{Complex32, Complex64};

/// Symbols of which the eye is made, and instants of each.
const SYMBOLS: usize = 160;
const INSTANTS: usize = 24;
/// Samples from a frame's begin to the centre of its first symbol.
const DELAY: f64 = (RRC_SPAN * SAMPLES_PER_SYMBOL / 2) as f64;

/// Points of the real part over two symbols, from −1 to 1 around the instant of decision.
///
/// `samples` are those of the stream from place `first` on; nothing comes where the frame's are not
/// all there.
pub fn eye(samples: &[Complex32], first: u64, frame: &ReceivedFrame) -> Vec<[f32; 2]> {
    let body = PREAMBLE_SYMBOLS + HEADER_SYMBOLS;
    let per_symbol = SAMPLES_PER_SYMBOL as f64;
    // The transmitter's sample is longer by that much.
    let symbol = per_symbol * (1.0 + frame.clock_ppm * 1e-6);
    let begin = frame.start as f64 + frame.start_fraction + DELAY - first as f64;
    let at = |k: f64| begin + symbol * (body as f64 + k);
    let value = |k: f64| filtered(samples, at(k), frame.frequency);
    let Some(known) = frame.points.get(..SYMBOLS) else {
        return Vec::new();
    };
    // What turns and scales the signal onto the equalised points.
    let mut onto = Complex64::ZERO;
    let mut power = 0.0;
    for (k, point) in known.iter().enumerate() {
        let Some(found) = value(k as f64) else {
            return Vec::new();
        };
        onto += Complex64::new(point.re.into(), point.im.into()) * found.conj();
        power += found.norm_sqr();
    }
    if power <= 0.0 || !power.is_finite() {
        return Vec::new();
    }
    let onto = onto / power;
    let mut points = Vec::with_capacity(SYMBOLS * INSTANTS);
    for k in 0..SYMBOLS {
        for step in 0..INSTANTS {
            // Two symbols wide, so that each eye is whole.
            let t = 2.0 * step as f64 / INSTANTS as f64 - 1.0;
            if let Some(found) = value(k as f64 + t) {
                points.push([t as f32, (found * onto).re as f32]);
            }
        }
    }
    points
}

/// The matched filter's output at a place between samples, its carrier taken off.
fn filtered(samples: &[Complex32], place: f64, frequency: f64) -> Option<Complex64> {
    let reach = (RRC_SPAN * SAMPLES_PER_SYMBOL / 2) as f64;
    let (from, to) = ((place - reach).ceil(), (place + reach).floor());
    if from < 0.0 {
        return None;
    }
    let mut sum = Complex64::ZERO;
    let around = samples.get(from as usize..=to as usize)?;
    for (i, x) in around.iter().enumerate() {
        let n = from + i as f64;
        let tap = rrc_value(ROLL_OFF, (place - n) / SAMPLES_PER_SYMBOL as f64);
        let x = Complex64::new(x.re.into(), x.im.into());
        sum += x * Complex64::cis(-TAU * (frequency * n).fract()) * tap;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use karoo_modem::channel::{Channel, ChannelSettings};
    use karoo_modem::rx::{Receiver, RxConfig};
    use karoo_modem::tx::Transmitter;
    use karoo_modem::waveform::{CheckField, Frame, Header, Modulation};

    use super::*;

    /// QPSK off by frequency and clock: at the instant of decision there are two levels, half a
    /// symbol beside there are others between them.
    #[test]
    fn an_eye_is_open_at_the_instant_of_decision() {
        let modulation = Modulation::Qpsk;
        let payload: Vec<u8> = (0..modulation.payload_bytes() as u32)
            .map(|i| (i.wrapping_mul(i) >> 3) as u8)
            .collect();
        let frame = Frame::new(Header::new(modulation), &payload, CheckField::Crc).unwrap();
        let (mut sent, mut air) = (Vec::new(), Vec::new());
        let mut transmitter = Transmitter::new(1.0);
        transmitter.frame(&frame, &mut sent);
        transmitter.finish(&mut sent);
        let settings = ChannelSettings {
            delay: 1000.4,
            frequency: 2.5e-4,
            phase: 0.3,
            clock_ppm: 20.0,
            ..ChannelSettings::default()
        };
        let mut channel = Channel::new(&settings).unwrap();
        channel.push(&sent, &mut air);
        channel.finish(&mut air);
        let config = RxConfig {
            points: true,
            ..RxConfig::default()
        };
        let (mut receiver, mut frames) = (Receiver::new(&config).unwrap(), Vec::new());
        receiver.push(&air, &mut frames);
        receiver.finish(&mut frames);
        let points = eye(&air[500..], 500, &frames[0]);
        assert_eq!(points.len(), SYMBOLS * INSTANTS);
        let level = |point: &[f32; 2]| (point[1].abs() - 0.5f32.sqrt()).abs();
        let mut open = points.iter().filter(|point| point[0] == 0.0);
        assert!(open.clone().count() == SYMBOLS && open.all(|point| level(point) < 0.05));
        let beside = points.iter().filter(|point| point[0] == 0.5);
        assert!(beside.filter(|point| level(point) > 0.3).count() > SYMBOLS / 8);
        // The samples end within those symbols.
        assert!(eye(&air[..12_700], 0, &frames[0]).is_empty());
    }
}
