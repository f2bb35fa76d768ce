//! Messages against bytes of real ones, and what a host says when.

use proptest::prelude::*;

use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const ROUTER: (MacAddr, Ipv4Addr) = (MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 102, 0, 64);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 102, 0, 65);

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// Type and, for version 3, records; destination address as well.
fn said(frame: &[u8]) -> (Ipv4Addr, u8, Vec<(u8, Ipv4Addr)>) {
    let address = |at: usize| Ipv4Addr::from(*frame[at..].first_chunk::<4>().unwrap());
    assert_eq!(frame[14], 0x46, "router alert");
    assert_eq!((frame[22], frame[23]), (1, 2), "time to live, protocol");
    assert_eq!(address(26), IP);
    let to = address(30);
    assert_eq!(&frame[..6], MacAddr::multicast(to).unwrap().0);
    let message = &frame[38..];
    let records = match message[0] {
        0x22 => (0..usize::from(u16::from_be_bytes([message[6], message[7]])))
            .map(|i| (message[8 + 8 * i], address(38 + 12 + 8 * i)))
            .collect(),
        _ => vec![(0, address(42))],
    };
    // A receiver's checks.
    assert_eq!(fold(sum_words(0, &frame[14..38])), 0xffff);
    assert!(matches!(Message::parse(frame), Ok(Message::Other(kind)) if kind == message[0]));
    (to, message[0], records)
}

/// A general query of version 2 with 10 s, written out: its checksum, ee9b, is the one that
/// analysers show for it.
#[test]
fn a_routers_query_is_read() {
    let frame: [u8; 46] = [
        0x01, 0x00, 0x5e, 0x00, 0x00, 0x01, 0x02, 0x42, 0xac, 0x11, 0x00, 0x02, 0x08, 0x00, 0x46,
        0xc0, 0x00, 0x20, 0x00, 0x00, 0x40, 0x00, 0x01, 0x02, 0x04, 0x17, 0x00, 0x00, 0x00, 0x00,
        0xe0, 0x00, 0x00, 0x01, 0x94, 0x04, 0x00, 0x00, 0x11, 0x64, 0xee, 0x9b, 0x00, 0x00, 0x00,
        0x00,
    ];
    let expected = Message::Query {
        version: Version::V2,
        group: None,
        within: seconds(10.0),
    };
    assert_eq!(Message::parse(&frame), Ok(expected));
    let mut broken = frame;
    broken[39] = 0x65;
    assert_eq!(Message::parse(&broken), Err(IgmpError::Checksum));
}

/// A query whose message has been changed, with the right checksum.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Message, IgmpError> {
    let mut message = query(Version::V3, None, 100, ROUTER)[38..50].to_vec();
    change(&mut message);
    message[2..4].fill(0);
    Message::parse(&Host::new(ROUTER.0, ROUTER.1).frame(ALL_HOSTS, message))
}

#[test]
fn a_query_has_room_for_its_sources_and_a_group() {
    for (sources, bytes, whole) in [
        (0, 0, true),
        (0, 4, true),
        (1, 3, false),
        (1, 4, true),
        (2, 4, false),
        (3, 11, false),
        (3, 12, true),
    ] {
        let read = changed(|message| {
            message[10..12].copy_from_slice(&u16::to_be_bytes(sources));
            message.extend(vec![1; bytes]);
        });
        let expected = if whole { None } else { Some(IgmpError::Cut) };
        assert_eq!(read.err(), expected, "{sources} sources in {bytes} bytes");
    }
    let of = |group: [u8; 4]| changed(|message| message[4..8].copy_from_slice(&group));
    assert!(of([239, 1, 2, 3]).is_ok() && of([0; 4]).is_ok());
    let unicast = Ipv4Addr::new(10, 1, 2, 3);
    assert_eq!(of(unicast.octets()), Err(IgmpError::NoGroup(unicast)));
}

#[test]
fn other_frames_are_told_from_damaged_ones() {
    let frame = query(Version::V3, None, 100, ROUTER);
    let changed = |at: usize, value: u8, length: usize| {
        let mut frame = frame.clone();
        frame[at] = value;
        Message::parse(&frame[..length])
    };
    let whole = frame.len();
    assert!(changed(0, 1, whole).is_ok());
    for (at, value) in [
        // Type of Ethernet, version of IP, fragments, protocol.
        (13, 0x06),
        (14, 0x66),
        (20, 0x20),
        (21, 1),
        (23, 17),
    ] {
        assert_eq!(changed(at, value, whole), Err(IgmpError::NotIgmp), "{at}");
    }
    // Of another protocol, the headers are enough.
    assert_eq!(changed(23, 17, 38), Err(IgmpError::NotIgmp));
    for length in [0, 13, 37, 38, 45, 49] {
        assert_eq!(changed(0, 1, length), Err(IgmpError::Cut), "{length}");
    }
}

#[test]
fn response_codes_are_floating() {
    // RFC 3376, 4.1.1: the mantissa has a hidden bit.
    for (code, tenths) in [(0, 0), (127, 127), (128, 128), (0x8f, 248), (0xff, 31744)] {
        assert_eq!(floating(code), tenths, "{code}");
    }
}

#[test]
fn joining_and_leaving_are_said_twice() {
    let mut host = Host::new(MAC, IP);
    host.join(GROUP, seconds(1.0));
    host.join(GROUP, seconds(1.1));
    assert_eq!(host.next(), Some(seconds(1.0)));
    let frames = host.poll(seconds(1.2), 0.5);
    let said_now: Vec<_> = frames.iter().map(|frame| said(frame)).collect();
    assert_eq!(said_now, [(V3_ROUTERS, 0x22, vec![(4, GROUP)])]);
    assert_eq!(host.next(), Some(seconds(1.7)));
    assert_eq!(host.poll(seconds(1.6), 0.5), Vec::<Vec<u8>>::new());
    assert_eq!(said(&host.poll(seconds(1.7), 0.5)[0]).2, [(4, GROUP)]);
    assert_eq!(host.next(), Some(UNASKED));
    host.leave(OTHER, seconds(2.0));
    host.leave_all(seconds(2.0));
    assert_eq!(host.groups().count(), 0);
    assert_eq!(said(&host.poll(seconds(2.0), 0.0)[0]).2, [(3, GROUP)]);
    assert_eq!(said(&host.poll(seconds(2.0), 0.0)[0]).2, [(3, GROUP)]);
    assert_eq!(host.next(), None);
    assert!(host.groups.is_empty());
}

/// A host that has said what changed.
fn member(groups: &[Ipv4Addr]) -> Host {
    let mut host = Host::new(MAC, IP);
    groups
        .iter()
        .for_each(|&group| host.join(group, Duration::ZERO));
    host.poll(Duration::ZERO, 0.0);
    host.poll(Duration::ZERO, 0.0);
    host
}

#[test]
fn queries_are_answered_in_time() {
    let mut host = member(&[GROUP, OTHER]);
    let general = query(Version::V3, None, 100, ROUTER);
    host.receive(&general, seconds(5.0), 0.25).unwrap();
    assert_eq!(host.next(), Some(seconds(7.5)));
    let frames = host.poll(seconds(7.5), 0.0);
    assert_eq!(
        said(&frames[0]),
        (V3_ROUTERS, 0x22, vec![(2, GROUP), (2, OTHER)])
    );

    let specific = query(Version::V3, Some(OTHER), 10, ROUTER);
    host.receive(&specific, seconds(8.0), 1.0).unwrap();
    assert_eq!(said(&host.poll(seconds(9.0), 0.0)[0]).2, [(2, OTHER)]);
    // Of no interest.
    let strange = query(Version::V3, Some([239, 1, 1, 1].into()), 10, ROUTER);
    host.receive(&strange, seconds(9.0), 0.0).unwrap();
    assert_eq!(host.poll(seconds(10.0), 0.0), Vec::<Vec<u8>>::new());
    // Nobody asks: said all the same.
    assert_eq!(said(&host.poll(UNASKED, 0.0)[0]).2.len(), 2);
}

/// Who leaves has nothing to wait for, whatever was asked.
#[test]
fn leaving_is_said_at_once() {
    let mut host = member(&[GROUP, OTHER]);
    for group in [None, Some(OTHER)] {
        let query = query(Version::V3, group, 0xff, ROUTER);
        host.receive(&query, seconds(5.0), 1.0).unwrap();
    }
    host.leave_all(seconds(6.0));
    for _ in 0..ROBUSTNESS {
        assert_eq!(host.next(), Some(seconds(6.0)));
        let frames = host.poll(seconds(6.0), 0.0);
        assert_eq!(said(&frames[0]).2, [(3, GROUP), (3, OTHER)]);
    }
    assert_eq!(host.next(), None);
}

#[test]
fn older_queriers_are_answered_in_their_version() {
    let mut host = member(&[GROUP, OTHER]);
    host.receive(&query(Version::V2, None, 10, ROUTER), seconds(1.0), 0.0)
        .unwrap();
    assert_eq!(host.version(seconds(1.0)), Version::V2);
    let frames: Vec<_> = host
        .poll(seconds(1.0), 0.0)
        .iter()
        .map(|f| said(f))
        .collect();
    assert_eq!(
        frames,
        [GROUP, OTHER].map(|group| (group, 0x16, vec![(0, group)]))
    );
    host.leave(OTHER, seconds(2.0));
    assert_eq!(
        said(&host.poll(seconds(2.0), 0.0)[0]),
        (ALL_ROUTERS, 0x17, vec![(0, OTHER)])
    );
    host.receive(&query(Version::V1, None, 0, ROUTER), seconds(3.0), 0.0)
        .unwrap();
    let frames: Vec<_> = host
        .poll(seconds(3.0), 0.0)
        .iter()
        .map(|f| said(f).1)
        .collect();
    assert_eq!(frames, [0x12]);
    // A newer one does not make the oldest forgotten, time does.
    host.receive(&query(Version::V2, None, 10, ROUTER), seconds(4.0), 0.0)
        .unwrap();
    assert_eq!(host.version(seconds(200.0)), Version::V1);
    let until = seconds(3.0) + OLDER_QUERIER;
    assert_eq!(host.version(until - Duration::from_nanos(1)), Version::V1);
    // Each has a time of its own (RFC 3376, 7.2.1).
    assert_eq!(host.version(until), Version::V2);
    assert_eq!(host.version(seconds(4.0) + OLDER_QUERIER), Version::V3);
}

#[test]
fn many_groups_take_several_reports() {
    let mut host = Host::new(MAC, IP);
    (0..300u32).for_each(|i| host.join((u32::from(GROUP) + i).into(), Duration::ZERO));
    let frames = host.poll(Duration::ZERO, 0.0);
    let counts: Vec<_> = frames.iter().map(|frame| said(frame).2.len()).collect();
    assert_eq!(counts, [128, 128, 44]);
    assert!(frames.iter().all(|frame| frame.len() <= 1514));
}

proptest! {
    /// Whatever comes, nothing panics, and what is said is well formed and about groups that were
    /// joined.
    #[test]
    fn damage_does_no_harm(
        version in 1..=3u8,
        specific in any::<bool>(),
        tenths in any::<u8>(),
        damage in proptest::collection::vec((0..60usize, any::<u8>()), 0..4),
        length in 0..70usize,
    ) {
        let version = [Version::V1, Version::V2, Version::V3][usize::from(version) - 1];
        let mut frame = query(version, specific.then_some(GROUP), tenths, ROUTER);
        for (at, value) in damage {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(length);
        let mut host = member(&[GROUP]);
        let read = host.receive(&frame, Duration::ZERO, 0.5);
        let now = host.next().unwrap_or_default();
        for frame in host.poll(now, 0.5) {
            let groups = said(&frame).2;
            prop_assert!(groups.iter().all(|(_, group)| *group == GROUP));
        }
        prop_assert!(read.is_ok() || host.answer_all.is_none());
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::parse(&bytes);
    }
}
