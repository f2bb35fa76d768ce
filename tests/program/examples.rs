//! What the examples refuse.

use std::path::Path;

use npyz::{Order, WriterBuilder};
use tempfile::tempdir;

use crate::support::array;

#[allow(dead_code)] // its `main`
#[path = "../../examples/channelise.rs"]
mod channelise;

/// Writes an array of samples that are all 1.
fn write(path: &Path, shape: &[u64], order: Order) {
    let mut bytes = Vec::new();
    let mut array = npyz::WriteOptions::<i16>::new()
        .default_dtype()
        .shape(shape)
        .order(order)
        .writer(&mut bytes)
        .begin_nd()
        .unwrap();
    let samples = shape.iter().product::<u64>() as usize;
    array.extend(std::iter::repeat_n(1, samples)).unwrap();
    array.finish().unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn channelise_takes_two_rows_of_samples_and_nothing_else() {
    let folder = tempdir().unwrap();
    let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
    let run = || channelise::run(input.to_str().unwrap(), output.to_str().unwrap());
    // One batch: 64 spectra of 2048 samples, and the filter's tail.
    let samples = (64 + 15) * 2048;
    let others: [(&[u64], Order); 4] = [
        (&[2 * samples], Order::C),
        (&[samples, 2], Order::C),
        (&[2, samples], Order::Fortran),
        (&[2, samples, 1], Order::C),
    ];
    for (shape, order) in others {
        write(&input, shape, order);
        let error = run().unwrap_err().to_string();
        let expected = format!(
            "{}: the array has the shape {shape:?} in {order:?} order; ",
            input.display()
        );
        assert!(error.starts_with(&expected), "{error}");
        assert!(!output.exists(), "{shape:?}");
    }
    write(&input, &[2, samples], Order::C);
    run().unwrap();
    let (shape, _) = array::<i8>(&output);
    assert_eq!(shape, [1, 1024, 64, 2, 2]);
}
