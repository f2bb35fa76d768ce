//! How fast an engine sends, by a clock whose hands the test moves: what has left at each time is
//! known to a packet, however fast the machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk::{BURST, Eal};
use ground::Ticks;

use super::on_cpu;
use super::rig::{Batches, Paced, Rig, Sending, config};
use crate::lcores;

/// Bytes that may leave at once, as documented (docs/fgpu.md).
const BUCKET: f64 = 65536.0;
/// Reads of the clock in which a tx lcore that may send has sent something: two for each packet of
/// a burst, and those of turns in between.
const REFUSED: u64 = 4 * BURST as u64;

/// A clock that stands still until the test moves it, and counts how often it is read.
#[derive(Clone, Default)]
struct Hands {
    now: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Ticks for Hands {
    fn now(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::Release);
        self.now.load(Ordering::Acquire)
    }
}

/// Hands over input as there is room for it, and takes in what comes, until the tx lcore is refused
/// to send more.
fn settle(rig: &mut Rig, hands: &Hands, chunk: &mut u64) {
    let reads = || hands.reads.load(Ordering::Acquire);
    let (mut bytes, mut since) = (rig.datagram_bytes, reads());
    loop {
        if rig.has_room_for(*chunk) {
            rig.send_chunks(*chunk..*chunk + 1, 1);
            *chunk += 1;
        }
        assert!(*chunk < 100, "nothing holds it up");
        let now = reads();
        rig.receive();
        if rig.datagram_bytes != bytes {
            (bytes, since) = (rig.datagram_bytes, reads());
        } else if now >= since + REFUSED {
            return;
        }
        std::thread::yield_now();
    }
}

/// Ends the engine, while the clock runs. What was received, and how many bytes were in its
/// datagrams.
fn end(mut rig: Rig, hands: &Hands) -> (u64, Batches) {
    rig.stages.stop();
    rig.wait(|rig| {
        hands.now.fetch_add(1 << 32, Ordering::Release);
        rig.stages.running() == 0
    });
    rig.receive();
    let bytes = rig.datagram_bytes;
    let (ended, batches) = rig.finish();
    ended.unwrap();
    (bytes, batches)
}

#[test]
fn what_has_left_at_each_time_is_the_rate_and_a_bucket() {
    let _alone = lcores();
    let config = config();
    let hz = Eal::for_tests().tsc_clock().hz() as f64;
    for rate_factor in [0.25, 1.1, 3.0] {
        let hands = Hands::default();
        hands.now.store(1 << 40, Ordering::Release);
        let paced = Paced {
            rate_factor,
            ticks: hands.clone(),
        };
        let mut rig = Rig::paced(on_cpu(&config), 1, 1, Sending::AT_ONCE, &paced);
        let mut chunk = 0;
        let mut levels = Vec::new();
        // Packets are 8 a batch: steps from a fraction of one's time to those of several.
        let batch_time = config.outputs[0].batch_samples() as f64 / config.clock.adc_sample_rate;
        let mut time = 0.0;
        for step in 0..48u32 {
            let now = (1 << 40) + (time * hz).round() as u64;
            hands.now.store(now, Ordering::Release);
            settle(&mut rig, &hands, &mut chunk);
            levels.push((time, rig.datagram_bytes as f64));
            time += batch_time / rate_factor * 0.01 * f64::from(1 + step * step % 97);
        }
        let (bytes, batches) = end(rig, &hands);
        // Of a batch, headers of SPEAD included.
        let whole = bytes as f64 / batches.len() as f64;
        let (packet, rate) = (whole / 8.0, rate_factor * whole / batch_time);
        for &(time, bytes) in &levels {
            let ahead = bytes - time * rate;
            assert!(
                ahead > BUCKET - 1.0 && ahead <= BUCKET + packet + 1.0,
                "{rate_factor}: {ahead} bytes ahead of the rate at {time} s"
            );
        }
        // For any two times too, and the mean is the rate.
        let ((from, first), (to, last)) = (levels[0], levels[levels.len() - 1]);
        assert!(last - first > BUCKET, "{levels:?}");
        assert!(((last - first) - (to - from) * rate).abs() <= packet + 1.0);
    }
}
