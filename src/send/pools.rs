//! The mbufs that a tx lcore sends.

use dpdk::{Eal, MbufPool, PoolConfig, TxQueue, pool_bytes, pool_size};

use super::packetiser::HEADER_BYTES;

/// Bytes of the longest descriptor frame that the header pool must hold.
const CONTROL_FRAME: usize = 2048;

/// Mbufs of the tx lcore.
#[derive(Clone, Debug)]
pub struct TxPools {
    /// Headers, whole control packets, and packets of chunks that are copied.
    pub(super) headers: MbufPool,
    /// Mbufs that only point into output chunks.
    pub(super) segments: MbufPool,
}

impl TxPools {
    /// Data room of both pools, per packet, where payloads of up to `copied` bytes may be copied;
    /// 0: none is.
    fn bytes_per_packet(copied: usize) -> usize {
        CONTROL_FRAME.max(HEADER_BYTES + copied)
    }

    /// Bytes of DPDK's memory that the pools of a queue of `descriptors` entries take.
    pub fn bytes(descriptors: usize, burst: usize, copied: usize) -> usize {
        let mbufs = pool_size(descriptors, burst);
        pool_bytes(mbufs, Self::bytes_per_packet(copied)) + pool_bytes(mbufs, 0)
    }

    /// Pools for a queue of `descriptors` entries, counting everything that may hold packets after
    /// it, with room to copy payloads of up to `copied` bytes. Their names, which are unique in a
    /// process, begin with `prefix`.
    pub fn new(
        eal: &Eal,
        prefix: &str,
        descriptors: usize,
        burst: usize,
        copied: usize,
    ) -> Result<Self, dpdk::DpdkError> {
        let pool = |name: &str, data_room: usize| {
            let mbufs = pool_size(descriptors, burst);
            let config = PoolConfig {
                mbufs,
                cache: burst,
                data_room,
                socket: None,
            };
            let pool = MbufPool::new(eal, &format!("{prefix}_{name}"), config)?;
            pool.check_size(descriptors, burst)?;
            Ok(pool)
        };
        Ok(Self {
            headers: pool("headers", Self::bytes_per_packet(copied))?,
            segments: pool("segments", 0)?,
        })
    }

    /// Keeps both until the port of `queue` is closed.
    pub fn outlive(&self, queue: &TxQueue) {
        queue.keep(self.headers.clone());
        queue.keep(self.segments.clone());
    }
}

#[cfg(test)]
mod tests {
    use dpdk::BURST;

    use super::*;

    #[test]
    fn pools_take_what_is_told_before() {
        for (descriptors, copied) in [(512, 0), (1024, 8192)] {
            let name = format!("tx_bytes_{copied}");
            let pools = TxPools::new(Eal::for_tests(), &name, descriptors, BURST, copied).unwrap();
            let bytes = [&pools.headers, &pools.segments].map(|pool| {
                let PoolConfig {
                    mbufs, data_room, ..
                } = pool.config();
                pool_bytes(mbufs, data_room)
            });
            let told = TxPools::bytes(descriptors, BURST, copied);
            assert_eq!(told, bytes.iter().sum::<usize>());
        }
    }
}
