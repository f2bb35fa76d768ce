use std::f64::consts::PI;

use proptest::prelude::*;

use super::*;

/// Nodes 3^±1 and 2^±1 from 0, of which all of a kind would be a product of 2^±5000 and more.
#[test]
fn products_stay_within_range() {
    for (first, then) in [(2.0, 0.5), (0.5, 2.0), (3.0, 1.0 / 3.0)] {
        let nodes: Vec<f64> = (0..10_000)
            .map(|i| if i < 5000 { first } else { then })
            .collect();
        let size = |of: Product<Double>| f64::from(of.number).log2() + f64::from(of.exponent);
        let single = distances::<f64>(&[0.0], &nodes).next().unwrap();
        assert!(
            (single.number.log2() + f64::from(single.exponent)).abs() < 1e-9,
            "{first}"
        );
        let double = distances::<Double>(&[0.0], &nodes).next().unwrap();
        assert!(size(double).abs() < 1e-9, "{first}");
    }
}

/// P by Lagrange's formula with numbers of twice the precision, one place and one node at a time.
fn lagrange(nodes: &[f64], values: &[f64], x: f64) -> f64 {
    let basis = |i: usize| {
        let others = (0..nodes.len()).filter(|&j| j != i);
        others.fold(Double::from(1.0), |product, j| {
            let (to, from) = (Double::from(x), Double::from(nodes[i]));
            let node = Double::from(nodes[j]);
            product * (to - node) / (from - node)
        })
    };
    let terms = (0..nodes.len()).map(|i| basis(i) * Double::from(values[i]));
    terms.fold(Double::from(0.0), |sum, term| sum + term).into()
}

proptest! {
    /// On nodes, between them, and where fewer places are left than are computed side by side.
    #[test]
    fn places_side_by_side_get_the_polynomials_values(values in prop::collection::vec(-1.0f64..1.0, 2..40), count in 1usize..30) {
        let n = values.len();
        let nodes: Vec<f64> = (0..n).map(|i| (PI * (i as f64 + 0.5) / n as f64).cos()).collect();
        let (weights, exponent) = barycentric_weights::<f64>(&nodes);
        let terms = nodes.iter().zip(&values).zip(&weights);
        let interpolant = Interpolant {
            nodes: terms.map(|((&node, &value), &b)| (node, value, b * value)).collect(),
            exponent,
        };
        let between = (0..count).map(|i| 1.0 - 2.0 * (i as f64 + 0.3) / count as f64);
        let places: Vec<f64> = nodes.iter().copied().chain(between).collect();
        let found = interpolant.at(&places);
        prop_assert_eq!(found.len(), places.len());
        prop_assert_eq!(&found[..n], &values[..]);
        for (&x, found) in places.iter().zip(found) {
            let wanted = lagrange(&nodes, &values, x);
            prop_assert!((found - wanted).abs() < 1e-13, "{} at {}, not {}", found, x, wanted);
        }
    }
}
