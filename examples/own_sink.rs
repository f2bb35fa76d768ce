//! A sink of one's own: `cargo run --example own_sink SPECTRA.pcap` says how strong the channels of
//! an F-engine's output are, from a capture such as `karoo replay` writes.

use std::collections::BTreeMap;

use karoo::net::{CaptureReader, Datagram};
use spead::{Packet, SpectraRepr};

/// First channel and payload of a packet of spectra; descriptors and stop heaps have none.
fn spectra(frame: &[u8]) -> Option<(u64, &[u8])> {
    let packet = Packet::new_checked(Datagram::new_checked(frame).ok()?.payload()).ok()?;
    let spectra = SpectraRepr::parse(&packet).ok()??;
    Some((spectra.first_channel, packet.payload()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which capture?")?;
    let mut capture = CaptureReader::open(path)?;
    let mut power: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    while let Some(frame) = capture.next_frame()? {
        if let Some((first_channel, data)) = spectra(frame.bytes) {
            let (sum, count) = power.entry(first_channel).or_default();
            *sum += data
                .iter()
                .map(|&x| f64::from(x as i8).powi(2))
                .sum::<f64>();
            *count += data.len() as f64 / 2.0;
        }
    }
    for (channel, (sum, count)) in power {
        println!("from channel {channel}: mean power {:.2}", sum / count);
    }
    Ok(())
}
