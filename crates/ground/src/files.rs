//! Files that a user names: some by mistake.

mod whole;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use whole::{WholeFile, is_stdin, is_stdout, write_whole};

/// Largest text file that is read, in bytes.
const TEXT_LIMIT: u64 = 64 << 20;

/// Returns the bytes of a file of at most `limit` bytes. A larger file, given by mistake (a
/// capture, a device), is refused before it is read to its end.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("has more than {} MiB; is it the right file?", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Returns the UTF-8 text of a file that a user writes by hand.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_limited(path, TEXT_LIMIT)?);
    text.map_err(|error| {
        let why = format!("is no text: {}", error.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_and_other_bytes_are_refused() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("64 MiB"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"wideband = '\xff'").unwrap();
        assert_eq!(read_limited(file.path(), 14).unwrap().len(), 14);
        assert!(read_limited(file.path(), 13).is_err());
        let error = read_text(file.path()).unwrap_err();
        assert!(error.to_string().contains("utf-8"), "{error}");
    }
}
