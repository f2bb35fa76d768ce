//! Memory that is not DPDK's, for devices that reach it by DMA: EAL is told of it once, then each
//! device.

use std::any::Any;
use std::ffi::c_void;

use super::error::{DpdkError, Errno};
use super::{Device, Eal};

/// A range of memory that EAL knows, until this is dropped.
#[derive(Debug)]
pub(super) struct RegisteredRange {
    address: usize,
    length: usize,
    _eal: Eal,
}

impl RegisteredRange {
    /// Tells EAL of `length` bytes at `address`, both multiples of `page`.
    ///
    /// # Safety
    ///
    /// They are not given back before the value is dropped.
    pub(super) unsafe fn new(
        eal: &Eal,
        address: usize,
        length: usize,
        page: usize,
    ) -> Result<Self, DpdkError> {
        let start = address as *mut c_void;
        // Where devices have it is said when it is mapped for them.
        let no_addresses = std::ptr::null_mut();
        // SAFETY: EAL is up, and only notes the range.
        let ret = unsafe { dpdk_sys::rte_extmem_register(start, length, no_addresses, 0, page) };
        if ret != 0 {
            return Err(DpdkError::call(
                format!("rte_extmem_register({start:p}, {length})"),
                Errno::last(),
            ));
        }
        Ok(Self {
            address,
            length,
            _eal: eal.clone(),
        })
    }
}

impl Drop for RegisteredRange {
    fn drop(&mut self) {
        // SAFETY: the range was registered, and whoever mapped it kept this until it was unmapped.
        unsafe { dpdk_sys::rte_extmem_unregister(self.address as *mut c_void, self.length) };
    }
}

/// A range that a device reaches at its virtual address, until this is dropped.
pub(super) struct Mapping {
    device: *mut dpdk_sys::rte_device,
    address: usize,
    length: usize,
    /// What the range belongs to, its [`RegisteredRange`] too.
    _memory: Box<dyn Any + Send + Sync>,
}

// SAFETY: the device stays until its owner, which keeps this, lets go of both.
unsafe impl Send for Mapping {}
// SAFETY: as above; it is used when it is dropped only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a range that `memory` keeps known.
    ///
    /// Refuses EAL in IOVA-as-PA mode: there the device sees physical pages, and nothing keeps
    /// those of a range together.
    pub(super) fn new(
        device: &Device,
        range: &RegisteredRange,
        memory: impl Send + Sync + 'static,
    ) -> Result<Self, DpdkError> {
        let &RegisteredRange {
            address, length, ..
        } = range;
        if device.eal.uses_physical_addresses() {
            return Err(DpdkError::Value {
                what: "EAL IOVA mode",
                value: "PA".into(),
                rule: "must be VA for a device to follow memory across its pages: bind the device to vfio-pci behind an IOMMU",
            });
        }
        let (raw, start) = (device.raw_info()?.device, address as *mut c_void);
        // SAFETY: the device exists, and the range stays for as long as the mapping, which has its
        // memory.
        let ret = unsafe { dpdk_sys::rte_dev_dma_map(raw, start, address as u64, length) };
        if ret != 0 {
            return Err(DpdkError::call(
                format!(
                    "rte_dev_dma_map({start:p}, {length}) on port '{}'",
                    device.name()
                ),
                Errno::last(),
            ));
        }
        Ok(Self {
            device: raw,
            address,
            length,
            _memory: Box::new(memory),
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let start = self.address as *mut c_void;
        // SAFETY: mapped by `new`; the port is stopped, and not closed yet.
        unsafe {
            dpdk_sys::rte_dev_dma_unmap(self.device, start, self.address as u64, self.length)
        };
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({:#x}, {})", self.address, self.length)
    }
}
