//! What the generator sends: noise that anyone can compute again, different in every heap.
//!
//! Packet k of an engine is the heap of samples from ⌊k/2⌋·H on of polarisation k mod 2, and comes
//! by rx queue k mod R. Its payload is the queue's noise, which lies in the packets' buffers
//! already; only the first bytes are written anew, so that no two heaps are alike: a heap in the
//! wrong place, or of an earlier turn of a buffer, makes wrong spectra.

use dsp::SampleBits;
use dsp::unpack::unpack;
use ground::N_POL;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::RecvConfig;

/// Timestamp of packet 0: digitisers do not start at 0 either.
pub const ORIGIN: u64 = 1 << 40;

/// Bytes at the start of each payload that are its own.
pub const OWN: usize = 32;

/// The digitised signal of one engine.
#[derive(Clone, Debug)]
pub struct BenchSignal {
    recv: RecvConfig,
    /// One payload per rx queue.
    noise: Vec<Vec<u8>>,
}

impl BenchSignal {
    /// The signal for heaps of `recv` over `queues` rx queues.
    pub fn new(recv: &RecvConfig, queues: usize) -> Self {
        let noise = |queue: usize| {
            let mut bytes = vec![0; recv.heap_bytes()];
            ChaCha8Rng::seed_from_u64(queue as u64).fill_bytes(&mut bytes);
            bytes
        };
        Self {
            recv: recv.clone(),
            noise: (0..queues).map(noise).collect(),
        }
    }

    /// Rx queues.
    pub fn queues(&self) -> usize {
        self.noise.len()
    }

    /// The payload that lies prepared in the buffers of a queue.
    pub fn prepared(&self, queue: usize) -> &[u8] {
        &self.noise[queue]
    }

    /// Timestamp and polarisation of packet `k`.
    pub fn heap(&self, k: u64) -> (u64, usize) {
        let n_pol = N_POL as u64;
        let timestamp = ORIGIN + k / n_pol * self.recv.packet_samples as u64;
        (timestamp, (k % n_pol) as usize)
    }

    /// Last packet with samples before timestamp `end`.
    pub fn last_packet(&self, end: u64) -> u64 {
        let heaps = end.saturating_sub(ORIGIN);
        let heaps = heaps.div_ceil(self.recv.packet_samples as u64);
        (heaps * N_POL as u64).saturating_sub(1)
    }

    /// Writes what is packet `k`'s own into a prepared payload.
    #[inline]
    pub fn make_own(k: u64, payload: &mut [u8]) {
        for (i, word) in payload.chunks_exact_mut(8).take(OWN / 8).enumerate() {
            word.copy_from_slice(&mix(k * 4 + i as u64).to_le_bytes());
        }
    }

    /// Samples `first ..` of a polarisation, whole heaps from the one that `first` lies in on, up
    /// to `end`.
    pub fn samples(&self, pol: usize, first: u64, end: u64) -> (u64, Vec<i32>) {
        let heap_samples = self.recv.packet_samples as u64;
        let heaps = (first - ORIGIN) / heap_samples..(end - ORIGIN).div_ceil(heap_samples);
        let start = ORIGIN + heaps.start * heap_samples;
        let samples = heaps.flat_map(|heap| {
            let k = heap * N_POL as u64 + pol as u64;
            let mut payload = self.noise[(k % self.queues() as u64) as usize].clone();
            Self::make_own(k, &mut payload);
            unpack(&payload, self.recv.sample_bits).collect::<Vec<_>>()
        });
        (start, samples.collect())
    }

    /// Standard deviation of the samples: they are uniform over their width.
    pub fn deviation(bits: SampleBits) -> f64 {
        f64::from(1u32 << bits.get()) / 12f64.sqrt()
    }
}

/// The finaliser of splitmix64.
#[inline]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsp::SampleBits;

    fn signal() -> BenchSignal {
        let recv = RecvConfig {
            packet_samples: 256,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: 4096,
            mask_timestamp: false,
        };
        BenchSignal::new(&recv, 3)
    }

    #[test]
    fn the_last_packet_holds_the_last_sample() {
        let signal = signal();
        for (end, k) in [(1, 1), (256, 1), (257, 3), (512, 3)] {
            assert_eq!(signal.last_packet(ORIGIN + end), k);
            let (timestamp, pol) = signal.heap(k);
            assert_eq!(pol, 1);
            assert!((timestamp..timestamp + 256).contains(&(ORIGIN + end - 1)));
        }
    }

    #[test]
    fn no_two_heaps_are_alike() {
        let signal = signal();
        let all: Vec<_> = [0, 1]
            .map(|pol| signal.samples(pol, ORIGIN, ORIGIN + 64 * 256))
            .into_iter()
            .flat_map(|(_, samples)| samples.chunks(256).map(<[_]>::to_vec).collect::<Vec<_>>())
            .collect();
        for (i, heap) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other[..25] != heap[..25]));
        }
    }
}
