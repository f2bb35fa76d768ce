//! Sums over the values that an engine sent and those that were computed here, of each channel.

use dsp::OutputBits;
use ground::N_POL;

/// One channel of one polarisation: t is what came, o what was computed here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Complex samples of either.
    pub samples: u64,
    /// Σ |o|².
    pub ours: u64,
    /// Σ |t|².
    pub theirs: u64,
    /// Σ t·o*: its real part.
    pub alike: i64,
    /// The same: its imaginary part, which is that of a turn.
    pub turned: i64,
    /// Σ (|t|² − |o|²)².
    pub power_squares: f64,
    /// Σ Im(t·o*)².
    pub turn_squares: f64,
    /// Samples that differ.
    pub unequal: u64,
    /// A bit for each kind of pair t, o that differs, by a hash of both.
    pub kinds: u64,
    /// Real and imaginary parts that differ by more than one.
    pub apart: u64,
}

impl Cell {
    /// Adds another's sums.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.ours += other.ours;
        self.theirs += other.theirs;
        self.alike += other.alike;
        self.turned += other.turned;
        self.power_squares += other.power_squares;
        self.turn_squares += other.turn_squares;
        self.unequal += other.unequal;
        self.kinds |= other.kinds;
        self.apart += other.apart;
    }

    /// Σ |t|² − |o|².
    pub fn louder(&self) -> f64 {
        self.theirs as f64 - self.ours as f64
    }

    /// Geometric mean of both powers, summed.
    pub fn power(&self) -> f64 {
        (self.ours as f64 * self.theirs as f64).sqrt()
    }

    /// Adds a sample.
    fn note(&mut self, (o_re, o_im): (i32, i32), (t_re, t_im): (i32, i32)) {
        let (ours, theirs) = (o_re * o_re + o_im * o_im, t_re * t_re + t_im * t_im);
        let turned = t_im * o_re - t_re * o_im;
        let apart = |t: i32, o: i32| u64::from((t - o).abs() > 1);
        let louder = f64::from(theirs - ours);
        self.samples += 1;
        self.ours += ours as u64;
        self.theirs += theirs as u64;
        self.alike += i64::from(t_re * o_re + t_im * o_im);
        self.turned += i64::from(turned);
        self.power_squares += louder * louder;
        self.turn_squares += f64::from(turned) * f64::from(turned);
        if (o_re, o_im) != (t_re, t_im) {
            self.unequal += 1;
            let pair = u32::from_ne_bytes([o_re, o_im, t_re, t_im].map(|part| part as u8));
            // The upper six bits of a product by the golden ratio (Knuth, The Art of Computer
            // Programming, 6.4).
            self.kinds |= 1 << (pair.wrapping_mul(0x9E37_79B1) >> 26);
        }
        self.apart += apart(t_re, o_re) + apart(t_im, o_im);
    }

    /// Adds a sample that both have.
    fn note_equal(&mut self, (re, im): (i32, i32)) {
        let power = (re * re + im * im) as u64;
        self.samples += 1;
        self.ours += power;
        self.theirs += power;
        self.alike += power as i64;
    }
}

/// Cells of an output: of each polarisation, by channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums(pub [Vec<Cell>; N_POL]);

impl Sums {
    /// Nothing of so many channels.
    pub fn new(channels: usize) -> Self {
        Self([0, 1].map(|_| vec![Cell::default(); channels]))
    }

    /// Adds another's sums.
    pub fn add(&mut self, other: &Self) {
        let pols = self.0.iter_mut().zip(&other.0);
        for (cell, other) in pols.flat_map(|(cells, others)| cells.iter_mut().zip(others)) {
            cell.add(other);
        }
    }

    /// Adds a heap of channels from `first` on, `spectra` of each, as both have it. Returns how
    /// many samples differ.
    pub fn add_heap(
        &mut self,
        (first, spectra): (usize, usize),
        bits: OutputBits,
        ours: &[u8],
        theirs: &[u8],
    ) -> u64 {
        let mut unequal = 0;
        let row = spectra * bits.jones_bytes();
        let rows = ours.chunks_exact(row).zip(theirs.chunks_exact(row));
        let [x, y] = &mut self.0;
        let cells = x.iter_mut().zip(y.iter_mut()).skip(first);
        for ((x, y), (ours, theirs)) in cells.zip(rows) {
            let each = bits.jones_bytes() / N_POL;
            let (ours, equal) = (ours.chunks_exact(each), ours == theirs);
            let theirs = theirs.chunks_exact(each);
            let before = x.unequal + y.unequal;
            for (i, (ours, theirs)) in ours.zip(theirs).enumerate() {
                let cell = if i % N_POL == 0 { &mut *x } else { &mut *y };
                match equal {
                    true => cell.note_equal(value(ours)),
                    false => cell.note(value(ours), value(theirs)),
                }
            }
            unequal += x.unequal + y.unequal - before;
        }
        unequal
    }
}

/// Real and imaginary part of a sample: a byte each, or half a byte each.
fn value(bytes: &[u8]) -> (i32, i32) {
    match *bytes {
        [re, im] => (i32::from(re as i8), i32::from(im as i8)),
        [both] => (
            i32::from(both as i8 >> 4),
            i32::from((both << 4) as i8 >> 4),
        ),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn eight(values: &[(i8, i8)]) -> Vec<u8> {
        let bytes = values.iter().flat_map(|(re, im)| [*re as u8, *im as u8]);
        bytes.collect()
    }

    /// Two channels, one spectrum: each value goes to its channel and polarisation.
    #[test]
    fn values_go_to_their_cells() {
        let mut sums = Sums::new(4);
        let ours = eight(&[(1, 2), (3, 4), (5, 0), (0, -6)]);
        let theirs = eight(&[(1, 2), (3, 4), (5, 0), (2, -6)]);
        sums.add_heap((1, 1), OutputBits::Eight, &ours, &theirs);
        let [x, y] = &sums.0;
        assert_eq!((x[0], y[0], x[3]), Default::default());
        assert_eq!((x[1].ours, x[1].alike, x[1].unequal), (5, 5, 0));
        assert_eq!((y[1].ours, y[1].theirs), (25, 25));
        assert_eq!((x[2].ours, x[2].samples), (25, 1));
        // (2 − 6i)·(0 + 6i) = 36 + 12i.
        assert_eq!((y[2].ours, y[2].theirs), (36, 40));
        assert_eq!((y[2].alike, y[2].turned), (36, 12));
        assert_eq!((y[2].unequal, y[2].apart), (1, 1));
        assert_eq!((y[2].power_squares, y[2].turn_squares), (16.0, 144.0));
    }

    #[test]
    fn four_bits_are_two_parts_of_a_byte() {
        let mut sums = Sums::new(1);
        // 7 − 7i, and −1 + 2i.
        let bytes = [0x79, 0xf2];
        sums.add_heap((0, 1), OutputBits::Four, &bytes, &bytes);
        assert_eq!((sums.0[0][0].ours, sums.0[1][0].theirs), (98, 5));
    }

    proptest! {
        /// However values are put into heaps, sums are those of complex numbers.
        #[test]
        fn sums_are_those_of_complex_numbers(
            pairs in proptest::collection::vec(
                ((-127i8..=127, -127i8..=127), (-127i8..=127, -127i8..=127)), 2..64usize,
            ),
            same in any::<bool>(),
        ) {
            let pairs = &pairs[..pairs.len() / 2 * 2];
            let pick = |(ours, theirs): &((i8, i8), (i8, i8))| if same { *ours } else { *theirs };
            let ours = eight(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
            let theirs = eight(&pairs.iter().map(pick).collect::<Vec<_>>());
            let mut sums = Sums::new(1);
            sums.add_heap((0, pairs.len() / 2), OutputBits::Eight, &ours, &theirs);
            for pol in 0..N_POL {
                let complex = |(re, im): (i8, i8)| num_complex::Complex64::new(re.into(), im.into());
                let of = pairs.iter().skip(pol).step_by(2);
                let of: Vec<_> = of.map(|pair| (complex(pair.0), complex(pick(pair)))).collect();
                let cross: num_complex::Complex64 = of.iter().map(|(o, t)| t * o.conj()).sum();
                let louder = |(o, t): &(num_complex::Complex64, num_complex::Complex64)| {
                    t.norm_sqr() - o.norm_sqr()
                };
                let cell = &sums.0[pol][0];
                prop_assert_eq!((cell.alike as f64, cell.turned as f64), (cross.re, cross.im));
                prop_assert_eq!(cell.louder(), of.iter().map(louder).sum::<f64>());
                let squares: f64 = of.iter().map(|of| louder(of).powi(2)).sum();
                prop_assert_eq!(cell.power_squares, squares);
                let unequal = of.iter().filter(|(o, t)| o != t).count();
                prop_assert_eq!(cell.unequal, unequal as u64);
            }
        }
    }
}
