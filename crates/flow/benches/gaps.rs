//! How long threads lose their CPUs, and what took these meanwhile.
//!
//! `cargo bench -p karoo-flow --bench gaps -- [--cpus 0,1] [--seconds 60]`, or the program itself
//! with `--bench`.
//!
//! A thread on each CPU, all at once, looks at the clock without pause. Where two looks are further
//! apart than 2 µs there is a gap: a partition of flow would have stood still. Beside the gaps is
//! what the kernel counted on that CPU meanwhile: interrupts of its timer and others, softirqs, how
//! often another thread had the CPU, and time that the host of a virtual machine took. What neither
//! says was taken below the kernel, by the firmware or by a host that does not tell.

use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// From where on gaps count, in nanoseconds.
const BOUNDS: [u64; 4] = [2_000, 20_000, 200_000, 2_000_000];
/// The kernel counts stolen time in hundredths of a second.
const TICK_MS: u64 = 10;

/// What the kernel has counted of one CPU, and of the thread that asks.
#[derive(Clone, Copy, Default)]
struct Counted {
    timer: u64,
    interrupts: u64,
    softirqs: u64,
    switches: u64,
    stolen_ms: u64,
}

/// The sum of a CPU's column in a table of `/proc`, over the rows that `wanted` names.
fn column(table: &str, cpu: usize, wanted: impl Fn(&str) -> bool) -> u64 {
    let mut lines = table.lines();
    let name = format!("CPU{cpu}");
    let header = lines.next().unwrap_or_default();
    let Some(at) = header.split_whitespace().position(|column| column == name) else {
        return 0;
    };
    let rows = lines.filter_map(|line| line.split_once(':'));
    let rows = rows.filter(|(row, _)| wanted(row.trim()));
    let count = |counts: &str| counts.split_whitespace().nth(at)?.parse::<u64>().ok();
    rows.filter_map(|(_, counts)| count(counts)).sum()
}

impl Counted {
    fn now(cpu: usize) -> Counted {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let interrupts = read("/proc/interrupts");
        let status = read("/proc/thread-self/status");
        let switches = status
            .lines()
            .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        let stat = read("/proc/stat");
        let own = format!("cpu{cpu} ");
        let steal = stat.lines().find_map(|line| line.strip_prefix(&own));
        let steal = steal.and_then(|times| times.split_whitespace().nth(7)?.parse::<u64>().ok());
        Counted {
            timer: column(&interrupts, cpu, |row| row == "LOC"),
            interrupts: column(&interrupts, cpu, |row| row != "LOC"),
            softirqs: column(&read("/proc/softirqs"), cpu, |_| true),
            switches: switches
                .and_then(|all| all.trim().parse().ok())
                .unwrap_or(0),
            stolen_ms: steal.unwrap_or(0) * TICK_MS,
        }
    }

    fn since(self, before: Counted) -> Counted {
        Counted {
            timer: self.timer - before.timer,
            interrupts: self.interrupts - before.interrupts,
            softirqs: self.softirqs - before.softirqs,
            switches: self.switches - before.switches,
            stolen_ms: self.stolen_ms.saturating_sub(before.stolen_ms),
        }
    }
}

/// What one CPU showed.
struct Seen {
    cpu: usize,
    looks: u64,
    gaps: [u64; BOUNDS.len()],
    longest: u64,
    lost: u64,
    counted: Counted,
}

fn look(cpu: usize, time: Duration, start: &Barrier) -> Seen {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
    start.wait();
    let before = Counted::now(cpu);
    let mut seen = Seen {
        cpu,
        looks: 0,
        gaps: [0; BOUNDS.len()],
        longest: 0,
        lost: 0,
        counted: before,
    };
    let begin = Instant::now();
    let mut last = begin;
    while last - begin < time {
        let now = Instant::now();
        let gap = (now - last).as_nanos() as u64;
        last = now;
        seen.looks += 1;
        if gap >= BOUNDS[0] {
            seen.lost += gap;
            seen.longest = seen.longest.max(gap);
            for (count, bound) in seen.gaps.iter_mut().zip(BOUNDS) {
                *count += u64::from(gap >= bound);
            }
        }
    }
    seen.counted = Counted::now(cpu).since(before);
    seen
}

fn options() -> (Vec<usize>, Duration) {
    let all = core_affinity::get_core_ids().unwrap_or_default();
    let mut cpus: Vec<usize> = all.into_iter().map(|core| core.id).collect();
    let mut time = Duration::from_secs(60);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match name.as_str() {
            "--bench" => {}
            "--cpus" => {
                let cpu = |cpu: &str| cpu.parse().expect("a CPU is a number");
                cpus = value().split(',').map(cpu).collect();
            }
            "--seconds" => {
                let seconds = value().parse().ok().filter(|seconds| *seconds > 0.0);
                time = Duration::from_secs_f64(seconds.expect("--seconds wants a number"));
            }
            _ => panic!("{name}: no such option; see the head of benches/gaps.rs"),
        }
    }
    (cpus, time)
}

fn main() {
    let (cpus, time) = options();
    let words = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let isolated = words("/sys/devices/system/cpu/isolated");
    let isolated = match isolated.trim() {
        "" => "none",
        cpus => cpus,
    };
    println!("{:.0} s, isolated CPUs: {isolated}", time.as_secs_f64());
    println!(
        "{:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>8} {:>8} {:>7} {:>9} {:>9} {:>10}",
        "CPU",
        "looks",
        "≥ 2 µs",
        "≥ 20 µs",
        "≥ 200 µs",
        "≥ 2 ms",
        "longest µs",
        "lost %",
        "timer",
        "others",
        "softirqs",
        "switched",
        "stolen ms"
    );
    let start = Barrier::new(cpus.len());
    let start = &start;
    let all: Vec<Seen> = thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || look(cpu, time, start)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|seen| seen.expect("a thread looks")).collect()
    });
    for seen in all {
        let [a, b, c, d] = seen.gaps;
        let counted = seen.counted;
        println!(
            "{:>4} {:>7} M {a:>9} {b:>9} {c:>9} {d:>9} {:>11.0} {:>8.3} {:>8} {:>7} {:>9} {:>9} {:>10}",
            seen.cpu,
            seen.looks / 1_000_000,
            seen.longest as f64 / 1e3,
            100.0 * seen.lost as f64 / time.as_nanos() as f64,
            counted.timer,
            counted.interrupts,
            counted.softirqs,
            counted.switches,
            counted.stolen_ms
        );
    }
}
