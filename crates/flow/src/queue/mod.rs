//! Queues of blocks from one thread to another.
//!
//! One end writes, the other reads; neither waits, neither allocates. A transaction is one block or
//! several, copied or in place. Each end keeps a copy of the other's index and looks again only
//! when that says that there is too little.
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

// The one room of unsafe code in this crate.
#[allow(unsafe_code)]
mod ring;

/// What the ring is made of. The model checker has others of the same names.
mod sync {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Watches the accesses to one slot. Here nobody does.
    #[derive(Default)]
    pub struct Watch(());

    impl Watch {
        pub fn read(&self) {}
        pub fn write(&self) {}
    }
}

pub use ring::{Consumer, Grant, MAX_BYTES, Producer, View, queue};
