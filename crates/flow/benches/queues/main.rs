//! Queues between two cores, beside other queues, in one run.
//!
//! `cargo bench -p karoo-flow --bench queues -- [OPTIONS]`, or the program itself with `--bench`:
//!
//! * `--pairs 0,1;0,8`: the CPUs of writer and reader. Without it: one pair of each kind that the
//!   machine's topology has.
//! * `--rounds N`: runs of each case, 9 without it. All contestants of a case run in turn, N times.
//!   What is printed is the least time, and the median.
//! * `--rival NAME=PROGRAM`: another program takes part. It is called as `PROGRAM single BYTES
//!   BLOCKS   CPU CPU PAUSES SLOTS` or `PROGRAM trip BYTES TRIPS CPU CPU 0 SLOTS` and prints
//!   nanoseconds for one block or   round trip, or nothing if it does not do that. `{bytes}` in
//!   PROGRAM becomes the size.
//! * `--only single|batch|trip|paced`, `--sizes 8,64`: less of it.
//!
//! Waiting loops look again at once, after one pause, or after 32; queues hold 64 KiB or 16 blocks,
//! 32 blocks, or 128. Of these nine at most the best counts, for each contestant.
//!
//! Both threads spin on their CPUs; while other programs run there, figures say little. Each figure
//! is for a transfer from a block of the writer's own to a block of the reader's own; `in place`
//! alone reads in the queue, and takes no part in the ratio.

mod contest;
mod paced;
mod pairs;
mod queues;
mod rivals;

use contest::{Case, Contestant, Work};

struct Options {
    pairs: Vec<(usize, usize, String)>,
    rounds: usize,
    rivals: Vec<(String, String)>,
    only: Option<String>,
    sizes: Vec<usize>,
}

fn options() -> Options {
    let mut options = Options {
        pairs: Vec::new(),
        rounds: 9,
        rivals: Vec::new(),
        only: None,
        sizes: vec![8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--bench" {
            continue;
        }
        let value = arguments.next().unwrap_or_default();
        let numbers = |text: &str| -> Vec<usize> {
            let parts = text.split(',').map(|part| part.trim().parse());
            parts.collect::<Result<_, _>>().unwrap_or_else(|_| {
                panic!("{name} {value}: give whole numbers with commas between them")
            })
        };
        match name.as_str() {
            "--pairs" => {
                for pair in value.split(';') {
                    let [writer, reader] = numbers(pair)[..] else {
                        panic!("--pairs {pair}: a pair is two CPUs")
                    };
                    options.pairs.push((writer, reader, "as asked for".into()));
                }
            }
            "--rounds" => options.rounds = numbers(&value)[0].max(1),
            "--sizes" => options.sizes = numbers(&value),
            "--only" => options.only = Some(value),
            "--rival" => {
                let (name, program) = value
                    .split_once('=')
                    .unwrap_or_else(|| panic!("--rival {value}: give NAME=PROGRAM"));
                options.rivals.push((name.into(), program.into()));
            }
            _ => panic!("{name}: no such option; see the head of benches/queues/main.rs"),
        }
    }
    if options.pairs.is_empty() {
        options.pairs = pairs::of_this_machine();
    }
    options
}

fn main() {
    // `cargo test --benches` asks for no measurement.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let options = options();
    let wanted = |what: &str| options.only.as_ref().is_none_or(|only| only == what);
    if options.pairs.is_empty() {
        println!("one CPU: there is no pair to measure");
    }
    for (writer, reader, kind) in &options.pairs {
        let cpus = (*writer, *reader);
        println!("\nCPUs {writer} and {reader}: {kind}");
        println!(
            "one cache line there and back: {:.0} ns",
            contest::line_trip(cpus)
        );
        if wanted("single") {
            println!("\none block at a time");
            for &bytes in &options.sizes {
                let mut all = queues::singles(bytes / 8);
                all.extend(rivals::all(&options.rivals, Work::Single));
                compare(
                    &Case::single(cpus, bytes),
                    &format!("{bytes} B"),
                    &all,
                    options.rounds,
                );
            }
        }
        if wanted("batch") {
            println!("\nitems of 8 B, published so many at a time");
            for items in [8, 64, 512] {
                let case = Case::batch(cpus, items);
                compare(
                    &case,
                    &format!("{items} items"),
                    &queues::batches(items),
                    options.rounds,
                );
            }
        }
        if wanted("trip") {
            println!("\nround trip of a block through two queues");
            for &bytes in options.sizes.iter().filter(|&&bytes| bytes <= 4096) {
                let mut all = queues::trips(bytes / 8);
                all.extend(rivals::all(&options.rivals, Work::Trip));
                compare(
                    &Case::trip(cpus, bytes),
                    &format!("{bytes} B"),
                    &all,
                    options.rounds,
                );
            }
        }
        if wanted("paced") {
            paced::show(cpus, &options.sizes);
        }
    }
}

/// Runs all contestants in turn, and prints one line for each that did it, best first.
fn compare(case: &Case, title: &str, all: &[Contestant], rounds: usize) {
    let mut times = vec![Vec::new(); all.len()];
    for _ in 0..rounds {
        for (times, contestant) in times.iter_mut().zip(all) {
            // With and without pauses in the loops that wait, with queues of several lengths: the
            // best counts.
            let (pauses, others): (&[u32], &[usize]) = match case.work {
                Work::Trip => (&[0], &[]),
                _ => (&[0, 1, 32], &contest::BLOCKS),
            };
            let others = others.iter().filter(|&&slots| slots != case.slots);
            let others = others.map(|&slots| Case { slots, ..*case });
            let best = std::iter::once(Case { ..*case })
                .chain(others)
                .flat_map(|case| {
                    pauses
                        .iter()
                        .filter_map(move |&pauses| (contestant.run)(&case, pauses))
                })
                .min_by(f64::total_cmp);
            times.extend(best);
        }
    }
    let mut rows: Vec<(&Contestant, f64, f64)> = all
        .iter()
        .zip(&mut times)
        .filter(|(_, times)| !times.is_empty())
        .map(|(contestant, times)| {
            times.sort_by(f64::total_cmp);
            (contestant, times[0], times[times.len() / 2])
        })
        .collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    let best = |ours: bool, of: fn(&(&Contestant, f64, f64)) -> f64| {
        rows.iter()
            .filter(|(contestant, ..)| contestant.counts && contestant.ours == ours)
            .map(of)
            .min_by(f64::total_cmp)
            .unwrap_or(f64::NAN)
    };
    println!(
        "{title:>10}: ours is {:.2} times as fast as the best other by the least time, {:.2} by the median",
        best(false, |row| row.1) / best(true, |row| row.1),
        best(false, |row| row.2) / best(true, |row| row.2),
    );
    for (contestant, least, median) in rows {
        println!(
            "            {:22} {least:9.2} ns {:8.2} M/s {:7.2} GB/s   median {median:9.2} ns",
            contestant.name,
            case.items as f64 * 1e3 / least,
            case.bytes as f64 / least,
        );
    }
}
