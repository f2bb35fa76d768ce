//! Operations that only move numbers, or take them from tables.

use super::element::sized;
use super::execute::{Memory, Operation, View};
use crate::types::Scalar;

/// Places of a table that are found at once.
const PLACES: usize = 64;
use bytemuck::Pod;

use super::formula::Lookup;
use super::op::Op;

/// A word of a table.
trait Word: Pod {
    fn of(bits: u64) -> Self;
}

macro_rules! words {
    ($($kind:ty),*) => {$(
        impl Word for $kind {
            #[inline(always)]
            fn of(bits: u64) -> $kind {
                bits as $kind
            }
        }
    )*};
}

words!(u8, u16, u32, u64);

/// Takes entries by their places: first so many places, then their entries.
#[inline(always)]
fn look<T: Word, A: Pod + Into<f64>>(memory: &mut Memory, d: View, a: View, lookup: &Lookup) {
    let (table, place) = (&lookup.table, lookup.places);
    memory.write::<T, _>(d, |out, inputs| {
        let mut places = [0i32; PLACES];
        for (out, a) in out
            .chunks_mut(PLACES)
            .zip(inputs.get::<A>(a).chunks(PLACES))
        {
            for (to, &a) in places.iter_mut().zip(a) {
                *to = place.of(a.into());
            }
            for (out, &place) in out.iter_mut().zip(&places) {
                *out = table
                    .get(place as usize)
                    .map_or(T::of(0), |&bits| T::of(bits));
            }
        }
    });
}

/// Does an operation of this kind; false if it is none.
#[inline(always)]
pub(super) fn run(op: &Operation, memory: &mut Memory) -> bool {
    match op {
        Op::Spread { d, a } => sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
            for (out, &a) in out.chunks_exact_mut(d.len).zip(inputs.get::<T>(*a)) {
                out.fill(a);
            }
        })),
        Op::Gather { d, a, from } => sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
            let samples = inputs.get::<T>(*a).chunks_exact(a.len);
            for (out, a) in out.chunks_exact_mut(d.len).zip(samples) {
                for (out, &from) in out.iter_mut().zip(from.iter()) {
                    *out = a[from as usize];
                }
            }
        })),
        Op::Put { d, a, first } => sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
            let samples = inputs.get::<T>(*a).chunks_exact(a.len);
            for (out, a) in out.chunks_exact_mut(d.len).zip(samples) {
                out[*first..*first + a.len()].copy_from_slice(a);
            }
        })),
        Op::Window { d, a, newest_first } => {
            sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
                let a = inputs.wide::<T>(*a, d.len - 1);
                for (out, a) in out.chunks_exact_mut(d.len).zip(a.windows(d.len)) {
                    if *newest_first {
                        for (out, &a) in out.iter_mut().zip(a.iter().rev()) {
                            *out = a;
                        }
                    } else {
                        out.copy_from_slice(a);
                    }
                }
            }))
        }
        Op::Down { d, a, by } => sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
            let samples = inputs.counted::<T>(*a, inputs.count * by);
            if d.len == 1 {
                for (out, &a) in out.iter_mut().zip(samples.iter().step_by(*by)) {
                    *out = a;
                }
            } else {
                let samples = samples.chunks_exact(d.len).step_by(*by);
                for (out, a) in out.chunks_exact_mut(d.len).zip(samples) {
                    out.copy_from_slice(a);
                }
            }
        })),
        Op::Spaced { d, a, by } => sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
            let samples = inputs.get::<T>(*a).chunks(d.len * by);
            for (out, a) in out.chunks_mut(d.len * by).zip(samples) {
                out.fill(0);
                out[..d.len].copy_from_slice(&a[..d.len]);
            }
        })),
        Op::Up { d, a, by, zeros } => {
            sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
                let samples = inputs.counted::<T>(*a, inputs.count / by);
                let samples = samples.chunks_exact(d.len);
                for (out, a) in out.chunks_exact_mut(d.len * by).zip(samples) {
                    if *zeros {
                        out[..d.len].copy_from_slice(a);
                        out[d.len..].fill(0);
                    } else if let [a] = a {
                        out.fill(*a);
                    } else {
                        out.chunks_exact_mut(d.len).for_each(|out| out.copy_from_slice(a));
                    }
                }
            }))
        }
        Op::Compact { d, a, context } => {
            sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
                let (samples, a) = (&inputs.contexts[*context], inputs.open::<T>(*a));
                if d.len == 1 {
                    for (out, &at) in out.iter_mut().zip(samples) {
                        *out = a[at as usize];
                    }
                } else {
                    for (out, &at) in out.chunks_exact_mut(d.len).zip(samples) {
                        out.copy_from_slice(&a[at as usize * d.len..][..d.len]);
                    }
                }
            }))
        }
        Op::Expand { d, a, context } => {
            sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
                let (samples, a) = (&inputs.contexts[*context], inputs.open::<T>(*a));
                let mut last = inputs.sample_before::<T>(d.len);
                let mut done = 0;
                let ends = samples.iter().map(|&at| at as usize).chain([inputs.count]);
                for (sample, end) in ends.enumerate() {
                    for out in out[done * d.len..end * d.len].chunks_exact_mut(d.len) {
                        out.copy_from_slice(last);
                    }
                    done = end;
                    last = a.get(sample * d.len..(sample + 1) * d.len).unwrap_or(last);
                }
            }))
        }
        Op::Lut { d, a, lookup } => sized!(d.scalar, T => match a.scalar {
            Scalar::F32 => look::<T, f32>(memory, *d, *a, lookup),
            _ => look::<T, f64>(memory, *d, *a, lookup),
        }),
        Op::Table { d, a, table } => sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
            let last = table.len() as i64 - 1;
            for (out, &a) in out.iter_mut().zip(inputs.get::<i64>(*a)) {
                *out = table.get(a.clamp(0, last) as usize).map_or(0, |&bits| bits as T);
            }
        })),
        Op::Accumulate { d, a, mask } => memory.write::<u32, _>(*d, |out, inputs| {
            let mut sum = inputs.last::<u32>();
            for (out, &a) in out.iter_mut().zip(inputs.get::<u32>(*a)) {
                sum = sum.wrapping_add(a) & *mask as u32;
                *out = sum;
            }
        }),
        Op::Count { d, period } => memory.write::<u64, _>(*d, |out, inputs| {
            let mut count = inputs.last::<u64>();
            for out in out {
                count = if count + 1 == *period { 0 } else { count + 1 };
                *out = count;
            }
        }),
        _ => return false,
    }
    true
}
