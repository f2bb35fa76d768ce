//! IGMP messages that come to a member of a group: for the fuzz target, and for the test of its
//! corpus.

use std::net::Ipv4Addr;
use std::time::Duration;

use karoo::net::MacAddr;
use karoo::net::igmp::{Host, Message};

/// Reads bytes as a frame, then as messages, each behind its length in a byte. The messages come in
/// frames without fault.
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
