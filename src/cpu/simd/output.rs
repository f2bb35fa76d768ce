//! Output chunk handed out in disjoint groups of spectra.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use dsp::OutputBits;

use super::{Level, Supported};

/// Groups of spectra of an output chunk, each handed out once.
///
/// A group's bytes are strided over its batch, so slices cannot express the split; the cursor
/// makes sure that no two [`GroupOutput`]s are the same group.
#[derive(Debug)]
pub struct OutputGroups<'a> {
    data: *mut u8,
    bits: OutputBits,
    channels: usize,
    batch_spectra: usize,
    group: usize,
    next: AtomicUsize,
    end: usize,
    marker: PhantomData<&'a mut [u8]>,
}

// SAFETY: the only access to `data` is through `GroupOutput`s, whose bytes are disjoint.
unsafe impl Sync for OutputGroups<'_> {}

/// The bytes of one group of spectra.
#[derive(Debug)]
pub struct GroupOutput<'a> {
    data: *mut u8,
    bits: OutputBits,
    channels: usize,
    batch_spectra: usize,
    group: usize,
    index: usize,
    marker: PhantomData<&'a mut [u8]>,
}

impl<'a> OutputGroups<'a> {
    /// Hands out `groups` (indices of `group` spectra each) of a chunk whose batches have
    /// `batch_spectra` spectra of `channels`; groups that do not lie in `data` are left out.
    ///
    /// # Panics
    /// If `group` does not divide `batch_spectra`, or no memory holds such a batch.
    pub fn new(
        data: &'a mut [u8],
        bits: OutputBits,
        channels: usize,
        batch_spectra: usize,
        group: usize,
        groups: Range<usize>,
    ) -> Self {
        assert!(group > 0 && batch_spectra.is_multiple_of(group));
        let batch = channels.checked_mul(batch_spectra);
        let batch = batch.and_then(|jones| jones.checked_mul(bits.jones_bytes()));
        let batches = data.len() / batch.expect("a batch's bytes are counted in 64 bits");
        Self {
            data: data.as_mut_ptr(),
            bits,
            channels,
            batch_spectra,
            group,
            next: AtomicUsize::new(groups.start),
            end: groups.end.min(batches * (batch_spectra / group)),
            marker: PhantomData,
        }
    }

    /// The next group, if one is left.
    pub fn next(&self) -> Option<GroupOutput<'_>> {
        // Relaxed: the counter only makes indices unique; data is published by the join.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.end).then_some(GroupOutput {
            data: self.data,
            bits: self.bits,
            channels: self.channels,
            batch_spectra: self.batch_spectra,
            group: self.group,
            index,
            marker: PhantomData,
        })
    }
}

impl GroupOutput<'_> {
    /// Index of the group in the chunk.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Writes the group: `rows[s·pitch + k]` is spectrum s, channel k, as four signed bytes.
    ///
    /// # Panics
    /// If `rows` is too short, or `pitch` less than the channels.
    pub fn write(self, at: Supported, rows: &[u32], pitch: usize) {
        let last = self.group - 1;
        assert!(pitch >= self.channels && super::holds(rows, last, pitch, self.channels));
        let first = self.index * self.group;
        let (batch, spectrum) = (first / self.batch_spectra, first % self.batch_spectra);
        let jones = self.bits.jones_bytes();
        let start = (batch * self.batch_spectra * self.channels + spectrum) * jones;
        let stride = self.batch_spectra * jones;
        // SAFETY: the group lies in the chunk (`OutputGroups::new`), so `start` does.
        let to = unsafe { self.data.add(start) };
        #[cfg(target_arch = "x86_64")]
        if at.level() == Level::Avx512
            && self.group.is_multiple_of(16)
            && self.channels.is_multiple_of(16)
        {
            let transpose = match self.bits {
                OutputBits::Eight => super::avx512::transpose::<false>,
                OutputBits::Four => super::avx512::transpose::<true>,
            };
            // SAFETY: `Supported` proves the instruction set. Channel k's `jones·group` bytes at
            // `to + k·stride` belong to this group alone; `rows` was checked above.
            return unsafe {
                transpose(rows.as_ptr(), pitch, self.group, self.channels, to, stride);
            };
        }
        let _ = at;
        for k in 0..self.channels {
            for s in 0..self.group {
                let word = rows[s * pitch + k];
                // SAFETY: as above, one element at a time, any alignment.
                unsafe {
                    let to = to.add(k * stride + jones * s);
                    match self.bits {
                        OutputBits::Eight => to.cast::<u32>().write_unaligned(word),
                        OutputBits::Four => to.cast::<[u8; 2]>().write(nibbles(word)),
                    }
                };
            }
        }
    }
}

/// Of the signed bytes re0 im0 re1 im1, the low nibbles, re0 on top of im0, re1 on top of im1.
fn nibbles(word: u32) -> [u8; 2] {
    let [re0, im0, re1, im1] = word.to_le_bytes();
    [re0 << 4 | im0 & 0xF, re1 << 4 | im1 & 0xF]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that end in memory that is not there, and whose sizes overflow.
    #[test]
    fn rows_that_are_too_short_are_refused() {
        let (channels, group) = (16, 16);
        let mut data = vec![0; 4 * channels * group];
        // 15 times the last is 2⁶⁴ + 14.
        for pitch in [channels - 1, channels, (usize::MAX - 14) / 15 + 2] {
            let groups =
                OutputGroups::new(&mut data, OutputBits::Eight, channels, group, group, 0..1);
            let rows = vec![0; 14 + channels];
            let written = std::panic::AssertUnwindSafe(|| {
                let group = groups.next().expect("a group");
                group.write(Supported::new(Level::Portable), &rows, pitch);
            });
            let panic = std::panic::catch_unwind(written).expect_err("refused");
            let says = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(says.starts_with("assertion failed"), "{pitch}: {says}");
        }
    }
}
