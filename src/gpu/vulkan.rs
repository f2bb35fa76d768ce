//! Memory of a GPU that the CPU can write, allocated and exported through Vulkan.
//!
//! One thread of the process makes all calls, with one instance, and both stay. NVIDIA's driver
//! hangs where a thread that has called it ends while another closes a device (seen with 580.159:
//! each waits for a lock of the other), and may crash where several threads start instances (wgpu's
//! issue 5930). It may crash as well where a process ends with an open device, so that devices do
//! not stay. It opens 63 in a process, so that all share one for each GPU.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use ash::{khr, vk};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::BarError;

/// What the memory must be: of the GPU, and mapped for the CPU without explicit flushes.
const PROPERTIES: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::DEVICE_LOCAL.as_raw()
        | vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw()
        | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);
const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

fn failed(what: &'static str) -> impl Fn(vk::Result) -> BarError {
    move |cause| BarError::Vulkan { what, cause }
}

/// The thread that calls Vulkan.
fn thread() -> Result<&'static ThreadPool, BarError> {
    static THREAD: OnceLock<Result<ThreadPool, String>> = OnceLock::new();
    let start = || {
        let pool = ThreadPoolBuilder::new().num_threads(1);
        let pool = pool.thread_name(|_| "vulkan".to_owned()).build();
        pool.map_err(|error| error.to_string())
    };
    let thread = THREAD.get_or_init(start).as_ref();
    thread.map_err(|error| BarError::NoThread(error.clone()))
}

/// An instance, and the loader that must outlive it.
struct Instance {
    raw: ash::Instance,
    _entry: ash::Entry,
}

impl Instance {
    /// The instance of the process. If there is none yet and it cannot be had, the next call tries
    /// again.
    fn of_process() -> Result<&'static Self, BarError> {
        static INSTANCE: OnceLock<Instance> = OnceLock::new();
        if let Some(instance) = INSTANCE.get() {
            return Ok(instance);
        }
        let instance = Self::new()?;
        Ok(INSTANCE.get_or_init(|| instance))
    }

    fn new() -> Result<Self, BarError> {
        // SAFETY: loading a library runs its initialisers; the loader's are harmless.
        let entry =
            unsafe { ash::Entry::load() }.map_err(|error| BarError::NoLoader(error.to_string()))?;
        // SAFETY: the loader is there.
        let version = unsafe { entry.try_enumerate_instance_version() };
        if !matches!(version, Ok(Some(version)) if version >= vk::API_VERSION_1_1) {
            return Err(BarError::NoLoader("it is older than Vulkan 1.1".into()));
        }
        let application = vk::ApplicationInfo::default()
            .application_name(c"karoo")
            .api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures are valid and live through the call.
        let raw = match unsafe { entry.create_instance(&info, None) } {
            // The loader found no driver at all.
            Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => {
                return Err(BarError::NoDevice { found: Vec::new() });
            }
            result => result.map_err(failed("start"))?,
        };
        Ok(Self { raw, _entry: entry })
    }

    /// The device with this UUID, which Vulkan and CUDA share.
    fn find(&self, uuid: [u8; 16]) -> Result<vk::PhysicalDevice, BarError> {
        // SAFETY: the instance is there.
        let devices =
            unsafe { self.raw.enumerate_physical_devices() }.map_err(failed("list its devices"))?;
        let mut found = Vec::new();
        for device in devices {
            let mut ids = vk::PhysicalDeviceIDProperties::default();
            let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
            // SAFETY: the device is of this instance, which has the function since version 1.1.
            unsafe { self.raw.get_physical_device_properties2(device, &mut all) };
            let name = all.properties.device_name;
            let version = all.properties.api_version;
            if ids.device_uuid == uuid && version >= vk::API_VERSION_1_1 {
                return Ok(device);
            }
            let name = name.map(|c| c as u8);
            let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
            found.push(name.to_string_lossy().into_owned());
        }
        Err(BarError::NoDevice { found })
    }
}

/// A GPU as Vulkan has it. Whoever needs it shares it.
pub(super) struct Vulkan {
    uuid: [u8; 16],
    thread: &'static ThreadPool,
    device: ash::Device,
    export: khr::external_memory_fd::Device,
    memory_type: u32,
    heap_bytes: u64,
}

impl Vulkan {
    /// The GPU with this UUID, opened unless it is.
    pub fn of_gpu(uuid: [u8; 16]) -> Result<Arc<Self>, BarError> {
        static OPEN: Mutex<Vec<Weak<Vulkan>>> = Mutex::new(Vec::new());
        let thread = thread()?;
        thread.install(|| {
            let mut open = ground::lock(&OPEN);
            open.retain(|vulkan| vulkan.strong_count() > 0);
            let mut opened = open.iter().filter_map(Weak::upgrade);
            if let Some(vulkan) = opened.find(|vulkan| vulkan.uuid == uuid) {
                return Ok(vulkan);
            }
            let vulkan = Arc::new(Self::open(thread, uuid)?);
            open.push(Arc::downgrade(&vulkan));
            Ok(vulkan)
        })
    }

    fn open(thread: &'static ThreadPool, uuid: [u8; 16]) -> Result<Self, BarError> {
        let instance = Instance::of_process()?;
        let physical = instance.find(uuid)?;
        // SAFETY: the device is of this instance.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
        let heap_bytes = |kind: &vk::MemoryType| memory.memory_heaps[kind.heap_index as usize].size;
        // Of those with the largest heap, the first: drivers put the preferred type in front.
        let (memory_type, heap_bytes) = memory
            .memory_types_as_slice()
            .iter()
            .zip(0..)
            .filter(|(kind, _)| kind.property_flags.contains(PROPERTIES))
            .map(|(kind, index)| (index, heap_bytes(kind)))
            .min_by_key(|&(_, bytes)| std::cmp::Reverse(bytes))
            .ok_or(BarError::NotMappable)?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0])];
        let extensions = [khr::external_memory_fd::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions);
        // SAFETY: the structures are valid and live through the call.
        let device = unsafe { instance.raw.create_device(physical, &info, None) }
            .map_err(failed("open the GPU"))?;
        Ok(Self {
            uuid,
            thread,
            export: khr::external_memory_fd::Device::new(&instance.raw, &device),
            device,
            memory_type,
            heap_bytes,
        })
    }

    /// Bytes of GPU memory that the CPU can reach.
    pub fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Memory of `bytes` or a little more, mapped for the CPU, and the handle under which CUDA can
    /// import it.
    ///
    /// The first suitable type of memory is taken, bound to no buffer: none is needed, and what a
    /// buffer may be in is a narrower choice.
    pub fn allocate(self: &Arc<Self>, bytes: u64) -> Result<(VulkanMemory, OwnedFd), BarError> {
        self.thread.install(|| self.allocate_here(bytes))
    }

    fn allocate_here(self: &Arc<Self>, bytes: u64) -> Result<(VulkanMemory, OwnedFd), BarError> {
        /// A page of a GPU.
        const PAGE: u64 = 1 << 16;
        let device = &self.device;
        let bytes = bytes.max(1).div_ceil(PAGE).saturating_mul(PAGE);
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLE);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(self.memory_type)
            .push_next(&mut export);
        // SAFETY: here and below, handles are of this device and live, and structures are valid
        // through the calls.
        let memory = unsafe { device.allocate_memory(&info, None) }
            .map_err(failed("allocate memory that the CPU can write"))?;
        let mut memory = VulkanMemory {
            vulkan: self.clone(),
            memory,
            start: NonNull::slice_from_raw_parts(NonNull::dangling(), 0),
        };
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible and not mapped yet.
        let address = unsafe { device.map_memory(memory.memory, 0, vk::WHOLE_SIZE, flags) }
            .map_err(failed("map memory for the CPU"))?;
        let start = NonNull::new(address.cast()).ok_or(vk::Result::ERROR_MEMORY_MAP_FAILED);
        let start = start.map_err(failed("map memory for the CPU"))?;
        memory.start = NonNull::slice_from_raw_parts(start, bytes as usize);
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory.memory)
            .handle_type(HANDLE);
        // SAFETY: the memory was allocated for export.
        let handle =
            unsafe { self.export.get_memory_fd(&info) }.map_err(failed("export memory"))?;
        // SAFETY: the call succeeded and gave the descriptor away.
        Ok((memory, unsafe { OwnedFd::from_raw_fd(handle) }))
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: its memory keeps the device, so that nothing is left.
        let close = || unsafe { self.device.destroy_device(None) };
        self.thread.install(close);
    }
}

impl std::fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vulkan")
            .field("memory_type", &self.memory_type)
            .field("heap_bytes", &self.heap_bytes)
            .finish_non_exhaustive()
    }
}

/// One allocation, mapped for the CPU.
#[derive(Debug)]
pub(super) struct VulkanMemory {
    vulkan: Arc<Vulkan>,
    memory: vk::DeviceMemory,
    start: NonNull<[u8]>,
}

// SAFETY: the mapping is plain memory that the value owns alone; its handles are used when it is
// dropped only.
unsafe impl Send for VulkanMemory {}
// SAFETY: shared access hands out only a raw pointer.
unsafe impl Sync for VulkanMemory {}

impl VulkanMemory {
    /// Where the CPU has it.
    pub fn start(&self) -> NonNull<[u8]> {
        self.start
    }
}

impl Drop for VulkanMemory {
    fn drop(&mut self) {
        // SAFETY: whoever used the mapping is gone with its owner. Freeing unmaps.
        let free = || unsafe { self.vulkan.device.free_memory(self.memory, None) };
        self.vulkan.thread.install(free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With whatever device of Vulkan there is: a GPU, or a driver that computes on the CPU.
    /// KAROO_TEST_VULKAN says that there is one.
    #[test]
    fn memory_is_mapped_apart_whole_and_exported() {
        let thread = thread().unwrap();
        let instance = match thread.install(Instance::of_process) {
            Ok(instance) => instance,
            Err(error @ (BarError::NoLoader(_) | BarError::NoDevice { .. }))
                if std::env::var_os("KAROO_TEST_VULKAN").is_none() =>
            {
                return println!("{error}");
            }
            Err(error) => panic!("{error}"),
        };
        // SAFETY: the instance is there, and so are its devices.
        let uuids: Vec<_> = thread.install(|| unsafe {
            let devices = instance.raw.enumerate_physical_devices().unwrap();
            let uuid = |device| {
                let mut ids = vk::PhysicalDeviceIDProperties::default();
                let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
                instance
                    .raw
                    .get_physical_device_properties2(device, &mut all);
                ids.device_uuid
            };
            devices.into_iter().map(uuid).collect()
        });
        for uuid in uuids {
            let vulkan = match Vulkan::of_gpu(uuid) {
                Ok(vulkan) => vulkan,
                Err(error @ BarError::NotMappable) => {
                    println!("{error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert!(vulkan.heap_bytes() > 0);
            assert!(Arc::ptr_eq(&vulkan, &Vulkan::of_gpu(uuid).unwrap()));
            let mut kept = Vec::new();
            for (bytes, fill) in [(1, 1), (5000, 2), (3 << 20, 3)] {
                let (memory, handle) = vulkan.allocate(bytes).unwrap();
                // SAFETY: the memory is this test's alone.
                let contents = unsafe { &mut *memory.start().as_ptr() };
                assert!(contents.len() as u64 >= bytes);
                contents.fill(fill);
                kept.push((memory, handle, fill));
            }
            drop(vulkan);
            for (memory, _handle, fill) in kept {
                // SAFETY: as above.
                let contents = unsafe { &*memory.start().as_ptr() };
                assert!(contents.iter().all(|&byte| byte == fill));
            }
            Vulkan::of_gpu(uuid).expect("it can be opened again");
        }
    }

    #[test]
    fn a_gpu_that_vulkan_does_not_have_is_not_found() {
        match Vulkan::of_gpu([0xA5; 16]) {
            Err(BarError::NoLoader(_) | BarError::NoDevice { .. }) => (),
            other => panic!("{other:?}"),
        }
    }
}
