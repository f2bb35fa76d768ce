//! Streams of blocks: of each of some ports a block of samples, of complex ones all real parts of
//! the block and then all imaginary ones. Programs that Laminar generates have such streams.
//!
//! An element of a stream is a block of each port, in their order, as a C compiler lays out a
//! structure under `#pragma pack(4)`: a block begins at a multiple of the bytes of its numbers, or
//! of 4 if these have more, and so does the next element.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use num_integer::{gcd, lcm};

use super::stop::Stop;
use crate::graph::{Graph, NodeId};
use crate::interpreter::periods;
use crate::types::Type;

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;

/// The most bytes to whose multiples blocks are aligned.
const PACK: usize = 4;

/// Bytes that are read at once, unless an element has more.
const AT_ONCE: usize = 1 << 16;

/// Why there is no layout of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockLayoutError {
    /// A block has no bytes: that of the port with this number, from 0 on.
    Empty(usize),
    /// An element has more than [`BlockLayout::MAX_BYTES`]: so many, as far as they can be counted.
    Large(usize),
}

impl fmt::Display for BlockLayoutError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            BlockLayoutError::Empty(port) => {
                write!(
                    f,
                    "the block of port {port} has no samples: give one at least"
                )
            }
            BlockLayoutError::Large(bytes) => {
                let most = BlockLayout::MAX_BYTES;
                write!(
                    f,
                    "an element has {bytes} bytes, more than {most}: give less"
                )
            }
        }
    }
}

impl std::error::Error for BlockLayoutError {}

/// How blocks of samples of some ports lie in an element of their stream.
///
/// ```
/// use karoo_flow::Type;
/// use karoo_flow::adapters::{BlockLayout, Stop};
/// use std::io::Read;
///
/// // Two complex samples and two real ones: re re im im, then the real ones.
/// let ports = [(Type::F32.complex(), 2), (Type::F32, 2)];
/// let layout = BlockLayout::new(ports).unwrap();
/// assert_eq!(layout.bytes(), 24);
/// let element = [1f32, 2.0, 10.0, 20.0, 7.0, 8.0].map(f32::to_le_bytes).concat();
/// let stream = Box::new(std::io::Cursor::new(element));
/// let mut readers = layout.readers(stream, &Stop::new());
/// let mut samples = [0; 16];
/// readers[0].read_exact(&mut samples).unwrap();
/// assert_eq!(samples[4..8], 10f32.to_le_bytes());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    planes: Vec<Plane>,
    bytes: usize,
}

/// Where the block of a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plane {
    /// Bytes in front of it.
    at: usize,
    /// Bytes of one real number.
    number: usize,
    complex: bool,
    /// Bytes of the block.
    bytes: usize,
}

impl BlockLayout {
    /// The most bytes of an element.
    pub const MAX_BYTES: usize = 1 << 28;

    /// Blocks of ports with these types, each of so many samples.
    ///
    /// # Errors
    ///
    /// A block without samples, or an element of more than
    /// [`MAX_BYTES`](BlockLayout::MAX_BYTES).
    pub fn new(
        ports: impl IntoIterator<Item = (Type, usize)>,
    ) -> Result<BlockLayout, BlockLayoutError> {
        let (mut planes, mut end, mut widest) = (Vec::new(), 0usize, 1);
        for (port, (kind, samples)) in ports.into_iter().enumerate() {
            let number = kind.scalar.bytes();
            let aligned = number.min(PACK);
            widest = widest.max(aligned);
            let at = end.next_multiple_of(aligned);
            let bytes = kind.bytes().saturating_mul(samples);
            if bytes == 0 {
                return Err(BlockLayoutError::Empty(port));
            }
            end = at.saturating_add(bytes);
            if end > BlockLayout::MAX_BYTES {
                return Err(BlockLayoutError::Large(end));
            }
            planes.push(Plane {
                at,
                number,
                complex: kind.complex,
                bytes,
            });
        }
        let bytes = end.next_multiple_of(widest);
        Ok(BlockLayout { planes, bytes })
    }

    /// Blocks of ports of a graph, in this order: of so many `samples` of the ports with the
    /// highest rate among them, and of others as many less as their rates are lower.
    ///
    /// # Errors
    ///
    /// Why there are no such blocks, in words.
    pub fn of(graph: &Graph, ports: &[NodeId], samples: usize) -> Result<BlockLayout, String> {
        let periods = periods(graph)?;
        let period = |id: &NodeId| periods.get(id.index()).copied().unwrap_or(1);
        let least = ports.iter().map(period).min().unwrap_or(1);
        let mut whole = 1;
        for id in ports {
            let one = period(id) / gcd(period(id), least);
            whole = lcm(whole, u128::from(one));
            // An element would have more bytes, and a few such rates more than can be counted.
            if whole > BlockLayout::MAX_BYTES as u128 {
                return Err(format!(
                    "a block of {samples}: each port has whole samples only in blocks of more \
                     than {}, as their rates are: give each port an address of its own",
                    BlockLayout::MAX_BYTES
                ));
            }
        }
        if !(samples as u128).is_multiple_of(whole) {
            return Err(format!(
                "a block of {samples}: must be a multiple of {whole}, so that each port has whole \
                 samples in it"
            ));
        }
        let kinds = ports.iter().map(|id| {
            let node = graph.node(*id);
            let kind = node.outputs.first().or(node.inputs.first());
            let ticks = samples as u128 * u128::from(least);
            let own = ticks / u128::from(period(id));
            (kind.copied().unwrap_or(Type::U8), own as usize)
        });
        BlockLayout::new(kinds).map_err(|error| format!("a block of {samples}: {error}"))
    }

    /// Bytes of an element.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Readers of the samples of each port, complex numbers interleaved. Elements are read when the
    /// first port needs them, as many as it asks for and as there are, and no byte behind them. A
    /// stream that ends within an element is an error, unless `stop` is set.
    pub fn readers(self, reader: Box<dyn Read + Send>, stop: &Stop) -> Vec<Box<dyn Read + Send>> {
        let ports = self.planes.len();
        let at_once = (AT_ONCE / self.bytes.max(1)).max(1);
        let source = BlockSource {
            elements: vec![0; at_once * self.bytes],
            filled: 0,
            samples: self.planes.iter().map(|_| Samples::default()).collect(),
            layout: self,
            reader,
            stop: stop.clone(),
            over: false,
        };
        let source = Arc::new(Mutex::new(source));
        let port = |port| -> Box<dyn Read + Send> {
            let source = source.clone();
            Box::new(PortReader { source, port })
        };
        (0..ports).map(port).collect()
    }

    /// Writers of the samples of each port, complex numbers interleaved. Elements are written when
    /// all ports have their blocks of them, all of those together. When all samples are written,
    /// the first writer is to be flushed, as often as `writer`: it fills up what is left with zeros
    /// to an element. Others need no flush.
    pub fn writers(self, writer: Box<dyn Write>) -> Vec<Box<dyn Write>> {
        let ports = self.planes.len();
        let sink = BlockSink {
            elements: Vec::new(),
            samples: self.planes.iter().map(|_| Samples::default()).collect(),
            layout: self,
            writer,
        };
        let sink = Rc::new(RefCell::new(sink));
        let port = |port| -> Box<dyn Write> {
            let sink = sink.clone();
            Box::new(PortWriter { sink, port })
        };
        (0..ports).map(port).collect()
    }
}

/// Samples of a port that wait for their reader, or for their block.
#[derive(Default)]
struct Samples {
    bytes: Vec<u8>,
    /// Bytes that are taken already.
    taken: usize,
}

impl Samples {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Room for more of them behind those that are there.
    fn more(&mut self, bytes: usize) -> &mut [u8] {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let end = self.bytes.len();
        self.bytes.resize(end + bytes, 0);
        &mut self.bytes[end..]
    }
}

/// Puts real and imaginary parts together.
fn weave<const N: usize>(block: &[u8], samples: &mut [u8]) {
    let (parts, _) = block.as_chunks::<N>();
    let (real, imaginary) = parts.split_at(parts.len() / 2);
    let (numbers, _) = samples.as_chunks_mut::<N>();
    let (pairs, _) = numbers.as_chunks_mut::<2>();
    for ((pair, real), imaginary) in pairs.iter_mut().zip(real).zip(imaginary) {
        *pair = [*real, *imaginary];
    }
}

/// Takes them apart.
fn part<const N: usize>(samples: &[u8], block: &mut [u8]) {
    let (numbers, _) = samples.as_chunks::<N>();
    let (pairs, _) = numbers.as_chunks::<2>();
    let (parts, _) = block.as_chunks_mut::<N>();
    let (real, imaginary) = parts.split_at_mut(pairs.len());
    for ((pair, real), imaginary) in pairs.iter().zip(real).zip(imaginary) {
        [*real, *imaginary] = *pair;
    }
}

impl Plane {
    fn of<'a>(&self, element: &'a [u8]) -> &'a [u8] {
        &element[self.at..][..self.bytes]
    }

    fn gather(&self, element: &[u8], samples: &mut [u8]) {
        let block = self.of(element);
        match (self.complex, self.number) {
            (false, _) => samples.copy_from_slice(block),
            (true, 1) => weave::<1>(block, samples),
            (true, 2) => weave::<2>(block, samples),
            (true, 4) => weave::<4>(block, samples),
            (true, _) => weave::<8>(block, samples),
        }
    }

    fn scatter(&self, samples: &[u8], element: &mut [u8]) {
        let block = &mut element[self.at..][..self.bytes];
        match (self.complex, self.number) {
            (false, _) => block.copy_from_slice(samples),
            (true, 1) => part::<1>(samples, block),
            (true, 2) => part::<2>(samples, block),
            (true, 4) => part::<4>(samples, block),
            (true, _) => part::<8>(samples, block),
        }
    }
}

/// The input that several ports share.
struct BlockSource {
    layout: BlockLayout,
    reader: Box<dyn Read + Send>,
    /// Elements that are being read, as far as they are: the last one may not be whole.
    elements: Vec<u8>,
    filled: usize,
    samples: Vec<Samples>,
    stop: Stop,
    over: bool,
}

impl BlockSource {
    /// Reads an element, or some of up to `wanted` if there are more; false at the end.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        let one = self.layout.bytes;
        let end = wanted.saturating_mul(one).clamp(one, self.elements.len());
        while self.filled < one && !self.over {
            match self.reader.read(&mut self.elements[self.filled..end]) {
                Ok(0) => self.over = true,
                Ok(more) => self.filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let whole = self.filled - self.filled % one;
        for (plane, samples) in self.layout.planes.iter().zip(&mut self.samples) {
            let blocks = samples.more(whole / one * plane.bytes);
            let blocks = blocks.chunks_exact_mut(plane.bytes);
            for (element, block) in self.elements[..whole].chunks_exact(one).zip(blocks) {
                plane.gather(element, block);
            }
        }
        if whole > 0 {
            self.elements.copy_within(whole..self.filled, 0);
            self.filled -= whole;
            return Ok(true);
        }
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 || self.stop.is_set() {
            return Ok(false);
        }
        Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            format!("the stream ends {filled} bytes into an element of {one}: give whole blocks"),
        ))
    }
}

/// The samples of one of the ports.
struct PortReader {
    source: Arc<Mutex<BlockSource>>,
    port: usize,
}

impl Read for PortReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.is_empty() {
            return Ok(0);
        }
        let wanted = bytes.len().div_ceil(source.layout.planes[self.port].bytes);
        if source.samples[self.port].rest().is_empty() && !source.fill(wanted)? {
            return Ok(0);
        }
        let samples = &mut source.samples[self.port];
        let count = bytes.len().min(samples.rest().len());
        bytes[..count].copy_from_slice(&samples.rest()[..count]);
        samples.taken += count;
        Ok(count)
    }
}

/// The output that several ports share.
struct BlockSink {
    layout: BlockLayout,
    writer: Box<dyn Write>,
    /// Elements that are written together. What is between their blocks stays 0.
    elements: Vec<u8>,
    samples: Vec<Samples>,
}

impl BlockSink {
    /// Writes what is whole, at once: a system call for each element would take longer than all
    /// else where elements are small.
    fn send(&mut self) -> io::Result<()> {
        let planes = &self.layout.planes;
        let whole = planes.iter().zip(&self.samples);
        let whole = whole.map(|(plane, samples)| samples.rest().len() / plane.bytes);
        let whole = whole.min().unwrap_or(0);
        if whole == 0 {
            return Ok(());
        }
        self.elements.resize(whole * self.layout.bytes, 0);
        for (plane, samples) in planes.iter().zip(&mut self.samples) {
            let elements = self.elements.chunks_exact_mut(self.layout.bytes);
            for (element, block) in elements.zip(samples.rest().chunks_exact(plane.bytes)) {
                plane.scatter(block, element);
            }
            samples.taken += whole * plane.bytes;
        }
        self.writer.write_all(&self.elements)
    }

    /// Fills up what has begun.
    fn end(&mut self) -> io::Result<()> {
        if self.samples.iter().all(|samples| samples.rest().is_empty()) {
            return Ok(());
        }
        for (plane, samples) in self.layout.planes.iter().zip(&mut self.samples) {
            let missing = plane.bytes.saturating_sub(samples.rest().len());
            samples.more(missing);
        }
        self.send()
    }
}

/// The samples of one of the ports.
struct PortWriter {
    sink: Rc<RefCell<BlockSink>>,
    port: usize,
}

impl Write for PortWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sink = self.sink.borrow_mut();
        sink.samples[self.port]
            .more(bytes.len())
            .copy_from_slice(bytes);
        sink.send()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.port > 0 {
            return Ok(());
        }
        let mut sink = self.sink.borrow_mut();
        sink.end()?;
        sink.writer.flush()
    }
}
