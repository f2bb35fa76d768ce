//! Kernels from source to machine code, with a cache on disk.

use std::ffi::{CStr, CString};
use std::ptr;

use cudarc::nvrtc::{result, sys};

use super::GpuError;
use super::cache::Cache;

/// Sources by name, as `#include` and NVRTC's messages have them.
const HEADERS: [(&CStr, &str); 18] = [
    (c"geometry.cuh", include_str!("../../kernels/geometry.cuh")),
    (c"barrier.cuh", include_str!("../../kernels/barrier.cuh")),
    (c"columns.cuh", include_str!("../../kernels/columns.cuh")),
    (c"copy.cuh", include_str!("../../kernels/copy.cuh")),
    (c"fft.cuh", include_str!("../../kernels/fft.cuh")),
    (c"filter.cuh", include_str!("../../kernels/filter.cuh")),
    (c"correct.cuh", include_str!("../../kernels/correct.cuh")),
    (
        c"first_pass.cuh",
        include_str!("../../kernels/first_pass.cuh"),
    ),
    (c"input.cuh", include_str!("../../kernels/input.cuh")),
    (c"mid.cuh", include_str!("../../kernels/mid.cuh")),
    (c"overlap.cuh", include_str!("../../kernels/overlap.cuh")),
    (c"rows.cuh", include_str!("../../kernels/rows.cuh")),
    (
        c"statistics.cuh",
        include_str!("../../kernels/statistics.cuh"),
    ),
    (
        c"transform.cuh",
        include_str!("../../kernels/transform.cuh"),
    ),
    (c"turns.cuh", include_str!("../../kernels/turns.cuh")),
    (c"tensor.cuh", include_str!("../../kernels/tensor.cuh")),
    (c"unpack.cuh", include_str!("../../kernels/unpack.cuh")),
    (c"philox.cuh", include_str!("../../kernels/philox.cuh")),
];

/// Room of the cache.
const ROOM: &str = "kernels";

/// A kernel's name and source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub name: &'static str,
    text: &'static str,
}

/// Filter and first half of the transform.
pub(super) const PFB_FFT: Source = Source {
    name: "pfb_fft",
    text: include_str!("../../kernels/pfb_fft.cu"),
};

/// The kernel for long runs of spectra, with up to 32 taps.
pub(super) const PFB_FFT_RUN: Source = Source {
    name: "pfb_fft_run",
    text: include_str!("../../kernels/pfb_fft_run.cu"),
};

/// The kernel for oversampled banks.
pub(super) const PFB_FFT_HOPS: Source = Source {
    name: "pfb_fft_hops",
    text: include_str!("../../kernels/pfb_fft_hops.cu"),
};

/// Second half of the transform, and quantisation.
pub(super) const FFT_POST: Source = Source {
    name: "fft_post",
    text: include_str!("../../kernels/fft_post.cu"),
};

/// Down-conversion of narrowband.
pub(super) const DDC: Source = Source {
    name: "ddc",
    text: include_str!("../../kernels/ddc.cu"),
};

/// The digitiser's power where there is no wideband.
pub(super) const POWER: Source = Source {
    name: "power",
    text: include_str!("../../kernels/power.cu"),
};

/// Filter alone.
pub(super) const PFB_FIR: Source = Source {
    name: "pfb_fir",
    text: include_str!("../../kernels/pfb_fir.cu"),
};

/// All behind a transform.
pub(super) const POST: Source = Source {
    name: "post",
    text: include_str!("../../kernels/post.cu"),
};

/// The parts of statistics' sums.
pub(super) const SUM_STATISTICS: Source = Source {
    name: "sum_statistics",
    text: include_str!("../../kernels/sum_statistics.cu"),
};

/// Tables from memory of the host.
pub(super) const COPY_TABLE: Source = Source {
    name: "copy_table",
    text: include_str!("../../kernels/copy_table.cu"),
};

/// Payloads of split packets to their places.
#[cfg(feature = "nic")]
pub(super) const GATHER: Source = Source {
    name: "gather",
    text: include_str!("../../kernels/gather.cu"),
};

/// Machine code of `kernel`, from the cache if it is there.
pub(super) fn machine_code(
    kernel: Source,
    options: &[String],
    cache: &Cache,
) -> Result<Vec<u8>, GpuError> {
    let key = key(kernel, options);
    if let Some(code) = cache.load(ROOM, &key) {
        return Ok(code);
    }
    let code = compile(kernel, options)?;
    cache.store(ROOM, &key, &code);
    Ok(code)
}

/// NVRTC's version, if it is there.
pub fn nvrtc_version() -> Option<String> {
    // SAFETY: loading a library runs its initialisers; NVRTC's are harmless.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are written.
    unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }
        .result()
        .ok()?;
    Some(format!("{major}.{minor}"))
}

/// Everything that the machine code depends on, but for NVRTC's version: newer ones need not
/// compile again.
fn key(kernel: Source, options: &[String]) -> Vec<u8> {
    with_sources(options.join(" "), &[kernel])
}

/// `key` and what the kernels are made of.
pub(super) fn with_sources(mut key: String, kernels: &[Source]) -> Vec<u8> {
    let sources = kernels.iter().map(|kernel| kernel.text);
    for source in sources.chain(HEADERS.map(|(_, source)| source)) {
        key.push('\0');
        key.push_str(source);
    }
    key.into_bytes()
}

/// A program of NVRTC, destroyed when dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created and is destroyed only here.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn compile(kernel: Source, options: &[String]) -> Result<Vec<u8>, GpuError> {
    // SAFETY: loading a library runs its initialisers; NVRTC's are harmless.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::NoCompiler);
    }
    let failed = |log: String| GpuError::Compile {
        kernel: kernel.name,
        log,
    };
    let text = |text: &str| CString::new(text).map_err(|error| failed(error.to_string()));
    let source = text(kernel.text)?;
    let name = text(&format!("{}.cu", kernel.name))?;
    let headers = HEADERS
        .iter()
        .map(|(_, source)| text(source))
        .collect::<Result<Vec<_>, _>>()?;
    let header_sources: Vec<_> = headers.iter().map(|source| source.as_ptr()).collect();
    let header_names: Vec<_> = HEADERS.iter().map(|(name, _)| name.as_ptr()).collect();
    let mut program = ptr::null_mut();
    // SAFETY: all pointers are to NUL-terminated strings that outlive the program, and the two
    // arrays have as many entries as stated.
    unsafe {
        sys::nvrtcCreateProgram(
            &raw mut program,
            source.as_ptr(),
            name.as_ptr(),
            header_sources.len() as i32,
            header_sources.as_ptr(),
            header_names.as_ptr(),
        )
    }
    .result()
    .map_err(|error| failed(error.to_string()))?;
    let program = Program(program);
    // SAFETY: the program exists.
    if let Err(error) = unsafe { result::compile_program(program.0, options) } {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        let log: String = log.iter().map(|&c| char::from(c as u8)).collect();
        return Err(failed(format!("{error}: {}", log.trim_end_matches('\0'))));
    }
    let mut size = 0;
    let mut code = Vec::new();
    // SAFETY: the program exists and is compiled; `code` has the room that NVRTC asks for.
    unsafe {
        sys::nvrtcGetCUBINSize(program.0, &raw mut size)
            .result()
            .and_then(|()| {
                code = vec![0u8; size];
                sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()).result()
            })
    }
    .map_err(|error| failed(error.to_string()))?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_and_kernel_has_its_own_key() {
        let options = |bits: &str| vec![format!("-DBITS={bits}")];
        let keys = [
            key(PFB_FFT, &options("10")),
            key(PFB_FFT, &options("12")),
            key(FFT_POST, &options("10")),
        ];
        assert!(keys[0] != keys[1] && keys[0] != keys[2]);
    }
}
