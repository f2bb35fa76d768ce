//! Streaming reader over pcap and pcapng.

mod block;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};

use block::{Interface, Step, step};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{PcapBlockOwned, PcapError, create_reader};

use super::{CaptureError, ETHERNET, link_type_name};

/// Memory that a reader starts with.
const BUFFER: usize = 1 << 20;
/// Memory that it grows to at most, for an uncommonly large record.
const MAX_BUFFER: usize = 1 << 24;
/// Bytes of a pcap file header, the shortest beginning of a capture.
const MIN_HEADER: usize = 24;

/// One frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Place in the file, from 0.
    pub index: u64,
    /// UNIX time in nanoseconds; 0 where the file has none.
    pub time_ns: u64,
    /// Length on the wire in bytes.
    pub orig_len: usize,
    /// What was recorded of it.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Whether the snapshot length cut the frame.
    pub fn is_cut(&self) -> bool {
        self.orig_len > self.bytes.len()
    }
}

/// Reads the frames of a pcap or pcapng file in order, in bounded memory.
pub struct CaptureReader {
    path: String,
    blocks: Box<dyn PcapReaderIterator + Send>,
    failure: Arc<Mutex<Option<io::Error>>>,
    total: u64,
    pcapng: bool,
    big_endian: bool,
    nanoseconds: bool,
    interfaces: Vec<Interface>,
    frames: u64,
    /// Bytes of the last block, still in the buffer because its frame was lent out.
    lent: usize,
    truncated: bool,
}

impl CaptureReader {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let failed = |source| CaptureError::Open {
            path: name.clone(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
        Self::from_read(&name, file, total)
    }

    /// Reads from anything. `name` stands in messages, `total` is the length in bytes where known,
    /// else 0.
    pub fn from_read(
        name: &str,
        mut input: impl Read + Send + 'static,
        total: u64,
    ) -> Result<Self, CaptureError> {
        let path = name.to_owned();
        let mut head = vec![0; BUFFER];
        let len = read_full(&mut input, &mut head).map_err(|source| CaptureError::Read {
            path: path.clone(),
            offset: 0,
            source,
        })?;
        head.truncate(len);
        let pcapng = check_magic(&head, &path)?;
        // Sections of pcapng say it each for itself.
        let big_endian = !pcapng && head.first() == Some(&0xa1);
        if pcapng && section_length(&head) > len && len < BUFFER {
            return Err(CaptureError::HeaderCut { path, len });
        }
        let failure = Arc::new(Mutex::new(None));
        let source = Source {
            head: io::Cursor::new(head),
            input,
            failure: Arc::clone(&failure),
        };
        let blocks = create_reader(BUFFER, source).map_err(|error| match error {
            PcapError::Incomplete(_) | PcapError::UnexpectedEof => CaptureError::HeaderCut {
                path: path.clone(),
                len,
            },
            _ => CaptureError::Corrupt {
                path: path.clone(),
                offset: 0,
                frames: 0,
                what: "the file header is malformed",
            },
        })?;
        let mut reader = Self {
            path,
            blocks,
            failure,
            total,
            pcapng,
            big_endian,
            nanoseconds: false,
            interfaces: Vec::new(),
            frames: 0,
            lent: 0,
            truncated: false,
        };
        if !pcapng {
            reader.file_header()?;
        }
        Ok(reader)
    }

    /// The next frame; `None` at the end.
    ///
    /// A file that ends within a record gives all frames before it; see
    /// [`truncated`](Self::truncated).
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        self.blocks.consume_noshift(std::mem::take(&mut self.lent));
        while let Some((block_len, step)) = self.next_step()? {
            match step {
                Step::Frame(found) => {
                    self.lent = block_len;
                    let index = self.frames;
                    self.frames += 1;
                    let bytes = &self.blocks.data()[found.at..found.at + found.len];
                    return Ok(Some(Frame {
                        index,
                        time_ns: found.time_ns,
                        orig_len: found.orig_len,
                        bytes,
                    }));
                }
                Step::Corrupt(what) => return Err(self.corrupt(what)),
                Step::LinkType(link_type) => return Err(self.wrong_link_type(link_type)),
                Step::Section { big_endian } => {
                    self.big_endian = big_endian;
                    self.interfaces.clear();
                }
                Step::Interface(interface) => self.interfaces.push(interface),
                Step::Skip => {}
            }
            self.blocks.consume_noshift(block_len);
        }
        Ok(None)
    }

    /// Whether the file ended within a record.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Bytes consumed, and bytes in the file.
    pub fn progress(&self) -> (u64, u64) {
        let consumed = self.blocks.consumed() as u64;
        (consumed, self.total.max(consumed))
    }

    /// Format of the file.
    pub fn format(&self) -> &'static str {
        match (self.pcapng, self.nanoseconds) {
            (true, _) => "pcapng",
            (false, true) => "pcap with nanoseconds",
            (false, false) => "pcap",
        }
    }

    fn file_header(&mut self) -> Result<(), CaptureError> {
        let (len, link_type, nanoseconds) = match self.blocks.next() {
            Ok((len, PcapBlockOwned::LegacyHeader(header))) => (
                len,
                // The upper bits tell the length of the frame check sequence.
                header.network.0 as u16,
                header.is_nanosecond_precision(),
            ),
            _ => return Err(self.corrupt("the file header is malformed")),
        };
        self.blocks.consume_noshift(len);
        self.nanoseconds = nanoseconds;
        if link_type != ETHERNET {
            return Err(self.wrong_link_type(link_type));
        }
        Ok(())
    }

    /// The next block's length and meaning, without consuming it; `None` at the end.
    fn next_step(&mut self) -> Result<Option<(usize, Step)>, CaptureError> {
        loop {
            if let Some(length) = self.foreign_block()? {
                if !self.pass_over(length)? {
                    self.truncated = true;
                    return Ok(None);
                }
                continue;
            }
            let before = self.blocks.data().len();
            let stopped = match self.blocks.next() {
                Ok((len, block)) => {
                    return Ok(Some((
                        len,
                        step(
                            &block,
                            len,
                            &self.interfaces,
                            self.big_endian,
                            self.nanoseconds,
                        ),
                    )));
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => Stopped::Incomplete,
                Err(PcapError::BufferTooSmall) => Stopped::Full,
                Err(PcapError::UnexpectedEof) => Stopped::End,
                Err(_) => return Err(self.corrupt("the record is malformed")),
            };
            match stopped {
                Stopped::End if self.block_is_whole() => {
                    return Err(self.corrupt("the block's inner lengths run past its end"));
                }
                Stopped::End if self.claimed().is_some_and(|bytes| bytes > MAX_BUFFER) => {
                    return Err(self.corrupt("the record claims to be longer than any frame"));
                }
                Stopped::End => {
                    self.truncated = true;
                    return Ok(None);
                }
                Stopped::Full => self.grow()?,
                Stopped::Incomplete => {
                    if self.blocks.refill().is_err() {
                        return Err(self.read_failure());
                    }
                    // Full, though the parser asks for more.
                    if self.blocks.data().len() == before && !self.blocks.reader_exhausted() {
                        self.grow()?;
                    }
                }
            }
        }
    }

    fn grow(&mut self) -> Result<(), CaptureError> {
        if self.block_is_whole() {
            return Err(self.corrupt("the block's inner lengths run past its end"));
        }
        let mut size = BUFFER;
        while !self.blocks.grow(size) {
            size *= 2;
            if size > MAX_BUFFER {
                return Err(self.corrupt("the record claims to be longer than any frame"));
            }
        }
        if self.blocks.refill().is_err() {
            return Err(self.read_failure());
        }
        Ok(())
    }

    /// Passes over a block of so many bytes, however few of them the buffer holds; false if the
    /// input ends first.
    fn pass_over(&mut self, bytes: usize) -> Result<bool, CaptureError> {
        let begin = self.blocks.consumed();
        // The length is also the last word.
        let mut left = bytes - 4;
        loop {
            let here = left.min(self.blocks.data().len());
            self.blocks.consume_noshift(here);
            left -= here;
            if left == 0
                && let Some(last) = self.block_word(0)
            {
                if last as usize != bytes {
                    return Err(self.corrupt_at(begin, "the block's two lengths differ"));
                }
                self.blocks.consume_noshift(4);
                return Ok(true);
            }
            let before = self.blocks.data().len();
            if self.blocks.refill().is_err() {
                return Err(self.read_failure());
            }
            if self.blocks.data().len() == before {
                break;
            }
        }
        match bytes > MAX_BUFFER {
            true => Err(self.corrupt_at(begin, "the block claims to be longer than the file")),
            false => Ok(false),
        }
    }

    /// Length of the pcapng block at hand if it is of a kind that says nothing about frames.
    ///
    /// Such a block is passed over unread: the parser would look inside and trust lengths there.
    fn foreign_block(&self) -> Result<Option<usize>, CaptureError> {
        let (Some(kind), Some(length)) = (self.block_word(0), self.block_word(4)) else {
            return Ok(None);
        };
        if !self.pcapng || READ_BLOCKS.contains(&kind) {
            return Ok(None);
        }
        if length < MIN_BLOCK {
            return Err(self.corrupt("the block is shorter than its own header"));
        }
        if !length.is_multiple_of(4) {
            return Err(self.corrupt("the block's length is no multiple of 4"));
        }
        Ok(Some(length as usize))
    }

    /// Whether the pcapng block at hand is all in the buffer, so that more bytes cannot complete
    /// it.
    fn block_is_whole(&self) -> bool {
        let available = self.blocks.data().len();
        self.pcapng
            && self
                .block_word(4)
                .is_some_and(|length| length as usize <= available)
    }

    /// Bytes that the block or record at hand is to have, its header aside.
    fn claimed(&self) -> Option<usize> {
        let at = if self.pcapng { 4 } else { 8 };
        self.block_word(at).map(|bytes| bytes as usize)
    }

    /// A word of the block or record at hand.
    fn block_word(&self, at: usize) -> Option<u32> {
        let data = self.blocks.data();
        let word = *data.get(at..)?.first_chunk()?;
        // A section says its own, behind its length.
        let big_endian = match self.pcapng && data.starts_with(&SECTION) {
            true => section_order(data)?,
            false => self.big_endian,
        };
        Some(match big_endian {
            true => u32::from_be_bytes(word),
            false => u32::from_le_bytes(word),
        })
    }

    fn corrupt(&self, what: &'static str) -> CaptureError {
        self.corrupt_at(self.blocks.consumed(), what)
    }

    fn corrupt_at(&self, offset: usize, what: &'static str) -> CaptureError {
        CaptureError::Corrupt {
            path: self.path.clone(),
            offset: offset as u64,
            frames: self.frames,
            what,
        }
    }

    fn wrong_link_type(&self, link_type: u16) -> CaptureError {
        CaptureError::LinkType {
            path: self.path.clone(),
            link_type,
            name: link_type_name(link_type),
        }
    }

    fn read_failure(&self) -> CaptureError {
        let mut failure = ground::lock(&self.failure);
        CaptureError::Read {
            path: self.path.clone(),
            offset: self.blocks.consumed() as u64,
            source: failure
                .take()
                .unwrap_or_else(|| io::Error::other("read failed")),
        }
    }
}

/// pcapng blocks that are read: section header, interface description, simple and enhanced packet.
const READ_BLOCKS: [u32; 4] = [0x0a0d_0d0a, 1, 3, 6];
/// How a section begins, in either byte order.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Bytes of a pcapng block without content.
const MIN_BLOCK: u32 = 12;

/// Why the parser stopped.
enum Stopped {
    Incomplete,
    Full,
    End,
}

/// Tells pcapng from pcap, and both from anything else.
fn check_magic(head: &[u8], path: &str) -> Result<bool, CaptureError> {
    let path = path.to_owned();
    let Some(magic) = head.first_chunk::<4>() else {
        return Err(match head.len() {
            0 => CaptureError::Empty { path },
            len => CaptureError::HeaderCut { path, len },
        });
    };
    let pcapng = match magic {
        &SECTION => true,
        [0xd4, 0xc3, 0xb2, 0xa1] | [0xa1, 0xb2, 0xc3, 0xd4] => false,
        [0x4d, 0x3c, 0xb2, 0xa1] | [0xa1, 0xb2, 0x3c, 0x4d] | [0x34, 0xcd, 0xb2, 0xa1] => false,
        other => {
            let [a, b, c, d] = other;
            return Err(CaptureError::NotACapture {
                path,
                magic: format!("{a:02x} {b:02x} {c:02x} {d:02x}"),
                way_out: way_out(*other),
            });
        }
    };
    if head.len() < MIN_HEADER {
        let len = head.len();
        return Err(CaptureError::HeaderCut { path, len });
    }
    Ok(pcapng)
}

/// Length of a pcapng file's first block, whose byte order its magic tells.
fn section_length(head: &[u8]) -> usize {
    let length = head.get(4..8).and_then(|b| b.first_chunk::<4>());
    match (length, section_order(head)) {
        (Some(length), Some(true)) => u32::from_be_bytes(*length) as usize,
        (Some(length), _) => u32::from_le_bytes(*length) as usize,
        _ => usize::MAX,
    }
}

/// Whether a section is in big-endian order, as its magic tells.
fn section_order(section: &[u8]) -> Option<bool> {
    let magic = section.get(8..12)?;
    Some(magic == [0x1a, 0x2b, 0x3c, 0x4d])
}

fn way_out(magic: [u8; 4]) -> &'static str {
    match magic {
        [0x1f, 0x8b, ..] => "it is compressed: decompress it with gunzip first",
        [0x28, 0xb5, 0x2f, 0xfd] => "it is compressed: decompress it with zstd -d first",
        [0xfd, b'7', b'z', b'X'] => "it is compressed: decompress it with xz -d first",
        [b'B', b'Z', b'h', _] => "it is compressed: decompress it with bunzip2 first",
        _ => "give a pcap or pcapng file, as tcpdump -w or karoo dsim --output make them",
    }
}

/// Fills the buffer unless the input ends first.
fn read_full(input: &mut impl Read, mut buffer: &mut [u8]) -> io::Result<usize> {
    let mut total = 0;
    while !buffer.is_empty() {
        match input.read(buffer) {
            Ok(0) => break,
            Ok(n) => {
                total += n;
                buffer = &mut buffer[n..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Reads the bytes that were looked at first, then the input; keeps the error that the parser
/// drops.
struct Source<R> {
    head: io::Cursor<Vec<u8>>,
    input: R,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.head.read(buffer)?;
        if len == buffer.len() {
            return Ok(len);
        }
        match read_full(&mut self.input, &mut buffer[len..]) {
            Ok(more) => Ok(len + more),
            Err(error) => {
                let kind = error.kind();
                *ground::lock(&self.failure) = Some(error);
                Err(kind.into())
            }
        }
    }
}
