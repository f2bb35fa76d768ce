//! Polynomials by their values on nodes, at many places at once.

use std::ops::{Add, Div, Mul, Sub};

use crate::double::Double;

/// Places that are computed side by side: the CPU divides several numbers at once.
pub const LANES: usize = 8;
/// Factors between two looks at whether a product is in range: each is 1e-12 to 2.
const FEW: usize = 8;

/// Numbers of any precision.
pub trait Real:
    Copy
    + From<f64>
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
}

impl Real for f64 {}
impl Real for Double {}

/// A product as a number and a power of two: those of thousands of factors leave the range of a
/// double, at either end.
#[derive(Clone, Copy)]
struct Product<T> {
    number: T,
    exponent: i32,
}

impl<T: Real> Product<T> {
    /// The power of two by which a number is brought back into range.
    const STEP: i32 = 300;

    fn one() -> Self {
        let number = T::from(1.0);
        Self {
            number,
            exponent: 0,
        }
    }

    /// Keeps the number in range. Between two of these there are few factors.
    fn normalise(&mut self) {
        let (small, large) = (2f64.powi(-Self::STEP), 2f64.powi(Self::STEP));
        let size = self.number.into().abs();
        if size < small {
            self.number = self.number * T::from(large);
            self.exponent -= Self::STEP;
        } else if size > large {
            self.number = self.number * T::from(small);
            self.exponent += Self::STEP;
        }
    }
}

/// 1/Πⱼ(xᵢ − xⱼ), and the power of two that they are to be multiplied by.
pub fn barycentric_weights<T: Real>(nodes: &[f64]) -> (Vec<T>, i32) {
    let products: Vec<Product<T>> = nodes
        .chunks(LANES)
        .flat_map(|at| distances(at, nodes))
        .collect();
    let least = products.iter().map(|p| p.exponent).min().unwrap_or(0);
    let weight = |p: &Product<T>| T::from(2f64.powi(least - p.exponent)) / p.number;
    (products.iter().map(weight).collect(), -least)
}

/// Π(x − node) over all nodes that x is not, of each of up to [`LANES`] x side by side.
fn distances<T: Real>(at: &[f64], nodes: &[f64]) -> impl Iterator<Item = Product<T>> {
    let x = lanes(at);
    let mut products = [Product::<T>::one(); LANES];
    for few in nodes.chunks(FEW) {
        for &node in few {
            for (product, x) in products.iter_mut().zip(x) {
                let distance = T::from(x) - T::from(node);
                let other = if x == node { T::from(1.0) } else { distance };
                product.number = product.number * other;
            }
        }
        products.iter_mut().for_each(Product::normalise);
    }
    products.into_iter().take(at.len())
}

/// Up to [`LANES`] numbers, the last one again where there are fewer.
fn lanes(x: &[f64]) -> [f64; LANES] {
    std::array::from_fn(|i| x[i.min(x.len() - 1)])
}

/// A polynomial by its values on nodes.
///
/// P(x) = Πⱼ(x − xⱼ)·Σᵢ bᵢ·P(xᵢ)/(x − xᵢ): what rounding does is as if values changed by some of
/// their last digits (N. J. Higham, "The numerical stability of barycentric Lagrange
/// interpolation", IMA J. Numer. Anal. 24 (2004)), small ones by less. The quotient of two sums
/// that is in wider use loses the stop band where nodes are not yet well placed.
pub struct Interpolant<T> {
    /// xᵢ, P(xᵢ) and bᵢ·P(xᵢ), xᵢ descending.
    pub nodes: Vec<(f64, T, T)>,
    /// Power of two that the terms are to be multiplied by.
    pub exponent: i32,
}

impl<T: Real> Interpolant<T> {
    /// P of each x.
    pub fn at(&self, x: &[f64]) -> Vec<f64> {
        let few = x.chunks(LANES);
        few.flat_map(|few| self.side_by_side(few).into_iter().take(few.len()))
            .collect()
    }

    /// P of up to [`LANES`] x, each computed as if it were alone.
    fn side_by_side(&self, at: &[f64]) -> [f64; LANES] {
        let x = lanes(at);
        let mut sums = [T::from(0.0); LANES];
        let mut products = [Product::<T>::one(); LANES];
        for few in self.nodes.chunks(FEW) {
            for &(node, _, term) in few {
                for ((sum, product), x) in sums.iter_mut().zip(&mut products).zip(x) {
                    let distance = T::from(x) - T::from(node);
                    *sum = *sum + term / distance;
                    product.number = product.number * distance;
                }
            }
            products.iter_mut().for_each(Product::normalise);
        }
        std::array::from_fn(|i| {
            let on = self
                .nodes
                .binary_search_by(|(node, ..)| x[i].total_cmp(node));
            if let Ok(on) = on {
                return self.nodes[on].1.into();
            }
            let exponent = products[i].exponent + self.exponent;
            (sums[i] * products[i].number).into() * 2f64.powi(exponent)
        })
    }
}

#[cfg(test)]
#[path = "interpolant_tests.rs"]
mod tests;
