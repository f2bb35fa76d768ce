//! A capture read to its end, every frame taken apart: for the fuzz target, and for the test of its
//! corpus.

use std::io::Cursor;
use std::net::Ipv4Addr;

use dpdk::{FlowRule, QueueId};
use karoo::net::{CaptureReader, FlowTable};

/// Most frames that one input can make: an empty record is 16 bytes.
fn most_frames(bytes: &[u8]) -> usize {
    bytes.len() / 12
}

/// Reads bytes as a capture, and gives the payload of each of its datagrams to `read_payload`.
///
/// # Panics
///
/// Where the reader contradicts itself.
pub fn capture(bytes: &[u8], read_payload: fn(&[u8])) {
    let total = bytes.len() as u64;
    let mut reader = match CaptureReader::from_read("fuzz", Cursor::new(bytes.to_vec()), total) {
        Ok(reader) => reader,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let steering = FlowTable::new(vec![FlowRule {
        dst: Ipv4Addr::new(239, 0, 0, 0)..=Ipv4Addr::new(239, 255, 255, 255),
        udp_port: None,
        queue: QueueId(0),
    }]);
    let mut frames = 0;
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert_eq!(frame.index, frames as u64);
                let _ = frame.is_cut();
                match steering.steer(frame.bytes) {
                    Ok((_, datagram)) => read_payload(datagram.payload()),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
                frames += 1;
                assert!(frames <= most_frames(bytes));
            }
            Ok(None) => break,
            Err(error) => {
                let _ = error.to_string();
                break;
            }
        }
    }
    let (consumed, length) = reader.progress();
    assert!(consumed <= total && length == total);
}
