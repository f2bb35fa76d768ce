"""katgpucbf's fgpu where there is no GPU: its program and its kernels as they are, by OpenCL on the CPU (pocl).

Takes fgpu's own command line. In place of CUDA there are

* OpenCL's queues and buffers, by katsdpsigproc's own layer, and the kernels' CUDA words in OpenCL's;
* memory of the host, which pocl's kernels use as it is, for what vkgdr maps;
* pocketfft in single precision (scipy's) for cuFFT.

Kernels are not tuned: they take what katsdpsigproc's tests take. Dither is not to be had, for its generator is CUDA's.
"""

import re
import sys
import types

import numpy as np
import scipy.fft

# What CUDA has and OpenCL does not.
WORDS = """
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
typedef struct unpack_t unpack_t;
#define fminf(a, b) fmin((float) (a), (float) (b))
#define fmaxf(a, b) fmax((float) (a), (float) (b))
static uint __byte_perm(uint low, uint high, uint selector)
{
    ulong all = ((ulong) high << 32) | low;
    uint result = 0;
    for (int i = 0; i < 4; i++)
        result |= (uint) ((all >> (((selector >> (4 * i)) & 7) * 8)) & 0xff) << (8 * i);
    return result;
}
static uint __funnelshift_l(uint low, uint high, uint shift)
{
    return (uint) (((((ulong) high << 32) | low) << (shift & 31)) >> 32);
}
static float sine_and_cosine(float angle, float *cosine)
{
    return sincos(angle, cosine);
}
__attribute__((overloadable)) static uint atomicAdd(__global uint *sum, uint more)
{
    return atomic_add(sum, more);
}
__attribute__((overloadable)) static ulong atomicAdd(__global ulong *sum, ulong more)
{
    return atom_add(sum, more);
}
"""
# What is written otherwise: addresses of a vector's elements, pointers, constants of C++, the name of a type.
REWRITTEN = [
    (r"__sincosf\((.*), &(\w+\.y), &(\w+\.x)\);", r"{ float cosine; \2 = sine_and_cosine(\1, &cosine); \3 = cosine; }"),
    (
        r"(saturated\[i\] \+= .*)&q\[i\]\.x(.*)&q\[i\]\.y(.*;)",
        r"{ int parts[2]; \1&parts[0]\2&parts[1]\3 q[i] = (int2) (parts[0], parts[1]); }",
    ),
    (r"qjones \*base =", "GLOBAL qjones *base ="),
    (r"\blocal(?=[.;])", "shared"),
    (r"const int (group_in_size|group_in_words|load_rounds) =([^;]*);", r"enum { \1 =\2 };"),
    (r"\bunsigned long long\b", "ulong"),
]


def opencl(source):
    """A kernel's source in OpenCL's words."""
    for pattern, replacement in REWRITTEN:
        source = re.sub(pattern, replacement, source)
    return WORDS + source


class Cuda(types.ModuleType):
    """Stands for a module that only CUDA has: each name is a class of its own."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for absent in ("katsdpsigproc.cuda", "vkgdr", "vkgdr.pycuda"):
    sys.modules[absent] = Cuda(absent)
sys.modules["vkgdr"].pycuda = sys.modules["vkgdr.pycuda"]

import pyopencl  # noqa: E402
import pyopencl.array  # noqa: E402
from katsdpsigproc import accel, fft, tune  # noqa: E402
from katsdpsigproc import opencl as layer  # noqa: E402


class FftTemplate:
    """Transforms of complex numbers in single precision, along the last axis."""

    def __init__(self, _context, axes, shape, source, dest, padded_source, padded_dest):
        assert axes == 1 and source == dest == np.complex64
        assert shape == padded_source == padded_dest
        self.shape = shape

    def instantiate(self, command_queue, mode, allocator=None):
        assert mode == fft.FftMode.FORWARD
        return Fft(self, command_queue, allocator)


class Fft(accel.Operation):
    def __init__(self, template, command_queue, allocator):
        super().__init__(command_queue, allocator)
        exact = [accel.Dimension(size, exact=True) for size in template.shape]
        self.slots["src"] = accel.IOSlot(exact, np.complex64)
        self.slots["dest"] = accel.IOSlot(exact, np.complex64)

    def _run(self):
        queue = self.command_queue._pyopencl_command_queue

        def mapped(slot, flags):
            of = self.buffer(slot)
            array, _ = pyopencl.enqueue_map_buffer(queue, of.buffer.data, flags, 0, of.shape, np.complex64)
            return array

        source, dest = mapped("src", pyopencl.map_flags.READ), mapped("dest", pyopencl.map_flags.WRITE)
        dest[:] = scipy.fft.fft(source, axis=-1)
        for array in (source, dest):
            array.base.release(queue)


class Device(layer.Device):
    """The CPU, as the engine wants its GPU."""

    is_cuda = True
    simd_group_size = 32
    _pycuda_device = None


class Context(layer.Context):
    def __init__(self, context):
        super().__init__(context)
        self.device_of_cuda = Device(context.devices[0])

    @property
    def device(self):
        return self.device_of_cuda

    def compile(self, source, extra_flags=None):
        program = pyopencl.Program(self._pyopencl_context, opencl(source))
        return layer.Program(program.build(["-w"]))


def read(self, buffer, data, blocking=True):
    pyopencl.enqueue_copy(self._pyopencl_command_queue, data, buffer.data, is_blocking=blocking)


def write(self, buffer, data, blocking=True):
    pyopencl.enqueue_copy(self._pyopencl_command_queue, buffer.data, data, is_blocking=blocking)


# katsdpsigproc's own use words that PyOpenCL has no more.
layer.CommandQueue.enqueue_read_buffer, layer.CommandQueue.enqueue_write_buffer = read, write


def create_some_context(**_):
    devices = [device for platform in pyopencl.get_platforms() for device in platform.get_devices()]
    devices = [device for device in devices if device.type & pyopencl.device_type.CPU]
    if not devices:
        sys.exit("OpenCL has no CPU here: pocl is not installed")
    return Context(pyopencl.Context(devices[:1]))


accel.create_some_context = create_some_context
fft.FftTemplate = FftTemplate
tune.autotuner_impl = tune.stub_autotuner

from katgpucbf import mapped_array  # noqa: E402


@classmethod
def from_slot(cls, _handle, context, slot):
    """An array of the host's that kernels read where it is."""
    padded = slot.required_padded_shape()
    host = np.zeros(padded, slot.dtype)
    flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.USE_HOST_PTR
    raw = pyopencl.Buffer(context._pyopencl_context, flags, hostbuf=host)
    device = accel.DeviceArray(context, slot.shape, slot.dtype, padded, raw=raw)
    return cls(host=host[tuple(slice(0, size) for size in slot.shape)], device=device)


mapped_array.make_vkgdr = lambda _device: None
mapped_array.MappedArray.from_slot = from_slot

from katgpucbf.fgpu.main import main  # noqa: E402

main()
