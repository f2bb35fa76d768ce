//! How fast CPUs compute when all of them do: a core may be a slow one, or shared with what else
//! runs on the machine, also with what a virtual machine cannot see.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Floats that are worked on, which stay in the first cache.
const FLOATS: usize = 2048;
/// Passes between two looks at the clock.
const LOOK: u32 = 8;
/// A CPU that computes for a share of the time does so in each stretch of this length, and spins
/// for the rest, as a partition that waits for a block.
const STRETCH: Duration = Duration::from_micros(50);
/// Windows of which the median counts, for the CPU by itself.
const WINDOWS: u32 = 5;
/// CPUs with paces above this count as alike: smaller differences are chance.
pub const ALIKE: f64 = 0.9;
/// Paces are multiples of this where CPUs are chosen, for the same reason.
const GRAIN: f64 = 0.05;
/// Least pace of a CPU: one that stood still while it was measured will go on later.
const SLOWEST: f64 = 0.05;

/// The pace of each CPU: its speed when all of `cpus` compute, as a share of the speed of the CPU
/// on which costs were measured; at least 0.05. `of` is that CPU's speed, as
/// [`Costs`](crate::place::Costs) has it; without it, the speed of the first CPU by itself is
/// taken. All paces are 1 if threads cannot be pinned.
///
/// Costs of nodes are those of one CPU by itself; a plan divides them by this.
pub fn measure_paces(cpus: &[usize], of: Option<f64>, time: Duration) -> Vec<f64> {
    measure_shared_paces(cpus, &[], of, time)
}

/// The same where each CPU computes for a share of the time and waits for the rest, as long as it
/// knows one.
pub(super) fn measure_shared_paces(
    cpus: &[usize],
    shares: &[f64],
    of: Option<f64>,
    time: Duration,
) -> Vec<f64> {
    let of = of.or_else(|| alone(*cpus.first()?, time));
    let of = of.filter(|of| of.is_finite() && *of > 0.0);
    paces(&rates(cpus, shares, time), cpus.len(), of)
}

/// The same of the rates of so many CPUs, if all are known.
fn paces(rates: &[f64], cpus: usize, of: Option<f64>) -> Vec<f64> {
    match of {
        Some(of) if rates.len() == cpus => {
            let pace = |rate: &f64| (rate / of).max(SLOWEST);
            rates.iter().map(pace).collect()
        }
        _ => vec![1.0; cpus],
    }
}

/// Passes a second of a CPU by itself.
pub(super) fn alone(cpu: usize, time: Duration) -> Option<f64> {
    let mut found: Vec<f64> = (0..WINDOWS)
        .flat_map(|_| rates(&[cpu], &[], time / WINDOWS))
        .collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

/// A pace by which CPUs are chosen: few that differ make a short search.
pub(super) fn rounded(pace: f64) -> f64 {
    match pace > ALIKE {
        true => 1.0,
        // As a quotient, so that 0.6 is written as 0.6.
        false => (pace / GRAIN).round().max(1.0) / (1.0 / GRAIN).round(),
    }
}

/// Passes over the floats a second of work on each of these CPUs, all at once, for its share of the
/// time; of those CPUs alone that a thread can be pinned to.
fn rates(cpus: &[usize], shares: &[f64], time: Duration) -> Vec<f64> {
    let (ready, begun, over) = (
        AtomicUsize::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let known = core_affinity::get_core_ids().unwrap_or_default();
    let on = |cpu: usize, share: f64| {
        let id = core_affinity::CoreId { id: cpu };
        let pinned = known.contains(&id) && core_affinity::set_for_current(id);
        ready.fetch_add(1, Ordering::Release);
        while !begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let mut floats = [1f32; FLOATS];
        let (mut passes, mut worked) = (0u64, Duration::ZERO);
        while !over.load(Ordering::Relaxed) {
            let begin = Instant::now();
            while !over.load(Ordering::Relaxed) {
                for _ in 0..LOOK {
                    for float in &mut floats {
                        *float = *float * 0.5 + 0.5;
                    }
                    black_box(&mut floats);
                }
                passes += u64::from(LOOK);
                if begin.elapsed() >= STRETCH.mul_f64(share) {
                    break;
                }
            }
            worked += begin.elapsed();
            while share < 1.0 && begin.elapsed() < STRETCH {
                spin_loop();
            }
        }
        pinned.then_some(passes as f64 / worked.as_secs_f64().max(1e-9))
    };
    let on = &on;
    thread::scope(|scope| {
        let spawn = |(index, &cpu): (usize, &usize)| {
            let share = shares.get(index).map_or(1.0, |share| share.clamp(0.0, 1.0));
            thread::Builder::new().spawn_scoped(scope, move || on(cpu, share))
        };
        // Where there is no thread for one, nothing is known of it.
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .filter_map(|cpu| spawn(cpu).ok())
            .collect();
        while ready.load(Ordering::Acquire) < threads.len() {
            thread::yield_now();
        }
        begun.store(true, Ordering::Release);
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let rates = threads.into_iter().filter_map(|thread| thread.join().ok());
        rates.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_of_all_cpus() {
        let cpus: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .into_iter()
            .map(|core| core.id)
            .collect();
        let paces = measure_paces(&cpus, None, Duration::from_millis(20));
        assert_eq!(paces.len(), cpus.len());
        // How large they are is up to what else the machine does.
        let told = paces.iter().all(|pace| pace.is_finite() && *pace >= 0.05);
        assert!(told, "{paces:?}");
        // No such CPU: nothing is known of it, or of the others.
        let unknown = [cpus[0], 100_000];
        assert_eq!(
            measure_paces(&unknown, None, Duration::from_millis(2)),
            [1.0, 1.0]
        );
        assert!(measure_paces(&[], None, Duration::from_millis(2)).is_empty());
    }

    #[test]
    fn small_differences_are_chance() {
        let rates = [1300.0, 930.0, 610.0, 499.0, 0.0];
        let told = paces(&rates, 5, Some(1000.0));
        assert_eq!(told, [1.3, 0.93, 0.61, 0.499, 0.05]);
        let chosen: Vec<f64> = told.into_iter().map(rounded).collect();
        assert_eq!(chosen, [1.0, 1.0, 0.6, 0.5, 0.05]);
        // Of some CPUs nothing is known, or not what costs were measured on.
        assert_eq!(paces(&rates, 6, Some(1000.0)), [1.0; 6]);
        assert_eq!(paces(&rates, 5, None), [1.0; 5]);
    }
}
