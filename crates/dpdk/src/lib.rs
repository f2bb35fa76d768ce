//! Safe layer over DPDK.
//!
//! Everything starts from [`Eal`]: whatever needs DPDK to be up takes a reference to it and keeps a
//! clone.
//!
//! | to | use |
//! |---|---|
//! | start DPDK | [`Eal::init`]`(&EalConfig { .. })`, on huge pages if enough are free |
//! | run on a worker lcore | [`Eal::workers`], [`Eal::launch`], [`LcoreHandle::join`] |
//! | size pools and EAL | [`pool_size`], [`pool_bytes`], [`memory_mib`] |
//! | get mbufs | [`MbufPool::new`]`(&eal, name, PoolConfig { .. })` |
//! | fill a packet | [`MbufPool::alloc`], [`Mbuf::append`], [`Mbuf::prepend`], [`Mbuf::chain`] |
//! | read a packet | [`Mbuf::data`], [`Mbuf::segments`], [`Mbuf::pkt_len`], [`Mbuf::copy_to`] |
//! | hold a burst | [`MbufBatch`]: `push`, `pop`, `iter`, `clear`; nothing allocated |
//! | send from a chunk | [`ExtPool::take`], [`ExtBuffer::share`], [`SharedBuffer::attach`] |
//! | let a device read chunks | [`Port::register`]`(&pool)`, unless [`Port::is_virtual`] |
//! | pass packets on | [`mbuf_ring`] (one producer, one consumer), [`SharedRing`] |
//! | get a port | [`Device::by_name`], [`Device::vdev`], [`Device::rings`] |
//! | start a port | [`Device::start`]`(&PortConfig { .. })` |
//! | get one without any rights | [`SocketPort::open`]`(&eal, SocketConfig { .. })` |
//! | receive, transmit | [`RxQueue::rx_burst`], [`TxQueue::tx_burst`]: what is not taken stays |
//! | steer packets | [`Device::isolate`], [`Flows::steer`]`(&port, &rules)` |
//! | lose what a port without a link does not take | [`TxQueue::tx_burst_or_lose`] |
//! | count | [`Port::stats`], [`Port::xstats`], [`Port::link`] |
//! | measure time | [`Eal::tsc_clock`] |
//!
//! A packet is freed by dropping it, on any thread. Queues and ring ends are `Send` but not
//! `Clone`: each has one owner at a time. A port closes when its [`Port`] and all of its queues are
//! dropped; a chunk goes back to its [`ExtPool`] when its [`SharedBuffer`] and all packets that
//! point into it are.
#![allow(unsafe_code)]

mod device;
mod dma;
mod eal;
mod error;
mod extbuf;
mod files;
mod flow;
mod huge_pages;
mod lcore;
mod log;
mod mbuf;
mod mempool;
mod outage;
mod packet_socket;
mod port;
mod ring;
mod sockets;
#[cfg(feature = "nic")]
mod split;
mod start;

pub use device::{Device, DeviceInfo};
pub use eal::{Eal, EalConfig, EalError};
pub use error::{DpdkError, Errno, Memory};
pub use extbuf::{AttachError, ExtBuffer, ExtMemory, ExtPool, MAX_HANDLES, SharedBuffer};
pub use flow::{FlowError, FlowRule, Flows, QueueId};
pub use huge_pages::{HugePages, TakenPages, free_huge_pages_mib, have_huge_pages, plain_mib};
pub use lcore::{Lcore, LcoreHandle, LcoreId, LcorePanic};
pub use mbuf::{ChainTooLong, Mbuf, MbufBatch, Segments};
pub use mempool::{HEADROOM, MbufPool, PoolConfig, memory_mib, pool_bytes, pool_size};
pub use port::{Link, Port, PortStats, RxQueue, StartedPort, TxQueue};
pub use ring::{RingReceiver, RingSender, SharedRing, mbuf_ring};
pub use sockets::{SocketConfig, SocketGroups, SocketPort};
#[cfg(feature = "nic")]
pub use split::{
    DmaMemory, PayloadPool, SplitBatch, SplitConfig, SplitPacket, SplitPort, SplitQueue,
};
pub use start::PortConfig;

/// Packets per burst.
pub const BURST: usize = 32;
