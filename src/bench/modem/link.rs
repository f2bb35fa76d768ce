//! Queues of sample blocks, by the way that a block passes.

use clap::ValueEnum;
use karoo_flow::queue::{Consumer, MarkedConsumer, MarkedProducer, Producer, marked, queue};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

/// How blocks pass from thread to thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transfer {
    /// Worked on in the slots of a ring whose ends keep copies of each other's counts
    #[default]
    InPlace,
    /// Through such a ring, with a block of its own at each end
    Copying,
    /// Worked on in the slots of a ring, each of which tells whether it is full
    Marked,
    /// Through such a ring, with a block of its own at each end
    MarkedCopying,
}

impl Transfer {
    /// Name of the transfer on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Transfer::InPlace => "in-place",
            Transfer::Copying => "copying",
            Transfer::Marked => "marked",
            Transfer::MarkedCopying => "marked-copying",
        }
    }

    /// Whether each end has a block of its own.
    fn copies(self) -> bool {
        matches!(self, Transfer::Copying | Transfer::MarkedCopying)
    }
}

enum Ring {
    Counted(Producer<Complex32>),
    Marked(MarkedProducer<Complex32>),
}

enum Slots {
    Counted(Consumer<Complex32>),
    Marked(MarkedConsumer<Complex32>),
}

/// The end that writes blocks.
pub(super) struct Sender {
    ring: Ring,
}

/// The end that reads blocks.
pub(super) struct Taker {
    slots: Slots,
    own: Option<Vec<Complex32>>,
}

/// A queue of `slots` blocks.
pub(super) fn link(
    transfer: Transfer,
    slots: usize,
    block: usize,
) -> Result<(Sender, Taker), String> {
    let (ring, slots) = match transfer {
        Transfer::InPlace | Transfer::Copying => {
            let (producer, consumer) = queue(slots, block, &[])?;
            (Ring::Counted(producer), Slots::Counted(consumer))
        }
        Transfer::Marked | Transfer::MarkedCopying => {
            let (producer, consumer) = marked(slots, block, &[])?;
            (Ring::Marked(producer), Slots::Marked(consumer))
        }
    };
    let own = transfer.copies().then(|| vec![Complex32::default(); block]);
    Ok((Sender { ring }, Taker { slots, own }))
}

impl Sender {
    /// Whether there is room for a block.
    pub fn has_room(&mut self) -> bool {
        match &mut self.ring {
            Ring::Counted(producer) => producer.room_for(1),
            Ring::Marked(producer) => producer.reserve().is_some(),
        }
    }

    /// Writes a block, if there is room.
    pub fn write(&mut self, block: &[Complex32]) -> bool {
        match &mut self.ring {
            Ring::Counted(producer) => producer.push(block) > 0,
            Ring::Marked(producer) => producer.push(block),
        }
    }
}

impl Taker {
    /// Whether there is a block.
    pub fn has_block(&mut self) -> bool {
        match &mut self.slots {
            Slots::Counted(consumer) => consumer.holds(1),
            Slots::Marked(consumer) => consumer.has_block(),
        }
    }

    /// Whether the sender is gone and all that it wrote was read.
    pub fn has_ended(&mut self) -> bool {
        let gone = match &self.slots {
            Slots::Counted(consumer) => consumer.is_abandoned(),
            Slots::Marked(consumer) => consumer.is_abandoned(),
        };
        gone && !self.has_block()
    }

    /// Does something with the next block, if there is one: in its slot, or in a copy.
    pub fn read(&mut self, work: impl FnOnce(&[Complex32])) -> bool {
        if let Some(own) = &mut self.own {
            let came = match &mut self.slots {
                Slots::Counted(consumer) => consumer.pop(own) > 0,
                Slots::Marked(consumer) => consumer.pop(own),
            };
            if came {
                work(own);
            }
            return came;
        }
        match &mut self.slots {
            Slots::Counted(consumer) => consumer.peek(1).map(|view| {
                // One block is never cut by the ring's end.
                work(view.slices().0);
                view.release(1);
            }),
            Slots::Marked(consumer) => consumer.peek().map(|view| {
                work(view.block());
                view.release();
            }),
        }
        .is_some()
    }
}
