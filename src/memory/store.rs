//! How a heap's bytes get to their place: a plain copy, or stores that bypass the caches.
//!
//! GPU memory is mapped write-combining: full lines reach it as whole bus writes, anything else in
//! pieces. A heap need not begin or end on a line, and its neighbours may be written by other
//! lcores at the same time, so that the bytes before the first and behind the last whole line are
//! stored alone.

use std::fmt;

/// Bytes that one store of a whole line writes, at an address that is a multiple of them.
const LINE: usize = 64;

/// A way to store that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store(Method);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Sse2,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Store {
    /// Through the caches.
    pub const PLAIN: Self = Self(Method::Plain);

    /// Past the caches, with the widest stores that this CPU has.
    pub fn streaming() -> Self {
        Self::all().last().unwrap_or(Self::PLAIN)
    }

    /// Every way that this CPU has, widest last.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let streaming = [
            (Method::Sse2, true),
            (Method::Avx2, is_x86_feature_detected!("avx2")),
            (Method::Avx512, is_x86_feature_detected!("avx512f")),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let streaming: [(Method, bool); 0] = [];
        let streaming = streaming
            .into_iter()
            .filter_map(|(m, has)| has.then_some(m));
        [Method::Plain].into_iter().chain(streaming).map(Self)
    }

    /// Copies `from` to `to`. Others see all of it when they see what this thread stores after a
    /// [`fence`](Self::fence).
    ///
    /// If stores bypass the caches, the CPU is asked meanwhile for about as many bytes from `next`
    /// on, which are to be copied after these: else it waits for each few lines that are in no
    /// cache. `next` may be anything: nothing is read there.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of `from.len()` bytes, which nobody reads or writes meanwhile, and
    /// apart from `from`.
    #[inline]
    pub(crate) unsafe fn copy(self, to: *mut u8, from: &[u8], next: *const u8) {
        // SAFETY: as promised by the caller; a value of this type shows that the CPU has the
        // instructions.
        unsafe {
            match self.0 {
                Method::Plain => to.copy_from_nonoverlapping(from.as_ptr(), from.len()),
                #[cfg(target_arch = "x86_64")]
                Method::Sse2 => stream(to, from, next, x86::sse2),
                #[cfg(target_arch = "x86_64")]
                Method::Avx2 => stream(to, from, next, x86::avx2),
                #[cfg(target_arch = "x86_64")]
                Method::Avx512 => stream(to, from, next, x86::avx512),
            }
        }
    }
}

impl Store {
    /// Orders what this thread has stored in any way before what it stores next. Streaming stores
    /// are ordered with no others by themselves, not even with a release store.
    #[inline]
    pub(super) fn fence() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 CPU has the instruction.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Method::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Method::Sse2 => "sse2",
            #[cfg(target_arch = "x86_64")]
            Method::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Method::Avx512 => "avx512",
        })
    }
}

/// Whole lines by `lines(to, from, next, count)`, the rest by plain stores.
///
/// # Safety
///
/// As [`Store::copy`], and the CPU has what `lines` needs.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn stream(
    to: *mut u8,
    from: &[u8],
    next: *const u8,
    lines: unsafe fn(*mut u8, *const u8, *const u8, usize),
) {
    let head = to.align_offset(LINE).min(from.len());
    let (head, rest) = from.split_at(head);
    let (body, tail) = rest.split_at(rest.len() / LINE * LINE);
    // SAFETY: the three parts lie behind each other in a range that the caller vouches for; the
    // body is aligned behind the head, or empty.
    unsafe {
        to.copy_from_nonoverlapping(head.as_ptr(), head.len());
        let to = to.add(head.len());
        lines(to, body.as_ptr(), next, body.len() / LINE);
        to.add(body.len())
            .copy_from_nonoverlapping(tail.as_ptr(), tail.len());
    }
}

/// Copies of `count` lines, which ask for as many from `next` on. `to` is a multiple of [`LINE`],
/// `from` and `next` anything.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::LINE;

    /// Asks for a line, into the second cache: the first one's buffers are those of the stores.
    #[inline]
    fn ask_for(line: *const u8) {
        // SAFETY: a prefetch reads nothing, wherever it points; every x86-64 CPU has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }

    macro_rules! streaming {
        ($name:ident, $features:literal, $vector:ty, $load:ident, $store:ident) => {
            #[target_feature(enable = $features)]
            pub unsafe fn $name(to: *mut u8, from: *const u8, next: *const u8, count: usize) {
                const PER_LINE: usize = LINE / size_of::<$vector>();
                let (to, from) = (to.cast::<$vector>(), from.cast::<$vector>());
                for line in 0..count {
                    ask_for(next.wrapping_add(line * LINE));
                    for i in line * PER_LINE..(line + 1) * PER_LINE {
                        // SAFETY: inside the lines that the caller vouches for; the store's address
                        // is aligned.
                        unsafe { $store(to.add(i), $load(from.add(i))) };
                    }
                }
            }
        };
    }

    streaming!(sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128);
    streaming!(
        avx2,
        "avx2",
        __m256i,
        _mm256_loadu_si256,
        _mm256_stream_si256
    );
    streaming!(
        avx512,
        "avx512f",
        __m512i,
        _mm512_loadu_si512,
        _mm512_stream_si512
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel says what this CPU has.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn stores_are_those_that_the_cpu_has() {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = cpus.lines().find(|line| line.starts_with("flags")).unwrap();
        let has = |flag: &str| flags.split_whitespace().any(|other| other == flag);
        let expected = [
            ("plain", true),
            ("sse2", true),
            ("avx2", has("avx2")),
            ("avx512", has("avx512f")),
        ];
        let expected = expected
            .into_iter()
            .filter_map(|(name, has)| has.then_some(name));
        let names: Vec<_> = Store::all().map(|store| store.to_string()).collect();
        assert_eq!(names, expected.collect::<Vec<_>>());
    }

    #[test]
    fn every_method_writes_its_own_bytes_at_every_alignment_and_length() {
        #[repr(align(64))]
        struct Aligned([u8; 512]);
        let from: [u8; 300] = std::array::from_fn(|i| i as u8 | 1);
        for store in Store::all() {
            for start in 64..128 {
                for length in (0..200).chain([255, 256, 257, 300]) {
                    let mut to = Aligned([0; 512]);
                    // SAFETY: start + length is inside the array.
                    let place = unsafe { to.0.as_mut_ptr().add(start) };
                    // SAFETY: as above.
                    unsafe { store.copy(place, &from[..length], from.as_ptr()) };
                    let (before, rest) = to.0.split_at(start);
                    let (written, behind) = rest.split_at(length);
                    assert_eq!(written, &from[..length], "{store}, {start}, {length}");
                    let untouched = before.iter().chain(behind).all(|&byte| byte == 0);
                    assert!(untouched, "{store}, {start}, {length}");
                }
            }
        }
    }
}
