//! Blocks of real parts and imaginary parts, as the original's programs have them in their queues.

use std::io::{self, Read, Write};

/// Samples of a block.
pub const PLANAR_SAMPLES: usize = 120;
/// Bytes of a float.
const PART: usize = 4;
const BYTES: usize = 2 * PART * PLANAR_SAMPLES;

/// Makes `cf32` of blocks: 120 real parts and behind them 120 imaginary parts, floats each.
#[derive(Debug)]
pub struct PlanarReader<R> {
    source: R,
    /// What has come of a block; after an error of the source, part of one.
    block: Vec<u8>,
    samples: Vec<u8>,
    read: usize,
}

impl<R: Read> PlanarReader<R> {
    /// Reads blocks from a source.
    pub fn new(source: R) -> PlanarReader<R> {
        PlanarReader {
            source,
            block: Vec::with_capacity(BYTES),
            samples: Vec::new(),
            read: 0,
        }
    }
}

impl<R: Read> Read for PlanarReader<R> {
    /// Of a block that is cut at the end, those samples come of which both parts are there.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.samples.len() {
            let wanted = (BYTES - self.block.len()) as u64;
            (&mut self.source)
                .take(wanted)
                .read_to_end(&mut self.block)?;
            let (real, imaginary) = self.block.split_at(self.block.len().min(BYTES / 2));
            let parts = real.chunks_exact(PART).zip(imaginary.chunks_exact(PART));
            self.samples.clear();
            for (re, im) in parts {
                self.samples.extend_from_slice(re);
                self.samples.extend_from_slice(im);
            }
            self.block.clear();
            self.read = 0;
        }
        let count = buffer.len().min(self.samples.len() - self.read);
        buffer[..count].copy_from_slice(&self.samples[self.read..][..count]);
        self.read += count;
        Ok(count)
    }
}

/// Makes such blocks of `cf32`.
#[derive(Debug)]
pub struct PlanarWriter<W> {
    sink: W,
    samples: Vec<u8>,
}

impl<W: Write> PlanarWriter<W> {
    /// Writes blocks into a sink.
    pub fn new(sink: W) -> PlanarWriter<W> {
        PlanarWriter {
            sink,
            samples: Vec::with_capacity(BYTES),
        }
    }

    fn block(&mut self) -> io::Result<()> {
        let parts = self.samples.as_chunks::<{ 2 * PART }>().0;
        let mut block = Vec::with_capacity(BYTES);
        block.extend(parts.iter().flat_map(|sample| &sample[..PART]));
        block.extend(parts.iter().flat_map(|sample| &sample[PART..]));
        self.samples.clear();
        self.sink.write_all(&block)
    }
}

impl<W: Write> Write for PlanarWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(BYTES - self.samples.len());
        self.samples.extend_from_slice(&bytes[..count]);
        if self.samples.len() == BYTES {
            self.block()?;
        }
        Ok(count)
    }

    /// Fills the block that is begun with zeros.
    fn flush(&mut self) -> io::Result<()> {
        if !self.samples.is_empty() {
            self.samples.resize(BYTES, 0);
            self.block()?;
        }
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::samples::tests::Faltering;
    use super::*;

    #[test]
    fn a_block_has_real_parts_first() {
        let mut blocks = Vec::new();
        let mut writer = PlanarWriter::new(&mut blocks);
        let sample = |n: u8| [n, 0, 0, 0, n, 1, 1, 1];
        for n in 0..121 {
            writer.write_all(&sample(n)).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        assert_eq!(blocks.len(), 2 * 960);
        assert_eq!(blocks[..8], [0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(blocks[480..488], [0, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(blocks[960..968], [120, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(blocks[1440..1444], [120, 1, 1, 1]);
    }

    #[test]
    fn an_error_of_the_source_costs_no_bytes() {
        let blocks: Vec<u8> = (0..2 * BYTES).map(|at| at as u8).collect();
        let mut expected = Vec::new();
        PlanarReader::new(&blocks[..])
            .read_to_end(&mut expected)
            .unwrap();
        for cut in [0, 6, BYTES / 2, BYTES + 700] {
            let (before, behind) = blocks.split_at(cut);
            let mut reader = PlanarReader::new(Faltering(vec![before, behind]));
            let mut bytes = Vec::new();
            for _ in 0..2 {
                let error = reader.read_to_end(&mut bytes).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            }
            assert!(bytes == expected, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn samples_come_back(bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in 0usize..960) {
            let whole = bytes.len() / 8 * 8;
            let mut blocks = Vec::new();
            let mut writer = PlanarWriter::new(&mut blocks);
            writer.write_all(&bytes[..whole]).unwrap();
            writer.flush().unwrap();
            drop(writer);
            let mut back = Vec::new();
            PlanarReader::new(&blocks[..]).read_to_end(&mut back).unwrap();
            prop_assert_eq!(&back[..whole], &bytes[..whole]);
            prop_assert_eq!(back.len(), whole.next_multiple_of(960));
            let kept = blocks.len().saturating_sub(cut);
            let mut rest = Vec::new();
            PlanarReader::new(&blocks[..kept]).read_to_end(&mut rest).unwrap();
            // Whole blocks, and of the cut one the samples that have both parts.
            let samples = kept / 960 * 120 + (kept % 960).saturating_sub(480) / 4;
            prop_assert_eq!(rest.len(), 8 * samples);
            prop_assert_eq!(&back[..rest.len()], &rest[..]);
        }
    }
}
