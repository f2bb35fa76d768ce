//! How the transform is cut for a number of points and a device.

use std::fmt;
use std::ops::RangeInclusive;

use dsp::{Oversampling, SampleBits};
use serde::Deserialize;

use crate::config::OutputConfig;

/// One entry of `kernels/shapes.json`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct KernelShape {
    /// Points of the transform, N.
    pub points: usize,
    /// log₂ of the first factor of the transform.
    pub log_n1: u32,
    /// Columns of one block of the front kernel.
    pub tile: usize,
    /// Columns of one of its threads.
    pub width: usize,
    /// Spectra of one block of the front kernel.
    pub group: usize,
    /// Rows of samples in shared memory of the front kernel for long runs; 0: that for any number
    /// of taps.
    pub depth: usize,
    pub front_threads: u32,
    pub front_blocks: u32,
    /// Registers of a thread of the front kernel that filters, where it takes some over from
    /// others; 0: all have as many.
    pub filter_registers: u32,
    /// Spectra of one block of the back kernel.
    pub back_group: usize,
    pub back_blocks: u32,
}

/// What the filter of a front kernel is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FilterForm {
    pub input: FrontendInput,
    pub taps: usize,
    pub oversampling: Oversampling,
}

impl FilterForm {
    /// The form of the filter of `output`.
    pub fn of(output: &OutputConfig, bits: SampleBits) -> Self {
        Self {
            input: match output.narrowband {
                None => FrontendInput::Samples(bits),
                Some(_) => FrontendInput::Numbers,
            },
            taps: output.taps,
            oversampling: output.oversampling,
        }
    }
}

/// What a front kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrontendInput {
    /// Packed samples of both polarisations.
    Samples(SampleBits),
    /// Complex numbers of one.
    Numbers,
}

impl KernelShape {
    /// Taps that the front kernel for long runs can have with two columns for a thread.
    const FEW_TAPS: usize = 16;

    /// Registers that a thread with one column must have for more than [`FEW_TAPS`](Self::FEW_TAPS)
    /// taps; it can then have up to twice as many.
    const REGISTERS_OF_MORE_TAPS: u32 = 152;

    /// Registers of a multiprocessor.
    const REGISTERS: u32 = 1 << 16;

    /// Architecture (90: sm_90) whose threads can take registers over from others.
    const REGISTERS_MOVE: i32 = 90;

    /// Shapes for `points` and a filter that run on an architecture and whose blocks fit `shared`
    /// bytes, the likeliest best first.
    pub fn candidates(
        points: usize,
        filter: FilterForm,
        architecture: i32,
        shared: usize,
        statistics: bool,
    ) -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|shape| {
            shape.points == points
                && (shape.depth == 0 || shape.runs(filter))
                // Four lanes of a warp have the same channels where sums are taken.
                && (!statistics || shape.back_group >= 4)
                && (shape.filter_registers == 0 || architecture == Self::REGISTERS_MOVE)
                && shape.front_shared(filter).max(shape.back_shared()) <= shared
        });
        all
    }

    /// Whether a front kernel for long runs can have the filter: as pfb_fft_run.cu and
    /// pfb_fft_hops.cu have it.
    fn runs(&self, filter: FilterForm) -> bool {
        let of = filter.oversampling;
        let hops = self.n1().is_multiple_of(of.numerator()) && of.ratio() <= 4.0;
        self.taps().contains(&filter.taps) && (of.is_none() || hops)
    }

    /// Taps of the front kernel for long runs. For few taps two columns are better than one.
    fn taps(&self) -> RangeInclusive<usize> {
        const FEW: usize = KernelShape::FEW_TAPS;
        let threads = self.front_threads * self.front_blocks;
        let registers = match self.filter_registers {
            0 => Self::REGISTERS / threads,
            registers => registers,
        };
        match self.width == 1 && registers >= Self::REGISTERS_OF_MORE_TAPS {
            true => FEW + 1..=2 * FEW,
            false => 1..=FEW,
        }
    }

    /// What the kernels around a library's transform are. They have no first factor; a tile is of
    /// channels, half of the points at least.
    pub fn plain(points: usize) -> Self {
        Self {
            points,
            log_n1: 0,
            tile: (points / 2).min(64),
            width: 2,
            group: 16,
            depth: 0,
            // With few points, no more threads than there are columns for.
            front_threads: (points / 2).min(128) as u32,
            front_blocks: 3,
            filter_registers: 0,
            back_group: 16,
            back_blocks: 4,
        }
    }

    fn all() -> Vec<Self> {
        // The file is part of the program, and a test reads it.
        serde_json::from_str(include_str!("../../kernels/shapes.json")).unwrap_or_default()
    }

    /// What tells the kernels of one shape from those of another with as many points.
    pub fn macros(&self) -> [(&'static str, u64); 10] {
        [
            ("LOG_N1", self.log_n1.into()),
            ("TILE", self.tile as u64),
            ("WIDTH", self.width as u64),
            ("GROUP", self.group as u64),
            ("DEPTH", self.depth as u64),
            ("FRONT_THREADS", self.front_threads.into()),
            ("FRONT_BLOCKS", self.front_blocks.into()),
            ("FILTER_REGISTERS", self.filter_registers.into()),
            ("BACK_GROUP", self.back_group as u64),
            ("BACK_BLOCKS", self.back_blocks.into()),
        ]
    }

    /// First factor of N.
    pub fn n1(&self) -> usize {
        1 << self.log_n1
    }

    /// Second factor of N.
    pub fn n2(&self) -> usize {
        self.points >> self.log_n1
    }

    /// Points of the last pass of the back kernel: as mid.cuh has it.
    fn last_radix(&self) -> usize {
        match self.n2() {
            128.. => 16,
            32.. => 8,
            _ => 4,
        }
    }

    /// Threads of a block of the back kernel: one for each transform of the last pass.
    pub fn back_threads(&self) -> u32 {
        (self.n2() / self.last_radix() * self.back_group) as u32
    }

    /// Whether a block of the back kernel finishes two small parts of a group and stores the
    /// results together: as geometry.cuh has it.
    fn paired(&self) -> bool {
        self.back_group == 4 && self.depth > 0
    }

    /// Blocks of the back kernel that share a group.
    pub fn back_parts(&self, spectra_per_heap: usize) -> usize {
        let parts = self.group / self.back_group;
        if self.paired() && spectra_per_heap.is_multiple_of(2) {
            parts / 2
        } else {
            parts
        }
    }

    /// Bytes of shared memory of a block of the front kernel.
    pub fn front_shared(&self, filter: FilterForm) -> usize {
        let columns = self.n1() * self.tile;
        let buffer = (columns * (self.group + 1) + self.back_group % 16) * 8;
        if self.depth == 0 {
            return buffer;
        }
        let row = match filter.input {
            FrontendInput::Samples(bits) => {
                // Pieces of 16 bytes that a row of a tile may touch, for each polarisation, and
                // what keeps rows in different banks.
                let pieces = (127 + self.tile * bits.get() as usize).div_ceil(128);
                let apart = match self.tile {
                    8 => 16,
                    32 => 48,
                    _ => 0,
                };
                self.n1() * (2 * 16 * pieces + apart)
            }
            FrontendInput::Numbers => columns * 8,
        };
        // Samples are read two words at a time: the second may be behind the last row.
        let behind = match filter.input {
            FrontendInput::Samples(_) => 16,
            FrontendInput::Numbers => 0,
        };
        let roots = (columns + self.n1()) * 8;
        let weights = match filter.oversampling.is_none() {
            true => 0,
            // Four at a time.
            false => (filter.taps * self.width).div_ceil(4) * 16 * (columns / self.width),
        };
        2 * buffer + roots + self.depth * row + behind + weights
    }

    /// Groups of four numbers that a thread of the back kernel adds up for statistics, as
    /// statistics.cuh has it.
    pub fn statistics_results(&self, channels: usize, narrowband: bool) -> usize {
        let lines = self.n2() / self.last_radix();
        let rows = if narrowband { 1 } else { 2 };
        let pairs = rows * (channels / self.n1() / 2 / lines);
        (pairs * 12 / 4).div_ceil(4)
    }

    /// Bytes of shared memory of a block of the back kernel.
    pub fn back_shared(&self) -> usize {
        let n2 = self.n2();
        let lines = 2 * n2 / self.last_radix();
        // A point for each line, and for those that a lane keeps where several share a transform.
        let apart = match (self.back_group, n2 / self.last_radix() / 32) {
            (16.., _) => 0,
            (_, 0 | 1) => lines,
            (_, lanes) => lines + lines * lanes / 32,
        };
        let (gains, delays, roots) = (16 * n2, 32 * self.back_group, 8 * n2);
        let kept = if self.paired() {
            4 * n2 * self.back_group
        } else {
            0
        };
        (2 * n2 + apart) * self.back_group * 8 + gains + delays + roots + kept
    }
}

/// The macros as `kernels/shapes.json` writes them.
impl fmt::Display for KernelShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.macros();
        let text = fields.map(|(name, value)| format!("{}={value}", name.to_lowercase()));
        f.write_str(&text.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(taps: usize) -> FilterForm {
        FilterForm {
            input: FrontendInput::Samples(SampleBits::new(10).unwrap()),
            taps,
            oversampling: Oversampling::NONE,
        }
    }

    fn candidates(
        points: usize,
        taps: usize,
        architecture: i32,
        shared: usize,
    ) -> Vec<KernelShape> {
        let filter = filter(taps);
        KernelShape::candidates(points, filter, architecture, shared, false)
    }

    #[test]
    fn every_architecture_has_a_shape_for_almost_every_size() {
        // Bytes per block of sm_75, sm_86, sm_80 and sm_90; what is larger is left to cuFFT.
        for (architecture, shared, most) in [
            (75, 64, 16384),
            (86, 99, 32768),
            (80, 163, 65536),
            (90, 227, 65536),
        ] {
            for log in 7..=17 {
                let points = 1 << log;
                for taps in [1, 16, 17, 32, 33] {
                    let shared = shared << 10;
                    let samples = candidates(points, taps, architecture, shared);
                    let numbers = FilterForm {
                        input: FrontendInput::Numbers,
                        ..filter(taps)
                    };
                    let numbers =
                        KernelShape::candidates(points, numbers, architecture, shared, false);
                    for any in [!samples.is_empty(), !numbers.is_empty()] {
                        assert_eq!(
                            any,
                            points <= 2 * most,
                            "{points}, {taps} taps, {shared} bytes"
                        );
                    }
                }
            }
        }
        assert!(candidates(64, 16, 90, 1 << 20).is_empty());
    }

    #[test]
    fn long_runs_are_for_few_taps() {
        let first = |taps: usize| candidates(8192, taps, 90, 227 << 10)[0];
        assert!(first(16).depth > 0 && first(16).width == 2);
        for taps in [17, 32] {
            assert!(
                first(taps).depth > 0 && first(taps).width == 1,
                "{taps} taps"
            );
        }
        assert_eq!(first(33).depth, 0);
    }

    #[test]
    fn long_runs_of_oversampled_banks_move_whole_rows() {
        let long = |points: usize, taps: usize, m: usize, n: usize| {
            let filter = FilterForm {
                oversampling: Oversampling::new(m, n).unwrap(),
                ..filter(taps)
            };
            let shapes = KernelShape::candidates(points, filter, 90, 227 << 10, false);
            assert!(!shapes.is_empty(), "{points} points");
            shapes[0].depth > 0
        };
        for points in [2048, 8192, 65536] {
            assert!(long(points, 16, 32, 27), "{points} points");
            assert!(long(points, 16, 4, 3), "{points} points");
            assert!(long(points, 32, 32, 27), "{points} points");
        }
        assert!(!long(8192, 33, 32, 27));
        assert!(!long(8192, 16, 128, 127));
        assert!(!long(8192, 16, 8, 1));
        assert!(!long(256, 16, 32, 27));
    }

    #[test]
    fn a_name_stands_for_one_shape() {
        let all = KernelShape::all();
        for (i, shape) in all.iter().enumerate() {
            let name = shape.to_string();
            let same =
                |other: &&KernelShape| other.points == shape.points && other.to_string() == name;
            assert_eq!(all.iter().filter(same).count(), 1, "{i}: {name}");
        }
    }

    #[test]
    fn a_name_is_what_the_list_says() {
        let list: serde_json::Value =
            serde_json::from_str(include_str!("../../kernels/shapes.json")).unwrap();
        for (entry, shape) in list.as_array().unwrap().iter().zip(KernelShape::all()) {
            let mut fields = entry.as_object().unwrap().clone();
            fields.remove("points");
            let name = shape.to_string();
            assert_eq!(name.split(',').count(), fields.len(), "{name}");
            for field in name.split(',') {
                let (field, value) = field.split_once('=').unwrap();
                assert_eq!(fields[field].to_string(), value, "{name}");
            }
        }
    }

    #[test]
    fn kernels_around_a_transform_leave_no_thread_idle() {
        for log in 6..=18 {
            let shape = KernelShape::plain(1 << log);
            let threads = shape.points / shape.width;
            assert_eq!(threads % shape.front_threads as usize, 0, "{shape:?}");
            assert!(shape.front_threads.is_multiple_of(32), "{shape:?}");
            assert_eq!(shape.points / 2 % shape.tile, 0, "{shape:?}");
        }
    }

    #[test]
    fn shapes_are_whole() {
        for shape in KernelShape::all() {
            assert!(shape.points.is_power_of_two() && shape.group.is_power_of_two());
            assert_eq!(shape.n2() % shape.tile, 0, "{shape:?}");
            assert_eq!(shape.tile % shape.width, 0, "{shape:?}");
            let columns = shape.n1() * shape.tile / shape.width;
            match shape.depth {
                0 => assert_eq!(columns % shape.front_threads as usize, 0, "{shape:?}"),
                // Some threads are left for the transform.
                _ => assert!(columns < shape.front_threads as usize, "{shape:?}"),
            }
            assert_eq!(shape.group % shape.back_group, 0, "{shape:?}");
            assert!(shape.back_threads() <= 1024, "{shape:?}");
        }
    }
}
