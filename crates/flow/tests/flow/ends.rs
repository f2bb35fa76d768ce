//! Ends of runs that do not come by themselves: readers that panic, peers that are gone; and what a
//! run tells meanwhile.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use karoo_flow::adapters::{Address, Stop};
use karoo_flow::nodes::Counter;
use karoo_flow::run::{Between, Handle, Limit, Outcome, Telemetry, Transfer};
use karoo_flow::{Builder, Executor, Graph, Scalar, Settings, Type};

/// Long enough for whatever ends at all.
const LONG: Duration = Duration::from_secs(60);

/// A chain of so many partitions.
fn chain(partitions: u32) -> Graph {
    chain_and(partitions, false)
}

/// The same, and a second way from the inputs to the outputs if that is wanted.
fn chain_and(partitions: u32, second_way: bool) -> Graph {
    let g = Builder::new("chain");
    let x = g.input("x", Type::F32);
    let mut y = x;
    for partition in 0..partitions {
        y = g.scope(&format!("part{partition}"), || {
            g.partition(partition);
            y.gain(0.5)
        });
    }
    g.output("y", y);
    if second_way {
        g.output("z", x);
    }
    g.build().unwrap()
}

fn sink() -> Vec<Box<dyn Write>> {
    vec![Box::new(std::io::sink())]
}

struct Panics;

impl Read for Panics {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        panic!("the cable is out")
    }
}

#[test]
fn a_reader_that_panics_ends_the_run_and_is_told() {
    let (told, ended) = channel();
    thread::spawn(move || {
        let executor = Executor::new(&chain(2), Settings::default()).unwrap();
        let run = executor.prepare(vec![Box::new(Panics)], sink()).unwrap();
        told.send(run.run()).unwrap();
    });
    let failure = ended.recv_timeout(LONG).expect("it ends").unwrap_err();
    assert_eq!(failure.to_string(), "x: the cable is out");
}

impl Write for Panics {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        panic!("the disk is out")
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_panics_ends_the_run_and_is_told() {
    let executor = Executor::new(&chain(2), Settings::default()).unwrap();
    let reader = Box::new(std::io::repeat(0));
    let run = executor.prepare(vec![reader], vec![Box::new(Panics)]);
    let failure = run.unwrap().run().unwrap_err();
    assert_eq!(failure.to_string(), "y: the disk is out");
}

/// Fails when it is to write what it has, or says that it has done so.
struct Flushes(Option<Sender<()>>);

impl Write for Flushes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match &self.0 {
            Some(flushed) => {
                flushed.send(()).unwrap();
                Ok(())
            }
            None => Err(std::io::Error::other("the disk is full")),
        }
    }
}

#[test]
fn outputs_write_what_they_have_behind_one_that_fails() {
    let g = Builder::new("outputs");
    let x = g.input("x", Type::F32);
    g.output("full", x);
    g.output("fine", x.gain(2));
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let (told, flushed) = channel();
    let writers: [Box<dyn Write>; 2] = [Box::new(Flushes(None)), Box::new(Flushes(Some(told)))];
    let reader = Box::new(std::io::repeat(0).take(4096));
    let run = executor.prepare(vec![reader], writers.into()).unwrap();
    let failure = run.run().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "full: cannot be written: the disk is full"
    );
    flushed
        .try_recv()
        .expect("it is asked to write what it has");
}

/// Ends at its first flush, and waits for the other one's end at the second.
struct EndsBeside(Sender<()>, Receiver<()>, bool);

impl Write for EndsBeside {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.2, true) {
            self.0.send(()).unwrap();
            return Ok(());
        }
        let ended = self.1.recv_timeout(LONG);
        ended.map_err(|_| std::io::Error::other("the other does not end"))
    }
}

/// As where one program reads both, each to its end.
#[test]
fn all_outputs_end_before_one_waits() {
    let g = Builder::new("outputs");
    let x = g.input("x", Type::F32);
    g.output("one", x);
    g.output("other", x.gain(2));
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let ((of_one, by_one), (of_other, by_other)) = (channel(), channel());
    let writers: [Box<dyn Write>; 2] = [
        Box::new(EndsBeside(of_one, by_other, false)),
        Box::new(EndsBeside(of_other, by_one, false)),
    ];
    let reader = Box::new(std::io::repeat(0).take(4096));
    let run = executor.prepare(vec![reader], writers.into()).unwrap();
    run.run().unwrap();
}

/// Gives a byte at a time, until somebody wants the end in the middle of a sample.
struct Trickle(Receiver<Handle>, usize);

impl Read for Trickle {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.1 += 1;
        match self.1 {
            6 => self.0.recv().unwrap().quit(),
            7.. => panic!("it is read behind the end"),
            _ => {}
        }
        bytes[0] = 0;
        Ok(1)
    }
}

#[test]
fn a_run_that_is_told_to_end_waits_for_no_more_of_a_block() {
    let executor = Executor::new(&chain(2), Settings::default()).unwrap();
    let (told, handle) = channel();
    let reader = Box::new(Trickle(handle, 0));
    let run = executor.prepare(vec![reader], sink()).unwrap();
    told.send(run.handle()).unwrap();
    assert_eq!(run.run().unwrap().ticks, 1);
}

/// Gives three samples, and wants the end when more are asked for.
struct Quits(Receiver<Handle>, bool);

impl Read for Quits {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if std::mem::replace(&mut self.1, true) {
            self.0.recv().unwrap().quit();
            return Ok(0);
        }
        bytes[..12].fill(0);
        Ok(12)
    }
}

/// Gives a byte at a time, and so many at all.
struct Bytes(usize);

impl Read for Bytes {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(1).expect("it is read behind the end");
        bytes[0] = 0;
        Ok(1)
    }
}

#[test]
fn a_run_that_is_told_to_end_reads_all_inputs_up_to_where_the_first_ended() {
    let g = Builder::new("sum");
    g.output("y", g.input("a", Type::F32) + g.input("b", Type::F32));
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let (told, handle) = channel();
    let readers: Vec<Box<dyn Read + Send>> =
        vec![Box::new(Quits(handle, false)), Box::new(Bytes(12))];
    let run = executor.prepare(readers, sink()).unwrap();
    told.send(run.handle()).unwrap();
    assert_eq!(run.run().unwrap().ticks, 3);
}

/// Gives so many bytes, and no more.
struct NoMore(usize);

impl Read for NoMore {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        assert!(bytes.len() <= self.0, "{} bytes of {}", bytes.len(), self.0);
        bytes.fill(0);
        self.0 -= bytes.len();
        Ok(bytes.len())
    }
}

#[test]
fn an_input_that_has_ended_keeps_nobody_waiting_for_another() {
    let g = Builder::new("sum");
    g.output("y", g.input("a", Type::F32) + g.input("b", Type::F32));
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let ended = Box::new(std::io::repeat(0).take(12));
    let run = executor.prepare(vec![ended, Box::new(NoMore(12))], sink());
    assert_eq!(run.unwrap().run().unwrap().ticks, 3);
}

/// Gives nothing until it is told to end.
struct Silent(Receiver<()>);

impl Read for Silent {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Ok(0)
    }
}

/// What a run of a chain tells while its input is silent: when the first wait has begun, and later.
/// And what it tells behind its end.
fn silent() -> ([Telemetry; 2], Outcome) {
    let executor = Executor::new(&chain(2), Settings::default()).unwrap();
    let (end, silence) = channel();
    let run = executor
        .prepare(vec![Box::new(Silent(silence))], sink())
        .unwrap();
    let handle = run.handle();
    let watcher = thread::spawn(move || {
        let begin = Instant::now();
        let seen = [0, 500_000_000].map(|least| {
            loop {
                let seen = handle.telemetry();
                let waits = seen.partitions[2].waiting_to_read > least;
                if waits || begin.elapsed() > LONG {
                    return seen;
                }
                thread::yield_now();
            }
        });
        drop(end);
        seen
    });
    let outcome = run.run().unwrap();
    (watcher.join().unwrap(), outcome)
}

#[test]
fn a_wait_that_is_not_over_is_no_work() {
    let ([begun, seen], outcome) = silent();
    let (before, part) = (&begun.partitions[2], &seen.partitions[2]);
    let waited = part.waiting_to_read - before.waiting_to_read;
    assert!(part.waiting_to_read > 500_000_000, "{part:?}");
    assert!(part.busy - before.busy < waited / 2, "{before:?} {part:?}");
    let queue = seen.queues.iter().find(|queue| queue.to == part.name);
    assert!(queue.unwrap().empty > 500_000_000, "{:?}", seen.queues);
    // What has been counted stays so. A thread that was not seen to wait may have been stopped
    // between looking at the clock and telling of its wait: it has waited before, then.
    for (seen, end) in seen.partitions.iter().zip(&outcome.telemetry.partitions) {
        let told = seen.waiting > 0;
        assert!(!told || end.busy >= seen.busy, "{seen:?} {end:?}");
        assert!(end.waiting >= seen.waiting, "{seen:?} {end:?}");
    }
}

#[test]
fn a_partition_that_does_not_run_is_no_limit() {
    let g = Builder::new("aside");
    let x = g.input("x", Type::F32);
    let y = g.scope("way", || {
        g.partition(0);
        x.fir([0.5; 31])
    });
    // Nobody hears of it.
    g.scope("aside", || {
        g.partition(1);
        let counter = Counter {
            period: 9,
            initial: 0,
            output: Scalar::U32,
        };
        g.add(counter, []).gain(2);
    });
    g.output("y", y);
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let reader = Box::new(std::io::Cursor::new(vec![0; 1 << 20]));
    let run = executor.prepare(vec![reader], sink()).unwrap();
    let telemetry = run.run().unwrap().telemetry;
    let aside = &telemetry.partitions[3];
    assert_eq!((aside.name.as_str(), aside.ticks), ("partition 1", 0));
    assert_eq!((aside.busy, aside.waiting), (0, 0));
    assert_ne!(telemetry.limit(), Some(Limit::Partition(3)));
}

#[test]
fn blocks_without_a_common_round_are_refused_however_many() {
    const PARTITIONS: u32 = 9;
    // Two of them have 2 at most in common: their round has more than 128 bits.
    let between = (1..PARTITIONS).map(|to| Between {
        from: to - 1,
        to,
        block: (1 << 22) + 1 - 2 * u64::from(to),
        capacity: 1,
        transfer: Transfer::InPlace,
    });
    let settings = Settings {
        between: between.collect(),
        ..Settings::default()
    };
    let problems = Executor::new(&chain_and(PARTITIONS, true), settings).unwrap_err();
    let text = problems.to_string();
    assert!(text.contains("no common round"), "{text}");
}

#[test]
fn a_queue_of_more_blocks_than_can_be_counted_is_refused() {
    let g = Builder::new("delayed");
    let x = g.input("x", Type::F32);
    let past = g.scope("first", || {
        g.partition(0);
        x.gain(2).delay(40, 0)
    });
    let y = g.scope("second", || {
        g.partition(1);
        past.gain(2)
    });
    g.output("y", y);
    let settings = Settings {
        capacity: usize::MAX,
        ..Settings::default()
    };
    let problems = Executor::new(&g.build().unwrap(), settings).unwrap_err();
    let text = problems.to_string();
    assert!(text.contains("it must be 1 to"), "{text}");
}

/// What becomes of writing without end to an address, once all is to stop.
fn written(address: &str, stop: &Stop, reader: impl FnOnce() + Send + 'static) -> String {
    let (told, ended) = channel();
    let (address, stop): (Address, Stop) = (address.parse().unwrap(), stop.clone());
    thread::spawn(reader);
    thread::spawn(move || {
        let mut writer = address.writer(&stop).unwrap();
        let error = loop {
            if let Err(error) = writer.write_all(&[7; 1 << 16]) {
                break error;
            }
            stop.set();
        };
        told.send(error.to_string()).unwrap();
    });
    ended.recv_timeout(LONG).expect("it gives up")
}

#[test]
fn an_output_that_nobody_takes_ends_when_all_is_to_stop() {
    let stop = Stop::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Connected, and never read.
    let error = written(&format!("tcp:127.0.0.1:{port}"), &stop, || ());
    assert!(error.contains("takes nothing"), "{error}");
    drop(listener);

    #[cfg(unix)]
    {
        let address = format!("shm:karoo-flow-idle-{},size=100000", std::process::id());
        let stop = Stop::new();
        let reader: Address = address.parse().unwrap();
        // It comes, stays until the test ends, and takes nothing.
        let comes = move || std::mem::forget(reader.reader(&Stop::new()));
        let error = written(&address, &stop, comes);
        assert!(error.contains("takes nothing"), "{error}");
    }
}
