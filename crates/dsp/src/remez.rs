//! Equiripple filters by the Parks–McClellan algorithm.
//!
//! J. H. McClellan, T. W. Parks and L. R. Rabiner, "A computer program for designing optimum FIR
//! linear phase digital filters", IEEE Trans. Audio Electroacoust. 21 (1973). The response of a
//! symmetric filter of L taps is e^{−πi(L−1)f}·A(f) with A(f) = Q(f)·P(cos 2πf), where Q is 1 for
//! odd L and cos πf for even L, and P is a polynomial of degree r − 1, r = ⌈L/2⌉. The exchange
//! finds the P whose weighted error is least at its largest, over a dense grid of the bands: there
//! the error alternates between ±δ on r + 1 points. P is held by its values on r of them, in
//! barycentric form, which is stable for any number of taps.

mod interpolant;

use std::f64::consts::PI;

use interpolant::{Interpolant, LANES, Real, barycentric_weights};

use super::double::Double;

/// Grid points per basis function: that of katgpucbf's design, so that both solve the same problem.
const GRID_DENSITY: usize = 16;
/// Exchanges, at most; designs that converge take some tens.
const MOST_EXCHANGES: usize = 200;
/// By how much of itself the largest error may exceed the common error of the extremal points.
const TOLERANCE: f64 = 1e-9;
/// An error that is none: some of the last digits of a sum of terms near 1, and five orders below
/// what single precision holds.
const NOISE: f64 = 64.0 * f64::EPSILON;
/// Coefficients larger than so many times the largest response wanted are of a polynomial that went
/// its own way between the bands.
const MOST_GAIN: f64 = 1e3;
/// Points among which the largest is looked for at once.
const STRETCH: usize = 64 * LANES;

/// A stretch of frequencies with one desired response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Lower edge in cycles per sample.
    pub low: f64,
    /// Upper edge, at most ½.
    pub high: f64,
    /// Amplitude wanted.
    pub desired: f64,
    /// What an error here counts.
    pub weight: f64,
}

/// Why there is no filter.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RemezError {
    /// A filter has at least one tap.
    #[error("0 taps: at least 1 is needed")]
    Taps,
    /// Nothing is asked for.
    #[error("no bands: at least 1 is needed")]
    NoBands,
    /// Bands that are empty, overlap, go beyond half of the sample rate, or want a response that is
    /// not finite, or have no positive weight.
    #[error(
        "band {low} to {high} of response {desired} and weight {weight}: bands must ascend without overlap within 0 \
         and 0.5 cycles per sample, with finite responses and positive, finite weights"
    )]
    Band {
        /// Lower edge.
        low: f64,
        /// Upper edge.
        high: f64,
        /// Amplitude wanted.
        desired: f64,
        /// Weight.
        weight: f64,
    },
    /// The exchange went on and on, or lost its alternation.
    #[error(
        "the design of {taps} taps does not converge ({exchanges} exchanges); fewer taps or a wider transition do"
    )]
    NotConverged {
        /// Taps asked for.
        taps: usize,
        /// Exchanges made.
        exchanges: usize,
    },
}

/// The filter of `taps` coefficients whose largest weighted error over `bands` is least. It is
/// symmetric.
pub fn remez(taps: usize, bands: &[Band]) -> Result<Vec<f64>, RemezError> {
    if taps == 0 {
        return Err(RemezError::Taps);
    }
    check(bands)?;
    let grid = Grid::new(taps, bands);
    let (extremal, exchanges) = grid.exchange()?;
    // Between the bands nothing holds P, and rounding errors of its values on the nodes grow there
    // by up to 1/δ. So P is computed with twice the digits.
    let (response, _) = grid.interpolate::<Double>(&extremal);
    let filter = impulse_response(taps, &response);
    let largest = |of: f64, x: f64| of.max(x.abs());
    let desired = bands.iter().map(|band| band.desired).fold(0.0, largest);
    let most = filter.iter().copied().fold(0.0, largest);
    if most.is_finite() && most <= MOST_GAIN * desired {
        Ok(filter)
    } else {
        // Twice as many digits were too few.
        Err(RemezError::NotConverged { taps, exchanges })
    }
}

fn check(bands: &[Band]) -> Result<(), RemezError> {
    let mut least = 0.0;
    for &Band {
        low,
        high,
        desired,
        weight,
    } in bands
    {
        let ordered = least <= low && low < high && high <= 0.5;
        if !(ordered && weight > 0.0 && weight.is_finite() && desired.is_finite()) {
            return Err(RemezError::Band {
                low,
                high,
                desired,
                weight,
            });
        }
        // Strictly: between bands the response must have room to change.
        least = high.next_up();
    }
    match bands {
        [] => Err(RemezError::NoBands),
        _ => Ok(()),
    }
}

/// One frequency of the dense grid, in terms of P: what it should be and what an error counts
/// there.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// cos 2πf.
    x: f64,
    desired: f64,
    weight: f64,
}

struct Grid {
    taps: usize,
    points: Vec<Point>,
    /// x of each.
    places: Vec<f64>,
    /// Index behind the last point of each band.
    ends: Vec<usize>,
}

/// Q(f): the factor that all filters of so many taps share.
fn common_factor(taps: usize, f: f64) -> f64 {
    if taps.is_multiple_of(2) {
        (PI * f).cos()
    } else {
        1.0
    }
}

impl Grid {
    fn new(taps: usize, bands: &[Band]) -> Self {
        let step = 0.5 / (GRID_DENSITY * taps.div_ceil(2)) as f64;
        let (mut points, mut ends) = (Vec::new(), Vec::new());
        for band in bands {
            let count = ((band.high - band.low) / step) as usize + 1;
            for i in 0..count {
                // The last point is the edge itself.
                let f = match i + 1 {
                    last if last == count => band.high,
                    _ => band.low + i as f64 * step,
                };
                // An even number of taps has a zero at ½, where nothing can be asked for.
                if taps.is_multiple_of(2) && f > 0.5 - step {
                    continue;
                }
                let common = common_factor(taps, f);
                points.push(Point {
                    x: (2.0 * PI * f).cos(),
                    desired: band.desired / common,
                    weight: band.weight * common,
                });
            }
            ends.push(points.len());
        }
        let places = points.iter().map(|point| point.x).collect();
        Self {
            taps,
            points,
            places,
            ends,
        }
    }

    /// Functions that P is a sum of: r. There is one extremal point more.
    fn functions(&self) -> usize {
        self.taps.div_ceil(2)
    }

    /// Extremal points to begin with; `None` where the grid has too few points.
    ///
    /// Points each of which is where the product of the distances from those before is largest
    /// (Leja's) lie in any bands as the extremal points of long filters do, but for one more or
    /// less here and there. Of twice as many, every other is nearer.
    fn guess(&self) -> Option<Vec<usize>> {
        let functions = self.functions();
        let count = self.points.len().min(2 * functions + 1);
        let steps = count.checked_sub(1).filter(|&steps| steps >= functions)?;
        let mut products = vec![1.0; self.points.len()];
        let (mut chosen, mut next, mut largest) = (Vec::with_capacity(count), 0, 1.0);
        for _ in 0..count {
            chosen.push(next);
            let (from, scale) = (self.places[next], 1.0 / largest);
            largest = 0.0;
            // Only where a stretch has the largest is it asked which one of them it is.
            let (mut best, stretches) = (0, self.places.chunks(STRETCH));
            for (i, (products, places)) in products.chunks_mut(STRETCH).zip(stretches).enumerate() {
                let here = multiply(products, places, from, scale);
                if here > largest {
                    (best, largest) = (i * STRETCH, here);
                }
            }
            let first = products[best..].iter().position(|&p| p == largest);
            next = best + first.unwrap_or(0);
        }
        chosen.sort_unstable();
        Some(
            (0..=functions)
                .map(|i| chosen[i * steps / functions])
                .collect(),
        )
    }

    /// Exchanges extremal points until the error is the same at all of them and nowhere larger; how
    /// many exchanges that took, too.
    fn exchange(&self) -> Result<(Vec<usize>, usize), RemezError> {
        let failed = |exchanges| RemezError::NotConverged {
            taps: self.taps,
            exchanges,
        };
        let mut extremal = self.guess().ok_or_else(|| failed(0))?;
        let heaviest = self.points.iter().fold(0.0f64, |w, p| w.max(p.weight));
        let mut before = (0.0, extremal.clone());
        for exchanges in 1..=MOST_EXCHANGES {
            let (mut errors, mut common) = self.errors::<f64>(&extremal);
            // Every exchange raises the common error. If one has not, it chose points by rounding
            // errors.
            if common < 0.999 * before.0 {
                extremal = before.1;
                (errors, common) = self.errors::<Double>(&extremal);
            }
            if !errors.iter().all(|e| e.is_finite()) {
                return Err(failed(exchanges));
            }
            let largest = errors.iter().fold(0.0f64, |most, e| most.max(e.abs()));
            let mut next = self.alternation(&errors, extremal.len());
            if next.is_none() && exchanges == 1 {
                // Of few points, the guess may have none in a band that wants something else than
                // the others: the error is 0 on all of them, and has one extremum in that band.
                next = exchange_one(&errors, &extremal);
            }
            let next = next.ok_or_else(|| failed(exchanges))?;
            let equal = common * (1.0 + TOLERANCE) + f64::EPSILON * heaviest;
            if largest <= equal.max(NOISE * heaviest) || next == extremal {
                return Ok((extremal, exchanges));
            }
            before = (common, std::mem::replace(&mut extremal, next));
        }
        Err(failed(MOST_EXCHANGES))
    }

    /// The weighted error of the P whose is ±δ on `extremal`, at each point of the grid, and |δ|.
    fn errors<T: Real>(&self, extremal: &[usize]) -> (Vec<f64>, f64) {
        let (interpolant, deviation) = self.interpolate::<T>(extremal);
        let values = interpolant.at(&self.places);
        let error = |(p, value): (&Point, f64)| p.weight * (value - p.desired);
        let mut errors: Vec<f64> = self.points.iter().zip(values).map(error).collect();
        let deviation = deviation.into();
        // At the extremal points the error is known exactly: ± the deviation. Computed values would
        // be rounded, and a small deviation, with its alternating signs, would be lost.
        for (i, &at) in extremal.iter().enumerate() {
            errors[at] = -sign(i) * deviation;
        }
        (errors, deviation.abs())
    }

    /// The P whose weighted error alternates between ±δ on `extremal`, and δ.
    fn interpolate<T: Real>(&self, extremal: &[usize]) -> (Interpolant<T>, T) {
        let points: Vec<Point> = extremal.iter().map(|&i| self.points[i]).collect();
        let nodes: Vec<f64> = points.iter().map(|p| p.x).collect();
        let (weights, exponent) = barycentric_weights::<T>(&nodes);
        let (mut wanted, mut alternating) = (T::from(0.0), T::from(0.0));
        for (i, (&b, p)) in weights.iter().zip(&points).enumerate() {
            wanted = wanted + b * T::from(p.desired);
            alternating = alternating + b * T::from(sign(i)) / T::from(p.weight);
        }
        let deviation = wanted / alternating;
        // All but the last node determine a polynomial of degree r − 1, and it passes through the
        // last one as well.
        let n = nodes.len() - 1;
        let last = T::from(nodes[n]);
        let node = |i: usize| {
            let (x, p) = (T::from(nodes[i]), points[i]);
            let value = T::from(p.desired) - deviation * T::from(sign(i)) / T::from(p.weight);
            let term = weights[i] * (x - last) * value;
            (nodes[i], value, term)
        };
        let nodes = (0..n).map(node).collect();
        (Interpolant { nodes, exponent }, deviation)
    }

    /// `count` points on which the error is extremal and alternates in sign, the largest that there
    /// are.
    fn alternation(&self, errors: &[f64], count: usize) -> Option<Vec<usize>> {
        let mut found: Vec<usize> = Vec::with_capacity(2 * count);
        let mut start = 0;
        for &end in &self.ends {
            for i in start..end {
                let e = errors[i];
                let rises = |other: usize| errors[other] * e.signum() > e.abs();
                let inner = (i == start || !rises(i - 1)) && (i + 1 == end || !rises(i + 1));
                if !inner || e == 0.0 {
                    continue;
                }
                // Of neighbours with the same sign, the larger stays.
                match found.last_mut() {
                    Some(last) if errors[*last] * e > 0.0 => {
                        if e.abs() > errors[*last].abs() {
                            *last = i;
                        }
                    }
                    _ => found.push(i),
                }
            }
            start = end;
        }
        while found.len() > count {
            let (first, last) = (*found.first()?, *found.last()?);
            if found.len() == count + 1 {
                // One too many: the smaller end goes, and the alternation stays.
                match errors[first].abs() < errors[last].abs() {
                    true => drop(found.remove(0)),
                    false => drop(found.pop()),
                }
                continue;
            }
            // Two or more too many: the smallest goes, with the smaller of its neighbours unless it
            // is at an end.
            let size = |i: &usize| errors[found[*i]].abs();
            let least = (0..found.len()).min_by(|a, b| size(a).total_cmp(&size(b)))?;
            if least == 0 || least + 1 == found.len() {
                found.remove(least);
            } else {
                let with = match size(&(least - 1)) < size(&(least + 1)) {
                    true => least - 1,
                    false => least,
                };
                found.drain(with..with + 2);
            }
        }
        (found.len() == count).then_some(found)
    }
}

/// The extremal points with that of the largest error among them. It takes the place of a
/// neighbour whose error has the same sign, so that signs alternate as before, or else becomes an
/// end, and the other end goes. `None` where all errors are 0, or it is among them already.
fn exchange_one(errors: &[f64], extremal: &[usize]) -> Option<Vec<usize>> {
    let size = |i: &usize| errors[*i].abs();
    let largest = (0..errors.len()).max_by(|a, b| size(a).total_cmp(&size(b)))?;
    if errors[largest] == 0.0 {
        return None;
    }
    let behind = extremal.binary_search(&largest).err()?;
    // An error of ±0 has a sign too.
    let is_alike = |i: usize| {
        let neighbour = extremal.get(i).map(|&at| errors[at].is_sign_negative());
        neighbour == Some(errors[largest].is_sign_negative())
    };
    let mut next = extremal.to_vec();
    if is_alike(behind) {
        next[behind] = largest;
    } else if behind == 0 {
        next.rotate_right(1);
        next[0] = largest;
    } else if is_alike(behind - 1) {
        next[behind - 1] = largest;
    } else {
        next.rotate_left(1);
        *next.last_mut()? = largest;
    }
    Some(next)
}

fn sign(i: usize) -> f64 {
    if i.is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// Multiplies each product by `scale` times the distance of its place from `from`; the largest of
/// them.
fn multiply(products: &mut [f64], places: &[f64], from: f64, scale: f64) -> f64 {
    let mut largest = [0.0; LANES];
    let places = places.chunks(LANES);
    for (products, places) in products.chunks_mut(LANES).zip(places) {
        for ((product, place), largest) in products.iter_mut().zip(places).zip(&mut largest) {
            *product *= scale * (place - from).abs();
            *largest = if *product > *largest {
                *product
            } else {
                *largest
            };
        }
    }
    largest.into_iter().fold(0.0, f64::max)
}

/// Samples A(k/L) and transforms them: h\[n\] = (A(0) + 2·Σₖ A(k/L)·cos(2πk(n − (L−1)/2)/L))/L.
fn impulse_response(taps: usize, response: &Interpolant<Double>) -> Vec<f64> {
    let length = taps as f64;
    let frequency = |k: usize| k as f64 / length;
    let places: Vec<f64> = (0..taps.div_ceil(2))
        .map(|k| (2.0 * PI * frequency(k)).cos())
        .collect();
    let values = response.at(&places);
    let amplitude = |(k, value)| common_factor(taps, frequency(k)) * value;
    let amplitudes: Vec<f64> = values.into_iter().enumerate().map(amplitude).collect();
    // cos(πj/L) for every j that the sum asks for: 2k(n − (L−1)/2) = k(2n − L + 1).
    let cosines: Vec<f64> = (0..2 * taps)
        .map(|j| (PI * j as f64 / length).cos())
        .collect();
    let coefficient = |n: usize| {
        let offset = (2 * n + 1).abs_diff(taps);
        let mut turn = 0;
        let terms = amplitudes.iter().skip(1).map(|a| {
            turn += offset;
            if turn >= 2 * taps {
                turn -= 2 * taps;
            }
            a * cosines[turn]
        });
        (amplitudes[0] + 2.0 * terms.sum::<f64>()) / length
    };
    let half: Vec<f64> = (0..taps.div_ceil(2)).map(coefficient).collect();
    (0..taps).map(|n| half[n.min(taps - 1 - n)]).collect()
}

#[cfg(test)]
#[path = "remez_tests.rs"]
mod tests;
