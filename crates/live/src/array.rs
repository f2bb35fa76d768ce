//! Numbers as numpy has them.

use npyz::WriterBuilder;

/// An array of single-precision numbers, last index fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// As many numbers as the shape has.
    pub values: Vec<f32>,
}

impl Array {
    /// The bytes of a `.npy` file.
    ///
    /// Fails where the shape has another number of values.
    pub fn to_npy(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&self.shape)
            .writer(&mut bytes)
            .begin_nd()?;
        writer.extend(self.values.iter().copied())?;
        writer.finish()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_they_were_written() {
        let array = Array {
            shape: vec![2, 3],
            values: vec![0.0, 1.5, -2.0, 3.0, f32::NAN, 5.0],
        };
        let bytes = array.to_npy().unwrap();
        let read = npyz::NpyFile::new(&bytes[..]).unwrap();
        assert_eq!(read.shape(), [2, 3]);
        let values: Vec<f32> = read.into_vec().unwrap();
        assert_eq!(values[..4], array.values[..4]);
        assert!(values[4].is_nan());
    }

    #[test]
    fn a_shape_of_another_size_is_refused() {
        let array = Array {
            shape: vec![4],
            values: vec![1.0],
        };
        assert!(array.to_npy().is_err());
    }
}
