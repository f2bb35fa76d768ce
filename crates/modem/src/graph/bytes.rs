//! Numbers in bytes, little-endian, one behind the other.

use std::borrow::Cow;

use num_complex::Complex32;

/// Puts numbers into bytes. What does not fit is left out.
pub(super) struct Put<'a>(pub &'a mut [u8]);

impl Put<'_> {
    pub fn bytes(&mut self, bytes: &[u8]) {
        let all = std::mem::take(&mut self.0);
        if let Some((place, rest)) = all.split_at_mut_checked(bytes.len()) {
            place.copy_from_slice(bytes);
            self.0 = rest;
        }
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    pub fn f64(&mut self, value: f64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Puts zeros to the end.
    pub fn rest(self) {
        self.0.fill(0);
    }
}

/// Takes numbers out of bytes; `None` behind their end.
pub(super) struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn eight(&mut self) -> Option<[u8; 8]> {
        self.bytes(8)?.try_into().ok()
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.eight().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Option<i64> {
        self.eight().map(i64::from_le_bytes)
    }

    pub fn f64(&mut self) -> Option<f64> {
        self.eight().map(f64::from_le_bytes)
    }
}

/// The floats that bytes are: those bytes themselves, where machine and place allow it.
pub(super) fn floats(bytes: &[u8]) -> Cow<'_, [f32]> {
    if cfg!(target_endian = "little")
        && let Ok(floats) = bytemuck::try_cast_slice(bytes)
    {
        return Cow::Borrowed(floats);
    }
    let fours = bytes.as_chunks::<4>().0.iter();
    Cow::Owned(fours.map(|four| f32::from_le_bytes(*four)).collect())
}

/// The complex numbers that bytes are, in the same way.
pub(super) fn complexes(bytes: &[u8]) -> Cow<'_, [Complex32]> {
    let pairs = |floats: &[f32]| -> Vec<Complex32> {
        let pairs = floats.as_chunks::<2>().0.iter();
        pairs.map(|[re, im]| Complex32::new(*re, *im)).collect()
    };
    match floats(bytes) {
        Cow::Borrowed(floats) => match bytemuck::try_cast_slice(floats) {
            Ok(complexes) => Cow::Borrowed(complexes),
            Err(_) => Cow::Owned(pairs(floats)),
        },
        Cow::Owned(floats) => Cow::Owned(pairs(&floats)),
    }
}

/// Bytes of floats.
pub(super) fn put_floats(floats: &[f32], bytes: &mut [u8]) {
    if cfg!(target_endian = "little") {
        bytes.copy_from_slice(bytemuck::cast_slice(floats));
        return;
    }
    for (float, four) in floats.iter().zip(bytes.as_chunks_mut::<4>().0) {
        *four = float.to_le_bytes();
    }
}
