//! Receiver and transmitter as graphs of `karoo_flow`.
//!
//! ```text
//! samples ─► modem_search ─► modem_decode ─► frames      payloads ─► modem_send ─► samples
//!            every sample     each frame                             each frame
//!            one thread       by itself: copies                      by itself: copies
//! ```
//!
//! A tick is a block of samples, or a frame. Samples of wires are vectors of bytes: a frame's
//! samples, or what became of it. Nothing of a frame reaches another one, so that the nodes that
//! work on frames have no state: blocks go round among copies of them, and come out in their order.
//! The same samples give the same bytes for any number of copies.
//!
//! ```
//! use karoo_modem::graph::{Copies, receive};
//! use karoo_modem::rx::RxConfig;
//! use num_complex::Complex32;
//!
//! let mut blocks = vec![vec![Complex32::ZERO; 1000]; 3];
//! let read = move |samples: &mut Vec<Complex32>| {
//!     let block = blocks.pop().unwrap_or_default();
//!     samples.extend(&block);
//!     Ok(block.len())
//! };
//! let received = receive(&RxConfig::default(), Copies::Number(2), read, |_frame| Ok(())).unwrap();
//! assert_eq!((received.counts.samples, received.counts.delivered), (3000, 0));
//! ```

mod bytes;
mod decode;
mod ends;
mod placing;
mod record;
mod run;
mod search;
mod send;
#[cfg(test)]
mod tests;

use karoo_flow::{Builder, Graph, Mismatch, Problems, Registry, Type};

pub use decode::DecodeFrames;
pub use record::{FrameRecord, RecordError};
pub use run::{Copies, GraphError, Received, receive, send};
pub use search::{BLOCK, SearchFrames};
pub use send::SendFrames;

use crate::rx::RxConfig;

/// Adds the kinds `modem_search`, `modem_decode` and `modem_send` to those that files may name.
pub fn register(registry: &mut Registry) {
    registry
        .add::<SearchFrames>(search::KIND)
        .add::<DecodeFrames>(decode::KIND)
        .add::<SendFrames>(send::KIND);
}

/// Whether a node's inputs have the types that they must have.
fn expect(kind: &str, found: &[Type], wanted: &[Type]) -> Result<(), Mismatch> {
    let Some(at) = (0..wanted.len()).find(|&at| found.get(at) != Some(&wanted[at])) else {
        return Ok(());
    };
    let is = found.get(at).map_or("nothing".into(), Type::to_string);
    let text = format!(
        "input {} of {kind} is {is}: it must be {}",
        at + 1,
        wanted[at]
    );
    let same_element = found.get(at).map(|kind| kind.vector(1)) == Some(wanted[at].vector(1));
    Err(match same_element {
        true => Mismatch::of_size(text),
        false => Mismatch::of_type(text),
    })
}

/// A receiver's graph: inputs `samples` (blocks of [`BLOCK`] samples) and `used` (how many of them
/// there are; fewer end the stream), outputs `frames`, `counts` and `correction`.
pub fn receiver(config: &RxConfig) -> Result<Graph, Problems> {
    let g = Builder::new("modem-rx");
    let samples = g.input("samples", Type::F32.vector(2 * BLOCK));
    let used = g.input("used", Type::U32);
    let found = g.scope("finding", || {
        g.partition(0);
        g.add(
            SearchFrames {
                correct: config.correct,
            },
            [samples, used],
        )
        .named("search")
    });
    let frames = g.scope("decoding", || {
        g.partition(1);
        found.then(DecodeFrames::from(config)).named("decode")
    });
    g.output("frames", frames);
    g.output("counts", found.port(1));
    g.output("correction", found.port(2));
    g.build()
}

/// A transmitter's graph: inputs `payloads` and `used` (bytes of each), output `samples`.
pub fn transmitter(node: &SendFrames) -> Result<Graph, Problems> {
    let g = Builder::new("modem-tx");
    let bytes = node.modulation.payload_bytes();
    let payloads = g.input("payloads", Type::U8.vector(bytes));
    let used = g.input("used", Type::U32);
    let samples = g.scope("sending", || {
        g.partition(1);
        g.add(node.clone(), [payloads, used]).named("send")
    });
    g.output("samples", samples);
    g.build()
}
