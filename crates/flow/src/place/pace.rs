//! How fast CPUs compute when all of them do: a core may be a slow one, or shared with what else
//! runs on the machine, also with what a virtual machine cannot see.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Floats that are worked on, which stay in the first cache.
const FLOATS: usize = 2048;
/// Windows of which the median counts, for the CPU by itself.
const WINDOWS: u32 = 5;
/// Less of a difference is chance, and CPUs that differ by no more are alike.
const ALIKE: f64 = 0.9;
/// Paces are multiples of this, for the same reason.
const GRAIN: f64 = 0.05;

/// The pace of each CPU: how much of what the first of them does by itself it does when all of
/// them compute, between 0.05 and 1. All are 1 where threads cannot be pinned. Takes twice `time`.
///
/// Costs of nodes are those of one CPU by itself; a plan divides them by this.
pub fn measure_paces(cpus: &[usize], time: Duration) -> Vec<f64> {
    let Some(&home) = cpus.first() else {
        return Vec::new();
    };
    let window = time / WINDOWS;
    let mut alone: Vec<f64> = (0..WINDOWS).flat_map(|_| rates(&[home], window)).collect();
    alone.sort_by(f64::total_cmp);
    let Some(&alone) = alone.get(alone.len() / 2) else {
        return vec![1.0; cpus.len()];
    };
    let all = rates(cpus, time);
    if all.len() < cpus.len() {
        return vec![1.0; cpus.len()];
    }
    all.into_iter().map(|rate| rounded(rate / alone)).collect()
}

fn rounded(pace: f64) -> f64 {
    match pace > ALIKE {
        true => 1.0,
        // As a quotient, so that 0.6 is written as 0.6.
        false => (pace / GRAIN).round().max(1.0) / (1.0 / GRAIN).round(),
    }
}

/// Passes over the floats a second on each of these CPUs, all at once; of those alone that a thread
/// can be pinned to.
fn rates(cpus: &[usize], time: Duration) -> Vec<f64> {
    let (begin, over) = (Barrier::new(cpus.len() + 1), AtomicBool::new(false));
    let known = core_affinity::get_core_ids().unwrap_or_default();
    let on = |cpu: usize| {
        let id = core_affinity::CoreId { id: cpu };
        let pinned = known.contains(&id) && core_affinity::set_for_current(id);
        let mut floats = [1f32; FLOATS];
        begin.wait();
        let (start, mut passes) = (Instant::now(), 0u64);
        while !over.load(Ordering::Relaxed) {
            for float in &mut floats {
                *float = *float * 0.5 + 0.5;
            }
            black_box(&mut floats);
            passes += 1;
        }
        pinned.then(|| passes as f64 / start.elapsed().as_secs_f64())
    };
    let on = &on;
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || on(cpu)))
            .collect();
        begin.wait();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().filter_map(|thread| thread.join().ok());
        joined.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_of_all_cpus_and_at_most_one() {
        let cpus: Vec<usize> = core_affinity::get_core_ids()
            .unwrap_or_default()
            .into_iter()
            .map(|core| core.id)
            .collect();
        let paces = measure_paces(&cpus, Duration::from_millis(20));
        assert_eq!(paces.len(), cpus.len());
        assert!(
            paces.iter().all(|pace| (0.05..=1.0).contains(pace)),
            "{paces:?}"
        );
        // No such CPU: nothing is known of it, or of the others.
        let unknown = [cpus[0], 100_000];
        assert_eq!(
            measure_paces(&unknown, Duration::from_millis(2)),
            [1.0, 1.0]
        );
        assert!(measure_paces(&[], Duration::from_millis(2)).is_empty());
    }

    #[test]
    fn small_differences_are_chance() {
        let told = [1.3, 0.93, 0.61, 0.499, 0.001].map(rounded);
        assert_eq!(told, [1.0, 1.0, 0.6, 0.5, 0.05]);
    }
}
