//! Arrays in numpy's file format, version 1.0.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use ground::files::WholeFile;

/// The header of an array in C order: `descr` such as `|i1`, axes slowest first.
pub(super) fn npy_header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let axes: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let mut text = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        axes.trim_end()
    );
    // Data begin at a multiple of 64 bytes; 10 bytes come before the text, a newline ends it.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', padded - text.len() - 1));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

/// Writes a whole array, into a file that is to be finished.
pub(super) fn write_npy(
    path: &Path,
    descr: &str,
    shape: &[u64],
    elements: impl Iterator<Item = impl AsRef<[u8]>>,
) -> io::Result<WholeFile> {
    let mut file = BufWriter::new(WholeFile::create(path)?);
    file.write_all(&npy_header(descr, shape))?;
    for element in elements {
        file.write_all(element.as_ref())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use npyz::NpyFile;

    #[test]
    fn another_reader_understands_it() {
        let mut bytes = npy_header("|i1", &[2, 3]);
        assert_eq!(bytes.len() % 64, 0);
        bytes.extend([1i8, -2, 3, -4, 5, -6].map(|x| x as u8));
        let npy = NpyFile::new(&bytes[..]).expect("header");
        assert_eq!(npy.shape(), [2, 3]);
        assert_eq!(npy.into_vec::<i8>().expect("data"), [1, -2, 3, -4, 5, -6]);
        let mut bytes = npy_header("<u8", &[1]);
        bytes.extend(7u64.to_le_bytes());
        let npy = NpyFile::new(&bytes[..]).expect("header");
        assert_eq!(npy.into_vec::<u64>().expect("data"), [7]);
    }
}
