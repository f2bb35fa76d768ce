//! Memory of a GPU that the CPU can write, allocated and exported through Vulkan.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ash::{khr, vk};

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

/// An instance, and the loader that must outlive it.
struct Instance {
    raw: ash::Instance,
    _entry: ash::Entry,
}

impl Instance {
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

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: whatever was made from the instance keeps it, so that nothing is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// A GPU as Vulkan has it.
pub(super) struct Vulkan {
    device: ash::Device,
    export: khr::external_memory_fd::Device,
    /// Indices of the types of memory that have [`PROPERTIES`], and bytes of their heaps, largest first.
    types: Vec<(u32, u64)>,
    /// Last, so that it goes after the device.
    _instance: Instance,
}

impl Vulkan {
    /// Opens the GPU with this UUID.
    pub fn open(uuid: [u8; 16]) -> Result<Self, BarError> {
        let instance = Instance::new()?;
        let physical = instance.find(uuid)?;
        // SAFETY: the device is of this instance.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
        let heap_bytes = |kind: &vk::MemoryType| memory.memory_heaps[kind.heap_index as usize].size;
        let mut types: Vec<(u32, u64)> = memory
            .memory_types_as_slice()
            .iter()
            .zip(0..)
            .filter(|(kind, _)| kind.property_flags.contains(PROPERTIES))
            .map(|(kind, index)| (index, heap_bytes(kind)))
            .collect();
        types.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
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
            export: khr::external_memory_fd::Device::new(&instance.raw, &device),
            device,
            types,
            _instance: instance,
        })
    }

    /// Bytes of GPU memory that the CPU can reach.
    pub fn heap_bytes(&self) -> u64 {
        self.types.first().map_or(0, |&(_, bytes)| bytes)
    }

    /// Memory of `bytes` or a little more, mapped for the CPU, and the handle under which CUDA can import it.
    pub fn allocate(self: &Arc<Self>, bytes: u64) -> Result<(VulkanMemory, OwnedFd), BarError> {
        let device = &self.device;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST)
            .push_next(&mut external);
        // SAFETY: here and below, handles are of this device and live, and structures are valid through the calls.
        let buffer =
            unsafe { device.create_buffer(&info, None) }.map_err(failed("make a buffer"))?;
        let mut memory = VulkanMemory {
            vulkan: self.clone(),
            buffer,
            memory: vk::DeviceMemory::null(),
            start: NonNull::slice_from_raw_parts(NonNull::dangling(), 0),
        };
        // SAFETY: as above.
        let needs = unsafe { device.get_buffer_memory_requirements(buffer) };
        let allowed = needs.memory_type_bits;
        let memory_type = self
            .types
            .iter()
            .find(|(index, _)| allowed & (1 << index) != 0);
        let &(memory_type, _) = memory_type.ok_or_else(|| BarError::NotMappable {
            mappable: self.types.iter().map(|(index, _)| *index).collect(),
            allowed,
        })?;
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLE);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(memory_type)
            .push_next(&mut dedicated)
            .push_next(&mut export);
        // SAFETY: as above.
        memory.memory = unsafe { device.allocate_memory(&info, None) }
            .map_err(failed("allocate memory that the CPU can write"))?;
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible and not mapped yet.
        let address = unsafe { device.map_memory(memory.memory, 0, vk::WHOLE_SIZE, flags) }
            .map_err(failed("map memory for the CPU"))?;
        let start = NonNull::new(address.cast()).ok_or(vk::Result::ERROR_MEMORY_MAP_FAILED);
        let start = start.map_err(failed("map memory for the CPU"))?;
        memory.start = NonNull::slice_from_raw_parts(start, needs.size as usize);
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
        unsafe { self.device.destroy_device(None) };
    }
}

impl std::fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vulkan")
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

/// One allocation, mapped for the CPU.
#[derive(Debug)]
pub(super) struct VulkanMemory {
    vulkan: Arc<Vulkan>,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    start: NonNull<[u8]>,
}

// SAFETY: the mapping is plain memory that the value owns alone; its handles are used when it is dropped only.
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
        let device = &self.vulkan.device;
        // SAFETY: whoever used the mapping is gone with its owner. Freeing unmaps; null handles are ignored.
        unsafe {
            device.destroy_buffer(self.buffer, None);
            device.free_memory(self.memory, None);
        }
    }
}
