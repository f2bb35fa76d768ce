//! The latest datagrams that an engine dropped, as a capture with a comment for each.

use std::sync::Arc;

use live::Download;

use crate::net::capture::{CommentedCapture, CommentedFrame};
use crate::recv::{DropCause, DroppedPacket, RxStats};

/// Where the capture is, beside the page.
pub const FILE: &str = "drops.pcapng";

/// What the rx lcores of an engine keep of what they dropped, in the order in which it arrived. A
/// capture without frames if nothing was dropped.
pub fn download(rx: &[Arc<RxStats>]) -> Download {
    // Several queues may be of one port.
    let mut ports: Vec<String> = Vec::new();
    let mut packets: Vec<(usize, DroppedPacket)> = Vec::new();
    for stats in rx {
        let known = ports.iter().position(|port| port == stats.port());
        let port = known.unwrap_or_else(|| {
            ports.push(stats.port().to_owned());
            ports.len() - 1
        });
        let copies = stats.copies().read().into_iter();
        packets.extend(copies.map(|packet| (port, packet)));
    }
    packets.sort_by_key(|(_, packet)| packet.arrived);
    let program = format!("karoo {}", ground::karoo_version());
    let mut capture = CommentedCapture::new(&program, &ports);
    for (port, packet) in &packets {
        capture.push(&CommentedFrame {
            interface: *port,
            time_ns: packet.arrived,
            orig_len: packet.length,
            bytes: &packet.bytes,
            comment: &comment(packet.cause),
        });
    }
    Download {
        content_type: "application/x-pcapng",
        bytes: capture.into_bytes(),
    }
}

/// A cause, what it means, and where the run-book is about it.
fn comment(cause: DropCause) -> String {
    let (name, means) = (cause.name(), cause.explanation());
    format!("{name}: {means} Run-book: docs/runbook.md#{name}")
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::net::CaptureReader;

    fn frames(rx: &[Arc<RxStats>]) -> Vec<(u64, usize, Vec<u8>)> {
        let file = Cursor::new(download(rx).bytes);
        let mut reader = CaptureReader::from_read("drops", file, 0).unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            frames.push((frame.time_ns, frame.orig_len, frame.bytes.to_vec()));
        }
        frames
    }

    #[test]
    fn an_engine_that_dropped_nothing_has_a_capture_without_frames() {
        assert_eq!(frames(&[]), []);
        assert_eq!(frames(&[Arc::new(RxStats::of_port("eth0"))]), []);
    }

    #[test]
    fn what_all_lcores_dropped_is_in_the_order_in_which_it_arrived() {
        let rx = ["eth0", "eth1", "eth0"].map(|port| Arc::new(RxStats::of_port(port)));
        let note = |lcore: usize, cause, arrived| {
            let frame = vec![lcore as u8; 300];
            rx[lcore].note_dropped(cause, arrived, &frame, 300);
        };
        note(0, DropCause::TooOld, 3_000);
        note(1, DropCause::NotOurs, 2_000);
        note(2, DropCause::TooOld, 4_000);
        note(0, DropCause::Duplicate, 1_000);
        // Of a datagram that is not the engine's the headers alone.
        let expected = [
            (1_000, 0, 192),
            (2_000, 1, 64),
            (3_000, 0, 192),
            (4_000, 2, 192),
        ];
        let expected = expected.map(|(time, byte, copied)| (time, 300, vec![byte; copied]));
        assert_eq!(frames(&rx), expected);
        let file = download(&rx).bytes;
        let text = String::from_utf8_lossy(&file);
        // Each port once.
        assert_eq!(
            (text.matches("eth0").count(), text.matches("eth1").count()),
            (1, 1)
        );
        let comment = "not-ours: Sent to an address that this engine does not listen to. Run-book: \
                       docs/runbook.md#not-ours";
        assert!(text.contains(comment));
    }

    #[test]
    fn every_comment_names_a_section_of_the_run_book() {
        let book = include_str!("../../docs/runbook.md");
        for &cause in DropCause::ALL {
            let comment = comment(cause);
            let (_, section) = comment.split_once("docs/runbook.md#").unwrap();
            assert!(book.contains(&format!("\n### {section}\n")), "{comment}");
        }
    }
}
