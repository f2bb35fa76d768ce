//! Both ends of a queue as an executor uses them: signals into blocks, and blocks into signals.

use crate::queue::{Consumer, MarkedConsumer, MarkedProducer, Producer, marked, queue};
use crate::run::Transfer;

/// The end that writes.
pub struct BlockWriter {
    way: Writer,
    transfer: Transfer,
    signals: Vec<u64>,
    /// Whether signals are copied already that the queue had no room for.
    copied: bool,
}

enum Writer {
    Counts(Producer<u64>),
    Marks(MarkedProducer<u64>),
}

/// The end that reads.
pub struct BlockReader {
    way: Reader,
    transfer: Transfer,
}

enum Reader {
    Counts(Consumer<u64>),
    Marks(MarkedConsumer<u64>),
}

/// The ends of a queue of so many blocks of so many words, which pass it in this way; none if there
/// is no memory for it.
pub fn block_ends(
    transfer: Transfer,
    words: usize,
    blocks: usize,
) -> Option<(BlockWriter, BlockReader)> {
    let (writer, reader) = match transfer.marks() {
        true => {
            let (writer, reader) = marked(blocks, words, &[]).ok()?;
            (Writer::Marks(writer), Reader::Marks(reader))
        }
        false => {
            let (writer, reader) = queue(blocks, words, &[]).ok()?;
            (Writer::Counts(writer), Reader::Counts(reader))
        }
    };
    let writer = BlockWriter {
        way: writer,
        transfer,
        signals: vec![1; words],
        copied: false,
    };
    let reader = BlockReader {
        way: reader,
        transfer,
    };
    Some((writer, reader))
}

impl BlockWriter {
    /// Writes a block if there is room. `own` is a block of this end, for ways that copy.
    pub fn write(&mut self, own: &mut [u64]) -> bool {
        if self.transfer.copies() {
            if !self.copied {
                own.copy_from_slice(&self.signals);
            }
            let is_written = match (&mut self.way, self.transfer) {
                (Writer::Marks(writer), _) => writer.push(own),
                (Writer::Counts(writer), Transfer::Streaming) => writer.push_streaming(own) > 0,
                (Writer::Counts(writer), _) => writer.push(own) > 0,
            };
            self.copied = !is_written;
            return is_written;
        }
        match &mut self.way {
            Writer::Marks(writer) => writer.reserve().is_some_and(|mut grant| {
                grant.block().copy_from_slice(&self.signals);
                grant.commit();
                true
            }),
            Writer::Counts(writer) => writer.reserve(1).is_some_and(|mut grant| {
                grant.slices().0.copy_from_slice(&self.signals);
                grant.commit(1);
                true
            }),
        }
    }
}

impl BlockReader {
    /// Reads a block into `signals` if there is one. `own` as for the other end.
    pub fn read(&mut self, own: &mut [u64], signals: &mut [u64]) -> bool {
        if self.transfer.copies() {
            let is_read = match &mut self.way {
                Reader::Marks(reader) => reader.pop(own),
                Reader::Counts(reader) => reader.pop(own) > 0,
            };
            if is_read {
                signals.copy_from_slice(own);
            }
            return is_read;
        }
        match &mut self.way {
            Reader::Marks(reader) => reader.peek().is_some_and(|view| {
                signals.copy_from_slice(view.block());
                view.release();
                true
            }),
            Reader::Counts(reader) => reader.peek(1).is_some_and(|view| {
                signals.copy_from_slice(view.slices().0);
                view.release(1);
                true
            }),
        }
    }
}
