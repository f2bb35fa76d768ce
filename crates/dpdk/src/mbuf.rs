//! Owned packets, and bursts of them.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use dpdk_sys::rte_mbuf;

/// A packet: one mbuf, or a chain of them. It returns to its pool on drop.
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an Mbuf is the only handle on its chain, and pools take mbufs back from any thread.
unsafe impl Send for Mbuf {}
// SAFETY: `&Mbuf` only reads.
unsafe impl Sync for Mbuf {}

/// Could not chain: the packet would have more than 65,535 segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet has at most 65535 segments")]
pub struct ChainTooLong;

/// Reads the field of type `$ty` at a `KAROO_MBUF_*` offset.
macro_rules! field {
    ($mbuf:expr, $ty:ty, $offset:ident) => {
        $mbuf
            .cast::<u8>()
            .add(dpdk_sys::$offset as usize)
            .cast::<$ty>()
            .read()
    };
}

impl Mbuf {
    /// Takes over a chain, or nothing if the pointer is null.
    ///
    /// # Safety
    /// The chain is valid and its references belong to the caller alone.
    pub(super) unsafe fn from_raw(mbuf: *mut rte_mbuf) -> Option<Self> {
        NonNull::new(mbuf).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *mut rte_mbuf {
        self.0.as_ptr()
    }

    /// Asks the CPU to bring the first cache lines of the data closer.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in self.data().chunks(64).take(2) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing; every x86-64 CPU has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }

    /// Asks the CPU to bring the first `bytes` of an empty packet's room closer, to be written.
    #[inline]
    pub fn prefetch_room(&self, bytes: usize) {
        #[cfg(target_arch = "x86_64")]
        for offset in (0..bytes).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: as in `segment_data` for the fields; a prefetch changes nothing, wherever it
            // points, and CPUs without this hint ignore it.
            unsafe {
                let buffer = field!(self.0.as_ptr(), *const u8, KAROO_MBUF_BUF_ADDR);
                let start = field!(self.0.as_ptr(), u16, KAROO_MBUF_DATA_OFF) as usize;
                _mm_prefetch::<_MM_HINT_ET0>(buffer.wrapping_add(start + offset).cast());
            }
        }
    }

    /// Data of the first segment.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `self` owns the chain, so its first mbuf and its data stay put while `self` is
        // borrowed.
        unsafe { segment_data(self.0.as_ptr()) }
    }

    /// Data of the first segment; empty if that is an external buffer, whose memory others may be
    /// reading.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mbuf is ours alone.
        if unsafe { dpdk_sys::karoo_pktmbuf_is_external(self.0.as_ptr()) } != 0 {
            return &mut [];
        }
        // SAFETY: as in `data`, and `&mut self` makes the borrow unique; a direct mbuf's data is
        // its own.
        unsafe {
            let data = segment_data(self.0.as_ptr());
            std::slice::from_raw_parts_mut(data.as_ptr().cast_mut(), data.len())
        }
    }

    /// Bytes of all segments.
    #[inline]
    pub fn pkt_len(&self) -> usize {
        // SAFETY: the mbuf is valid; the offset is the installed release's.
        unsafe { field!(self.0.as_ptr(), u32, KAROO_MBUF_PKT_LEN) as usize }
    }

    /// Segments.
    #[inline]
    pub fn nb_segs(&self) -> usize {
        // SAFETY: as in `pkt_len`.
        unsafe { field!(self.0.as_ptr(), u16, KAROO_MBUF_NB_SEGS) as usize }
    }

    /// Whether the device found a checksum wrong; false also where it was not asked to look.
    #[inline]
    pub fn has_bad_checksum(&self) -> bool {
        // SAFETY: the mbuf is ours.
        unsafe { dpdk_sys::karoo_mbuf_bad_checksum(self.0.as_ptr()) != 0 }
    }

    /// Port that it was received on.
    #[inline]
    pub fn port(&self) -> u16 {
        // SAFETY: as in `pkt_len`.
        unsafe { field!(self.0.as_ptr(), u16, KAROO_MBUF_PORT) }
    }

    /// Address and length of the second and last segment's data, which the CPU may not be able to
    /// read.
    #[cfg(feature = "nic")]
    #[inline]
    pub(super) fn second_of_two(&self) -> Option<(u64, usize)> {
        if self.nb_segs() != 2 {
            return None;
        }
        // SAFETY: as in `pkt_len`; of the second mbuf, only the mbuf itself is read.
        unsafe {
            let second = field!(self.0.as_ptr(), *mut rte_mbuf, KAROO_MBUF_NEXT);
            let start = field!(second, u64, KAROO_MBUF_BUF_ADDR);
            let offset = field!(second, u16, KAROO_MBUF_DATA_OFF);
            let length = field!(second, u16, KAROO_MBUF_DATA_LEN);
            Some((start + u64::from(offset), length.into()))
        }
    }

    /// Data of each segment in turn.
    pub fn segments(&self) -> Segments<'_> {
        Segments {
            next: self.0.as_ptr(),
            _packet: PhantomData,
        }
    }

    /// Copies the bytes of all segments to the front of `out`; returns how many.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for segment in self.segments() {
            let length = segment.len().min(out.len() - copied);
            out[copied..copied + length].copy_from_slice(&segment[..length]);
            copied += length;
        }
        copied
    }

    /// Grows the last segment by `length` bytes and returns them, or `None` if it has no such room.
    #[inline]
    pub fn append(&mut self, length: usize) -> Option<&mut [u8]> {
        let length = u16::try_from(length).ok()?;
        // SAFETY: the chain is ours alone.
        let last = unsafe { last_segment(self.0.as_ptr()) };
        // SAFETY: as above.
        if unsafe { dpdk_sys::karoo_pktmbuf_is_external(last) != 0 || overfull(last) } {
            return None;
        }
        // SAFETY: the chain is ours alone; DPDK returns null or `length` bytes inside the last data
        // room, whose data lie in it.
        unsafe {
            let start = dpdk_sys::karoo_pktmbuf_append(self.0.as_ptr(), length);
            slice_or_none(start.cast(), length)
        }
    }

    /// Gives up what is behind the first `length` bytes of a packet of one segment; nothing happens
    /// where it has fewer.
    #[inline]
    pub(super) fn shorten(&mut self, length: usize) {
        if self.nb_segs() == 1
            && let Some(surplus) = self.pkt_len().checked_sub(length)
            && let Ok(surplus) = u16::try_from(surplus)
        {
            // SAFETY: the mbuf is ours alone, and has at least so many bytes.
            unsafe { dpdk_sys::karoo_pktmbuf_trim(self.0.as_ptr(), surplus) };
        }
    }

    /// Grows the first segment by `length` bytes in front and returns them, or `None` if it has no
    /// such headroom.
    #[inline]
    pub fn prepend(&mut self, length: usize) -> Option<&mut [u8]> {
        let length = u16::try_from(length).ok()?;
        // SAFETY: the mbuf is ours alone.
        if unsafe { dpdk_sys::karoo_pktmbuf_is_external(self.0.as_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the mbuf is ours alone; DPDK returns null or `length` bytes inside the first data
        // room.
        unsafe {
            let start = dpdk_sys::karoo_pktmbuf_prepend(self.0.as_ptr(), length);
            slice_or_none(start.cast(), length)
        }
    }

    /// Adds the segments of `tail` to the end of this packet; gives `tail` up (and frees it) if
    /// there are too many.
    #[inline]
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), ChainTooLong> {
        // SAFETY: both chains are ours alone; on success the second one becomes part of the first.
        let ret = unsafe { dpdk_sys::karoo_pktmbuf_chain(self.0.as_ptr(), tail.0.as_ptr()) };
        if ret != 0 {
            return Err(ChainTooLong);
        }
        std::mem::forget(tail);
        Ok(())
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        // SAFETY: the chain is ours, and a pool outlives its mbufs.
        unsafe { dpdk_sys::karoo_pktmbuf_free(self.0.as_ptr()) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("pkt_len", &self.pkt_len())
            .field("nb_segs", &self.nb_segs())
            .finish()
    }
}

/// # Safety
/// The mbuf is valid, and its data stays put for `'a`.
unsafe fn segment_data<'a>(mbuf: *const rte_mbuf) -> &'a [u8] {
    // SAFETY: the offsets are the installed release's; the data lies inside the mbuf's buffer.
    unsafe {
        let buffer = field!(mbuf, *const u8, KAROO_MBUF_BUF_ADDR);
        let offset = field!(mbuf, u16, KAROO_MBUF_DATA_OFF) as usize;
        let room = field!(mbuf, u16, KAROO_MBUF_BUF_LEN) as usize;
        // net_null states its size, whatever the buffer has.
        let length = field!(mbuf, u16, KAROO_MBUF_DATA_LEN) as usize;
        let length = length.min(room.saturating_sub(offset));
        if length == 0 {
            return &[];
        }
        std::slice::from_raw_parts(buffer.add(offset), length)
    }
}

/// Whether more data are stated than the data room has, as net_null does. DPDK's count of what is
/// free wraps then.
///
/// # Safety
/// The mbuf is valid.
unsafe fn overfull(mbuf: *const rte_mbuf) -> bool {
    // SAFETY: the offsets are the installed release's.
    unsafe {
        let offset = field!(mbuf, u16, KAROO_MBUF_DATA_OFF) as usize;
        let length = field!(mbuf, u16, KAROO_MBUF_DATA_LEN) as usize;
        offset + length > field!(mbuf, u16, KAROO_MBUF_BUF_LEN) as usize
    }
}

/// # Safety
/// The chain is valid.
unsafe fn last_segment(mut mbuf: *mut rte_mbuf) -> *mut rte_mbuf {
    loop {
        // SAFETY: each `next` of a valid chain is null or a valid mbuf.
        let next = unsafe { field!(mbuf, *mut rte_mbuf, KAROO_MBUF_NEXT) };
        if next.is_null() {
            return mbuf;
        }
        mbuf = next;
    }
}

/// # Safety
/// `start` is null or the first of `length` bytes that are the caller's alone for `'a`.
unsafe fn slice_or_none<'a>(start: *mut u8, length: u16) -> Option<&'a mut [u8]> {
    // SAFETY: as promised by the caller; pool memory comes from mmap, so its bytes always have a
    // value.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(start, length as usize) })
}

/// Iterator over a packet's segments.
#[derive(Debug)]
pub struct Segments<'a> {
    next: *const rte_mbuf,
    _packet: PhantomData<&'a Mbuf>,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: the chain is valid and borrowed for 'a.
        unsafe {
            let data = segment_data(self.next);
            self.next = field!(self.next, *const rte_mbuf, KAROO_MBUF_NEXT);
            Some(data)
        }
    }
}

/// Packets of one burst, at most `N`, without allocation.
pub struct MbufBatch<const N: usize = { super::BURST }> {
    mbufs: [MaybeUninit<Mbuf>; N],
    length: usize,
}

impl<const N: usize> Default for MbufBatch<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> MbufBatch<N> {
    /// An empty batch.
    pub const fn new() -> Self {
        Self {
            mbufs: [const { MaybeUninit::uninit() }; N],
            length: 0,
        }
    }

    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Packets that it could still take.
    #[inline]
    pub fn room(&self) -> usize {
        N - self.length
    }

    /// Adds a packet; gives it back if the batch is full.
    #[inline]
    pub fn push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.length == N {
            return Err(mbuf);
        }
        self.mbufs[self.length].write(mbuf);
        self.length += 1;
        Ok(())
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the first `length` packets were written, and this one is not counted any more.
        Some(unsafe { self.mbufs[self.length].assume_init_read() })
    }

    /// The packets.
    #[inline]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `length` packets were written; MaybeUninit<Mbuf> is laid out like Mbuf.
        unsafe { std::slice::from_raw_parts(self.mbufs.as_ptr().cast(), self.length) }
    }

    /// The packets, to be changed.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.mbufs.as_mut_ptr().cast(), self.length) }
    }

    /// The packets in order.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Mbuf> {
        self.as_slice().iter()
    }

    /// Frees all packets at once.
    #[inline]
    pub fn clear(&mut self) {
        if self.length != 0 {
            let length = std::mem::take(&mut self.length);
            // SAFETY: the first `length` packets were ours and are not counted any more; Mbuf is a
            // pointer.
            unsafe {
                dpdk_sys::rte_pktmbuf_free_bulk(self.mbufs.as_mut_ptr().cast(), length as u32)
            };
        }
    }

    /// Frees packets at the front; moves the others up.
    pub(super) fn drop_front(&mut self, packets: usize) {
        self.take_raw(|mbufs, count| {
            let packets = packets.min(count);
            // SAFETY: the first `packets` of the batch are ours, and not counted from here on.
            unsafe { dpdk_sys::rte_pktmbuf_free_bulk(mbufs, packets as u32) };
            packets
        });
    }

    /// Lets `fill(free, room)` write packets behind the present ones and say how many; returns
    /// that.
    #[inline]
    pub(super) fn extend_raw(
        &mut self,
        fill: impl FnOnce(*mut *mut rte_mbuf, usize) -> usize,
    ) -> usize {
        let room = self.room();
        let filled = fill(
            self.mbufs.as_mut_ptr().wrapping_add(self.length).cast(),
            room,
        );
        assert!(filled <= room, "a callee wrote past the end of a batch");
        self.length += filled;
        filled
    }

    /// Lets `take(packets, length)` take packets from the front and say how many; moves the others
    /// up.
    #[inline]
    pub(super) fn take_raw(
        &mut self,
        take: impl FnOnce(*mut *mut rte_mbuf, usize) -> usize,
    ) -> usize {
        let length = self.length;
        let start: *mut *mut rte_mbuf = self.mbufs.as_mut_ptr().cast();
        let taken = take(start, length).min(length);
        // SAFETY: both ranges are inside the array; what was in front belongs to the callee now.
        unsafe { ptr::copy(start.add(taken), start, length - taken) };
        self.length = length - taken;
        taken
    }
}

impl<const N: usize> Drop for MbufBatch<N> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<const N: usize> fmt::Debug for MbufBatch<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, const N: usize> IntoIterator for &'a MbufBatch<N> {
    type Item = &'a Mbuf;
    type IntoIter = std::slice::Iter<'a, Mbuf>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
