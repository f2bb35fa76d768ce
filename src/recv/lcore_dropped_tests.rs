//! What is kept of datagrams that an rx lcore drops.

use super::*;
use crate::recv::DroppedPacket;

/// A copy as it should be, whenever it was made.
fn expected(cause: DropCause, mbuf: &Mbuf, kept: &DroppedPacket) -> DroppedPacket {
    let frame = mbuf.data();
    DroppedPacket {
        cause,
        arrived: kept.arrived,
        length: frame.len(),
        bytes: frame[..frame.len().min(192)].to_vec(),
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_nanos() as u64
}

/// Those of one burst arrived at one time.
#[test]
fn datagrams_that_are_dropped_are_kept_and_those_that_are_placed_are_not() {
    let (memory, _collector) = memory_for(1);
    let (mut lcore, mut sender) = lcore("rx_drop_burst", &memory, 0);
    let pool = frames("rx_drop_burst", 20);
    lcore.placer.time.newest = Some(0);
    let outcomes = [
        None,
        Some((DropCause::WrongHeapLength, 64, 64)),
        None,
        Some((DropCause::BadTimestamp, 67, 80)),
        Some((DropCause::Duplicate, 0, 80)),
    ];
    let mut batch: MbufBatch = MbufBatch::new();
    let mut wanted = Vec::new();
    for (number, dropped) in outcomes.into_iter().enumerate() {
        let (timestamp, bytes) = match dropped {
            Some((cause, timestamp, bytes)) => {
                wanted.push((cause, heap_of(&pool, timestamp, bytes)));
                (timestamp, bytes)
            }
            None => (64 * number as u64, 80),
        };
        batch.push(heap_of(&pool, timestamp, bytes)).unwrap();
    }
    assert_eq!(sender.enqueue(&mut batch), outcomes.len());
    lcore.watermarks.push(Watermark::STOP).unwrap();
    let stats = lcore.placer.stats.clone();
    let begun = unix_ns();
    run(lcore);
    assert_eq!(stats.placed(), 2);
    let kept = stats.copies().read();
    wanted.sort_by_key(|(cause, _)| *cause);
    let wanted = wanted.iter().zip(&kept);
    let wanted: Vec<_> = wanted
        .map(|((cause, mbuf), kept)| expected(*cause, mbuf, kept))
        .collect();
    assert_eq!(kept, wanted);
    assert_eq!(kept.len(), 3);
    for packet in &kept {
        assert_eq!(packet.arrived, kept[0].arrived);
        assert!((begun..=unix_ns()).contains(&packet.arrived));
    }
}

/// A heap that waits for others of its time is dropped long after it came.
#[test]
fn heaps_that_waited_are_kept_with_their_headers_and_times() {
    let (memory, _collector) = memory_for(1);
    let (RxLcore { mut placer, .. }, _sender) = lcore("rx_drop_late", &memory, 0);
    let pool = frames("rx_drop_late", 3);
    let mut clock = PhaseTimer::start(PhaseTimes::new("rx", None));
    // Nobody moves the window while it waits.
    placer.abort.set();
    placer.time.newest = Some(1);
    let begun = unix_ns();
    let stray = heap(&pool, 5000 * 256);
    placer.arrived = None;
    assert_eq!(burst(&mut placer, &stray, &mut clock), Ok(0));
    let waits = unix_ns();
    assert_eq!(placer.stats.copies().read(), []);
    let mut burst = Burst::new(&memory);
    placer.begin_burst();
    placer.settle(None, &mut burst, &mut clock);
    placer.end_burst(&mut burst);
    let kept = placer.stats.copies().read();
    assert_eq!(kept, [expected(DropCause::StrayTime, &stray, &kept[0])]);
    assert!((begun..=waits).contains(&kept[0].arrived));
}
