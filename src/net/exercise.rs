//! A capture read to its end, every frame taken apart, and IGMP spoken with a host: the bodies of
//! the fuzz targets and of their corpus tests.

use std::io::Cursor;
use std::net::Ipv4Addr;
use std::time::Duration;

use dpdk::{FlowRule, QueueId};

use super::igmp::{Host, Message};
use super::{CaptureReader, FlowTable, MacAddr};

/// Most frames that one input can make: an empty record is 16 bytes.
fn most_frames(bytes: &[u8]) -> usize {
    bytes.len() / 12
}

/// Reads bytes as a capture.
///
/// # Panics
///
/// Where the reader contradicts itself.
pub fn capture(bytes: &[u8]) {
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
                    Ok((_, datagram)) => crate::spead::exercise::packet(datagram.payload()),
                    Err(error) => assert!(!error.cause().is_empty()),
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

/// Reads bytes as a frame, then as messages, each behind its length in a byte, that come to a
/// member of a group in frames without fault.
///
/// # Panics
///
/// Where the host says what is no message, is late, or is no member any more.
pub fn igmp(bytes: &[u8]) {
    if let Err(error) = Message::parse(bytes) {
        let _ = error.to_string();
    }
    let host = |n: u8| Host::new(MacAddr([2, 0, 0, 0, 0, n]), Ipv4Addr::new(192, 0, 2, n));
    let (router, mut member) = (host(1), host(2));
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let mut now = Duration::ZERO;
    member.join(group, now);
    let mut rest = bytes;
    while let Some((&length, more)) = rest.split_first() {
        let (message, after) = more.split_at(more.len().min(length.into()));
        rest = after;
        if message.len() < 4 {
            continue;
        }
        let random = f64::from(length) / 255.0;
        let frame = router.frame(Ipv4Addr::new(224, 0, 0, 1), message.to_vec());
        if let Err(error) = member.receive(&frame, now, random) {
            let _ = error.to_string();
        }
        for _ in 0..2 {
            now = now.max(member.next().expect("a member has something to say"));
            for frame in member.poll(now, random) {
                assert!(matches!(Message::parse(&frame), Ok(Message::Other(_))));
            }
            assert!(member.next().is_some_and(|next| next >= now));
            assert!(member.groups().eq([group]));
        }
    }
}
