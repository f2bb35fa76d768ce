//! Samples per second of one thread: `cargo bench -p karoo-modem --bench transmitter`.

mod support;

use std::hint::black_box;

use karoo_modem::tx::Transmitter;
use karoo_modem::waveform::{BLANK_SYMBOLS, CheckField, Frame, Header, Modulation, Scrambler};
use support::thread_seconds;

/// Frames of a round: some 50 ms.
const FRAMES: u32 = 1024;
const ROUNDS: u32 = 9;

/// Samples per second of the thread, the median of the rounds.
fn rate(mut round: impl FnMut() -> usize) -> f64 {
    let rates = (0..ROUNDS).map(|_| {
        let begun = thread_seconds();
        let samples = round();
        samples as f64 / (thread_seconds() - begun)
    });
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    println!("modulation  payload to samples  frame to samples  Msample/s of CPU time");
    for modulation in Modulation::ALL {
        let mut payload: Vec<u8> = (0..modulation.payload_bytes()).map(|i| i as u8).collect();
        let mut transmitter = Transmitter::new(1.0);
        let mut samples = Vec::new();
        let mut send = |payload: &mut [u8], frame: Option<&Frame>| {
            samples.clear();
            match frame {
                Some(frame) => transmitter.frame(frame, &mut samples),
                None => {
                    Scrambler::demo().apply(payload);
                    let header = Header::new(modulation);
                    let frame = Frame::new(header, payload, CheckField::Crc).expect("it fits");
                    transmitter.frame(&frame, &mut samples);
                }
            }
            transmitter.blanks(BLANK_SYMBOLS, &mut samples);
            black_box(&samples).len()
        };
        let whole = rate(|| (0..FRAMES).map(|_| send(&mut payload, None)).sum());
        let frame = Frame::new(Header::new(modulation), &payload, CheckField::Crc);
        let frame = frame.expect("it fits");
        let bare = rate(|| (0..FRAMES).map(|_| send(&mut payload, Some(&frame))).sum());
        println!("{modulation:10}  {:18.0}  {:16.0}", whole / 1e6, bare / 1e6);
    }
}
