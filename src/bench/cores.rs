//! How far apart the CPUs of this host are: time for a cache line to go from one to another, and
//! the rate at which one reads what another wrote.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use ground::os::run_on;
use ground::stats::median;
use host::topology::CoreTimes;

/// Bytes that are handed over at once: they fit a second-level cache.
const BLOCK: usize = 256 << 10;
/// Round trips between looks at the clock.
const ROUNDS: u64 = 64;

/// A CPU that threads cannot be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--cpus {0}: this process may not run there; see taskset -p $$")]
pub struct CoresBenchError(pub usize);

/// Measures all pairs of `cpus`, each for `time` per figure. `progress` gets the pairs done and
/// all.
pub fn measure(
    model: String,
    cpus: &[usize],
    time: Duration,
    progress: impl FnMut(usize, usize) + Send,
) -> Result<CoreTimes, CoresBenchError> {
    // Threads are pinned, and the caller's is not to be.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| measure_here(model, cpus, time, progress));
        match measured.join() {
            Ok(times) => times,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn measure_here(
    model: String,
    cpus: &[usize],
    time: Duration,
    mut progress: impl FnMut(usize, usize),
) -> Result<CoreTimes, CoresBenchError> {
    let count = cpus.len();
    let mut latency = vec![vec![0.0; count]; count];
    let mut bandwidth = latency.clone();
    let pairs = count * (count + 1) / 2;
    let mut done = 0;
    for row in 0..count {
        for column in row..count {
            let (a, b) = (cpus[row], cpus[column]);
            if row != column {
                let nanoseconds = round_trip(a, b, time)? / 2.0;
                latency[row][column] = nanoseconds;
                latency[column][row] = nanoseconds;
                bandwidth[column][row] = hand_over(b, a, time)?;
            }
            bandwidth[row][column] = hand_over(a, b, time)?;
            done += 1;
            progress(done, pairs);
        }
    }
    Ok(CoreTimes {
        model,
        cpus: cpus.to_vec(),
        latency_ns: latency,
        gigabytes_per_second: bandwidth,
    })
}

fn pin(cpu: usize) -> Result<(), CoresBenchError> {
    run_on([cpu]).map_err(|_| CoresBenchError(cpu))
}

/// Nanoseconds of a round trip: each side waits for the other's store before its own. The median
/// over groups of trips, as other programs take CPUs away now and then.
fn round_trip(a: usize, b: usize, time: Duration) -> Result<f64, CoresBenchError> {
    const END: u64 = u64::MAX;
    let (there, back) = (
        CachePadded::new(AtomicU64::new(0)),
        CachePadded::new(AtomicU64::new(0)),
    );
    let wait = |flag: &AtomicU64, last: u64| loop {
        let now = flag.load(Ordering::Acquire);
        if now != last {
            return now;
        }
        std::hint::spin_loop();
    };
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let pinned = pin(b);
            let mut last = 0;
            loop {
                last = wait(&there, last);
                back.store(last, Ordering::Release);
                if last == END {
                    return pinned;
                }
            }
        });
        let pinned = pin(a);
        let (mut trip, mut groups) = (0, Vec::new());
        let begin = Instant::now();
        while groups.is_empty() || begin.elapsed() < time {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                there.store(trip + 1, Ordering::Release);
                wait(&back, trip);
                trip += 1;
            }
            groups.push(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
        }
        there.store(END, Ordering::Release);
        echo.join().unwrap_or(Err(CoresBenchError(b)))?;
        pinned?;
        Ok(median(groups))
    })
}

/// 10⁹ bytes per second that `reader` reads of what `writer` wrote last.
fn hand_over(writer: usize, reader: usize, time: Duration) -> Result<f64, CoresBenchError> {
    let (full, empty) = (ArrayQueue::<Vec<u64>>::new(1), ArrayQueue::new(1));
    let _ = empty.push(Vec::with_capacity(BLOCK / 8));
    let alone = writer == reader;
    let pop = |queue: &ArrayQueue<Vec<u64>>| loop {
        match queue.pop() {
            Some(block) => return block,
            // The other side runs on the same CPU.
            None if alone => std::thread::yield_now(),
            None => std::hint::spin_loop(),
        }
    };
    std::thread::scope(|scope| {
        let filler = scope.spawn(|| {
            let pinned = pin(writer);
            let mut value = 0;
            loop {
                let mut block = pop(&empty);
                // The reader has dropped the block's memory: it is the end.
                if block.capacity() == 0 {
                    return pinned;
                }
                block.clear();
                value += 1;
                block.resize(BLOCK / 8, value);
                let _ = full.push(block);
            }
        });
        let pinned = pin(reader);
        let (mut rates, begin) = (Vec::new(), Instant::now());
        while rates.is_empty() || begin.elapsed() < time {
            let block = pop(&full);
            let start = Instant::now();
            let sum = block
                .iter()
                .fold(0u64, |sum, &value| sum.wrapping_add(value));
            let seconds = start.elapsed().as_secs_f64();
            std::hint::black_box(sum);
            rates.push(BLOCK as f64 / seconds.max(1e-9) * 1e-9);
            let _ = empty.push(block);
        }
        drop(pop(&full));
        let _ = empty.push(Vec::new());
        filler.join().unwrap_or(Err(CoresBenchError(writer)))?;
        pinned?;
        Ok(median(rates))
    })
}

/// Tables for people.
pub struct Tables<'a>(pub &'a CoreTimes);

impl fmt::Display for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.0;
        let mut table = |title: &str, rows: &[Vec<f64>], digits: usize| -> fmt::Result {
            writeln!(f, "{title}")?;
            write!(f, "{:>6}", "")?;
            for cpu in &times.cpus {
                write!(f, "{cpu:>7}")?;
            }
            writeln!(f)?;
            for (cpu, row) in times.cpus.iter().zip(rows) {
                write!(f, "{cpu:>6}")?;
                for value in row {
                    write!(f, "{value:>7.digits$}")?;
                }
                writeln!(f)?;
            }
            Ok(())
        };
        table(
            "ns from a store to its sight, half a round trip",
            &times.latency_ns,
            0,
        )?;
        table(
            "GB/s that the column's CPU reads of what the row's wrote",
            &times.gigabytes_per_second,
            1,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_its_figures() {
        let cpus = ground::os::allowed_cpus();
        let cpus = &cpus[..cpus.len().min(2)];
        let mut pairs = Vec::new();
        let times = measure(
            "a test".to_owned(),
            cpus,
            Duration::from_millis(1),
            |done, all| {
                pairs.push((done, all));
            },
        );
        let times = times.unwrap();
        assert_eq!(pairs.last(), Some(&(pairs.len(), pairs.len())));
        for (a, row) in times.latency_ns.iter().enumerate() {
            for (b, &latency) in row.iter().enumerate() {
                assert_eq!(latency > 0.0, a != b);
                assert_eq!(latency, times.latency_ns[b][a]);
                assert!(times.gigabytes_per_second[a][b] > 0.0);
            }
        }
        let text = Tables(&times).to_string();
        assert_eq!(text.lines().count(), 2 * (2 + cpus.len()));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let cpus = [ground::os::allowed_cpus()[0], 4000];
        let error = measure(String::new(), &cpus, Duration::from_millis(1), |_, _| {});
        assert_eq!(error.unwrap_err(), CoresBenchError(4000));
    }
}
