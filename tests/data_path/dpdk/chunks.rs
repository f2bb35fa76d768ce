//! Packets that point into chunks of memory, and when such a chunk comes back.

use std::sync::atomic::AtomicUsize;

use dpdk::{AttachError, ExtMemory, ExtPool, MAX_HANDLES};

use super::*;

/// Chunk memory that counts how often it came back.
struct Chunk {
    bytes: Box<[u8]>,
    returned: Arc<AtomicUsize>,
}

// SAFETY: a boxed slice stays where it is, and its bytes change only through `&mut`.
unsafe impl ExtMemory for Chunk {
    type Writer<'a> = &'a mut [u8];

    fn writer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn region(&self) -> std::ptr::NonNull<[u8]> {
        self.bytes.region()
    }

    fn recycled(&mut self) {
        self.returned.fetch_add(1, Ordering::SeqCst);
    }
}

fn chunks(count: usize, length: usize) -> (ExtPool<Chunk>, Arc<AtomicUsize>) {
    let returned = Arc::new(AtomicUsize::new(0));
    let chunk = || Chunk {
        bytes: vec![0; length].into(),
        returned: Arc::clone(&returned),
    };
    let pool = ExtPool::new(Eal::for_tests(), (0..count).map(|_| chunk()));
    (pool, returned)
}

/// Sends `packets` packets out of one chunk through a ring port; header mbuf chained to an external
/// segment.
#[test]
fn chunk_returns_once_when_its_last_packet_has_left() {
    const PACKETS: usize = 100;
    const PAYLOAD: usize = 8192;
    let headers = pool("ext-headers", 255, 128);
    let segments = pool("ext-segments", 255, 0);
    let (chunks, returned) = chunks(1, PACKETS * PAYLOAD);
    let (mut tx, mut rx, port) = loopback("ext");

    let mut chunk = chunks.take().expect("one chunk");
    for (index, byte) in chunk.writer().iter_mut().enumerate() {
        *byte = (index / PAYLOAD) as u8;
    }
    assert!(chunks.take().is_none());
    let mut shared = chunk.share();
    let mut sent: MbufBatch = MbufBatch::new();
    for index in 0..PACKETS {
        let mut mbuf = packet(&headers, &[0xaa; 114]);
        let payload = shared
            .attach(&segments, index * PAYLOAD..(index + 1) * PAYLOAD)
            .expect("segment");
        mbuf.chain(payload).expect("chain");
        assert!(
            mbuf.append(1).is_none(),
            "a packet does not grow into the chunk"
        );
        sent.push(mbuf).expect("room");
        if sent.room() == 0 || index == PACKETS - 1 {
            while !sent.is_empty() {
                tx.tx_burst(&mut sent);
            }
        }
    }
    assert_eq!(shared.packets(), PACKETS);
    drop(shared);
    assert_eq!(
        returned.load(Ordering::SeqCst),
        0,
        "packets still point into the chunk"
    );

    let mut received: MbufBatch = MbufBatch::new();
    let mut index = 0;
    while rx.rx_burst(&mut received) > 0 {
        for mbuf in &received {
            let parts: Vec<&[u8]> = mbuf.segments().collect();
            assert_eq!(parts, [&[0xaa; 114][..], &[index as u8; PAYLOAD]]);
            index += 1;
        }
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        received.clear();
    }
    assert_eq!(index, PACKETS);
    assert_eq!(returned.load(Ordering::SeqCst), 1);
    assert_eq!(
        (
            chunks.available(),
            segments.available(),
            headers.available()
        ),
        (1, 255, 255)
    );
    drop((tx, rx, port));

    // The same chunk again, without any packet.
    drop(chunks.take().expect("it is back").share());
    assert_eq!(
        (returned.load(Ordering::SeqCst), chunks.available()),
        (2, 1)
    );
}

/// One owner's packets take no handle away from another, however early they are made.
#[test]
fn every_owner_gets_its_handle() {
    const OTHERS: usize = 15;
    let segments = pool("handles", 255, 0);
    let (chunks, returned) = chunks(1, 100);
    let mut packets = Vec::new();
    let mut owners = Vec::new();
    let chunk = chunks.take().expect("chunk");
    let mut last = chunk.share_with(OTHERS, |other, mut handle| {
        assert_eq!(other, owners.len());
        if other == 0 {
            let packet = |byte| handle.attach(&segments, byte..byte + 1).expect("segment");
            packets.extend((0..100).map(packet));
        }
        owners.push(handle);
    });
    assert_eq!(owners.len(), OTHERS);
    for owner in owners.iter_mut().chain([&mut last]) {
        packets.push(owner.attach(&segments, 0..1).expect("segment"));
    }
    drop((packets, last));
    // Handles that are left keep it too.
    while let Some(owner) = owners.pop() {
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        drop(owner);
    }
    assert_eq!(returned.load(Ordering::SeqCst), 1);
    assert_eq!((chunks.available(), segments.available()), (1, 255));
}

/// DPDK counts references in 16 bits: with all handles there are, the count stays below, since each
/// may raise it by one at the same time as the others.
#[test]
fn a_chunk_has_no_more_packets_than_can_be_counted() {
    // Fewer than overflow the count, more than are allowed.
    const MBUFS: u32 = 65_500;
    let segments = pool("references", MBUFS as usize, 0);
    for others in [0, MAX_HANDLES - 1] {
        let (chunks, returned) = chunks(1, 100);
        let mut handles = Vec::new();
        let chunk = chunks.take().expect("chunk");
        let last = chunk.share_with(others, |_, handle| handles.push(handle));
        handles.push(last);
        let owners = handles.len();
        let mut packets = Vec::new();
        let refused = loop {
            match handles[packets.len() % owners].attach(&segments, 0..1) {
                Ok(packet) => packets.push(packet),
                Err(why) => break why,
            }
        };
        assert_eq!(refused, AttachError::References);
        assert!(packets.len() + owners + MAX_HANDLES <= usize::from(u16::MAX));
        assert!(packets.len() > 60_000, "{}", packets.len());
        for handle in &mut handles {
            assert!(handle.attach(&segments, 0..1).is_err());
        }
        packets.pop();
        packets.push(handles[0].attach(&segments, 0..1).expect("room for one"));
        drop((handles, packets));
        assert_eq!(returned.load(Ordering::SeqCst), 1);
        assert_eq!(segments.available(), MBUFS as usize);
    }
}

#[test]
fn segments_outside_the_chunk_are_refused() {
    let segments = pool("ranges", 1, 0);
    let (chunks, returned) = chunks(1, 100_000);
    let mut shared = chunks.take().expect("chunk").share();
    #[allow(clippy::reversed_empty_ranges)]
    for range in [0..100_001, 5..5, 9..3, 0..65_536, usize::MAX..2] {
        let error = shared
            .attach(&segments, range.clone())
            .expect_err("refused");
        assert!(
            matches!(
                error,
                AttachError::Range {
                    length: 100_000,
                    ..
                }
            ),
            "{range:?}: {error}"
        );
    }
    let one = shared
        .attach(&segments, 99_999..100_000)
        .expect("the last byte");
    assert_eq!(
        shared.attach(&segments, 0..1).expect_err("one mbuf"),
        AttachError::PoolEmpty
    );
    drop(shared);
    drop(chunks);
    assert_eq!(one.data(), [0]);
    assert_eq!(returned.load(Ordering::SeqCst), 0);
    drop(one);
    assert_eq!(returned.load(Ordering::SeqCst), 1);
}
