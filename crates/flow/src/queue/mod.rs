//! Queues of blocks from one thread to another.
//!
//! One end writes, the other reads; neither waits, neither allocates. There are three:
//!
//! * [`queue`], for blocks one by one or several at once, copied, copied past the caches, or in
//!   place. Each end keeps a copy of the other's count and looks again only when that says that
//!   there is too little.
//! * [`marked`], for blocks one by one, copied or in place. Each slot tells itself whether it is
//!   full, so that a small block travels on one cache line together with the news of it.
//! * [`paced`], without any look: for two cores that nothing disturbs and that go at one rate.
//!
//! `docs/flow/measurements.md` tells which is best where.
//!
//! ```
//! use karoo_flow::queue::queue;
//!
//! // Four blocks of three items, and one block of delay.
//! let (mut producer, mut consumer) = queue::<f32>(4, 3, &[0.0, 0.0, 0.0]).unwrap();
//!
//! // Copying: whole blocks, as many as there is room for.
//! assert_eq!(producer.push(&[1.0, 2.0, 3.0]), 3);
//!
//! // In place: the slots themselves, seen by the other end at `commit`.
//! let mut grant = producer.reserve(2).unwrap();
//! let (first, rest) = grant.slices();
//! first.iter_mut().chain(rest).for_each(|item| *item = 7.0);
//! grant.commit(2);
//! assert!(producer.reserve(1).is_none());
//!
//! let mut block = [9.0; 3];
//! assert_eq!(consumer.pop(&mut block), 3);
//! assert_eq!(block, [0.0; 3]);
//! let view = consumer.peek(1).unwrap();
//! assert_eq!(view.slices().0, [1.0, 2.0, 3.0]);
//! view.release(1);
//! ```
//!
//! ```
//! use karoo_flow::queue::marked;
//!
//! let (mut producer, mut consumer) = marked::<u64>(2, 1, &[]).unwrap();
//! assert!(producer.push_one(1) && producer.push_one(2) && !producer.push_one(3));
//! assert_eq!(consumer.pop_one(), Some(1));
//! ```

// The one room of unsafe code in this crate.
#[allow(unsafe_code)]
mod marked;
#[allow(unsafe_code)]
mod memory;
mod paced;
#[allow(unsafe_code)]
mod ring;
#[allow(unsafe_code)]
pub(crate) mod sync;

pub use marked::{MarkedConsumer, MarkedGrant, MarkedProducer, MarkedView, marked};
pub(crate) use memory::Alone;
pub use memory::MAX_BYTES;
pub use paced::{PacedConsumer, PacedProducer, Pacing, Slip, paced};
pub use ring::{Consumer, Grant, Producer, View, queue};
