//! Sums over spectra for statistics: in single precision over few of them, by each worker for
//! itself, and in double precision over all.

use std::sync::Mutex;

use ground::N_POL;
use num_complex::Complex64;

use super::simd::SumPlanes;
use crate::engine::{ChannelSums, PeriodSums};

/// Spectra that are summed in single precision. Sums of more would lose the last digits of what is
/// added: of a tone always the same ones, which adds up.
const MOST_SPECTRA: u32 = 64;

/// Of so many spectra of a group, one is added: what adding all of many channels took of the rate
/// was 4 to 10 percent, most of it for sums that are not in the nearest cache.
pub(super) fn one_spectrum_in(channels: usize) -> usize {
    match channels {
        ..=1024 => 1,
        1025..=8192 => 2,
        _ => 4,
    }
}

/// One worker's sums that are not in the [`TotalSums`] yet.
#[derive(Debug)]
pub(super) struct WorkerSums {
    power: Vec<f32>,
    power_squared: Vec<f32>,
    cross: Vec<f32>,
    clipped: Vec<u32>,
    spectra: u32,
}

/// The sums of all workers.
#[derive(Debug)]
pub(super) struct TotalSums(Mutex<PeriodSums>);

impl WorkerSums {
    /// Nothing yet of so many channels.
    pub fn new(channels: usize) -> Self {
        let plane = || vec![0.0; N_POL * channels];
        Self {
            power: plane(),
            power_squared: plane(),
            cross: plane(),
            clipped: vec![0; N_POL * channels],
            spectra: 0,
        }
    }

    /// Where another spectrum is to be added. Adds what there is to `total` when that is due.
    pub fn spectrum(&mut self, total: &TotalSums) -> SumPlanes<'_> {
        if self.spectra == MOST_SPECTRA {
            self.flush(total);
        }
        self.spectra += 1;
        SumPlanes {
            power: &mut self.power,
            power_squared: &mut self.power_squared,
            cross: &mut self.cross,
            clipped: &mut self.clipped,
        }
    }

    /// Adds all to `total`, and starts anew.
    pub fn flush(&mut self, total: &TotalSums) {
        if self.spectra == 0 {
            return;
        }
        let total = &mut *ground::lock(&total.0);
        total.spectra += u64::from(std::mem::take(&mut self.spectra));
        let power = self.power.chunks_exact_mut(N_POL);
        let squared = self.power_squared.chunks_exact_mut(N_POL);
        let cross = self.cross.chunks_exact_mut(2);
        let clipped = self.clipped.chunks_exact_mut(N_POL);
        let sums = power.zip(squared).zip(cross).zip(clipped);
        for (total, (((power, squared), cross), clipped)) in total.channels.iter_mut().zip(sums) {
            for pol in 0..N_POL {
                total.power[pol] += f64::from(power[pol]);
                total.power_squared[pol] += f64::from(squared[pol]);
                total.clipped[pol] += u64::from(clipped[pol]);
            }
            total.cross += Complex64::new(cross[0].into(), cross[1].into());
            power.fill(0.0);
            squared.fill(0.0);
            cross.fill(0.0);
            clipped.fill(0);
        }
    }
}

impl TotalSums {
    /// Nothing yet of so many channels.
    pub fn new(channels: usize) -> Self {
        Self(Mutex::new(PeriodSums::new(channels)))
    }

    /// All so far; starts anew.
    pub fn take(&self) -> PeriodSums {
        let total = &mut *ground::lock(&self.0);
        let channels = total.channels.len();
        std::mem::replace(total, PeriodSums::new(channels))
    }
}

impl PeriodSums {
    fn new(channels: usize) -> Self {
        Self {
            spectra: 0,
            channels: vec![ChannelSums::default(); channels],
        }
    }
}
