//! Threads that decode frames. Frames come back in the order in which they were found.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::acquire::Start;
use super::config::{RxConfig, RxConfigError};
use super::decoder::Decoder;
use super::frame::{Missed, ReceivedFrame};
use super::samples::Samples;

/// Frames that wait for a thread, for each thread.
const WAITING: usize = 2;

struct Job {
    number: u64,
    values: Vec<f32>,
    first: i64,
    start: Start,
}

/// What became of a frame that was found.
type Decoded = Result<ReceivedFrame, Missed>;

/// A job that is done: its frame, if there is one, or the panic that it came to, and its buffer.
struct Done {
    number: u64,
    frame: thread::Result<Decoded>,
    buffer: Vec<f32>,
}

/// Makes a frame of samples.
type Decode = Box<dyn FnMut(Samples, &Start) -> Decoded + Send>;

/// What a thread does.
type Work = Box<dyn FnOnce() + Send>;

/// Decodes until no more jobs come, or nobody wants what is decoded. A panic is a job's end like
/// another: whoever waits for the frames after it would wait for ever.
fn work(jobs: &Receiver<Job>, mut decode: Decode, finished: &Sender<Done>) {
    for job in jobs {
        let samples = Samples {
            values: &job.values,
            first: job.first,
        };
        let frame = catch_unwind(AssertUnwindSafe(|| decode(samples, &job.start)));
        let done = Done {
            number: job.number,
            frame,
            buffer: job.values,
        };
        if finished.send(done).is_err() {
            return;
        }
    }
}

pub(crate) struct Pool {
    /// Jobs on their way to threads; nothing once the pool ends.
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    /// Frames that came back before one that was found earlier.
    early: BTreeMap<u64, thread::Result<Decoded>>,
    buffers: Vec<Vec<f32>>,
    given: u64,
    taken: u64,
}

impl Pool {
    /// Starts as many threads as the settings say, all or none.
    pub fn new(config: &RxConfig) -> Result<Pool, RxConfigError> {
        let decoder = || -> Decode {
            let mut decoder = Decoder::new(config);
            Box::new(move |samples, start| decoder.decode(samples, start))
        };
        Pool::start(config.threads, decoder, |work| {
            thread::Builder::new().spawn(work)
        })
    }

    fn start(
        threads: usize,
        decoder: impl Fn() -> Decode,
        mut spawn: impl FnMut(Work) -> io::Result<JoinHandle<()>>,
    ) -> Result<Pool, RxConfigError> {
        let (jobs, taken) = bounded(WAITING * threads);
        let (finished, done) = unbounded();
        // If a thread cannot be started, dropping the pool ends those that were.
        let mut pool = Pool {
            jobs: Some(jobs),
            done,
            threads: Vec::new(),
            early: BTreeMap::new(),
            buffers: Vec::new(),
            given: 0,
            taken: 0,
        };
        for started in 0..threads {
            let (jobs, finished) = (taken.clone(), finished.clone());
            let decode = decoder();
            let thread = spawn(Box::new(move || work(&jobs, decode, &finished)));
            pool.threads
                .push(thread.map_err(|_| RxConfigError::NoThread {
                    wanted: threads,
                    started,
                })?);
        }
        Ok(pool)
    }

    /// Gives a frame to the threads; waits while all of them have enough to do.
    pub fn give(&mut self, samples: Samples, from: i64, to: i64, start: &Start) {
        let mut values = self.buffers.pop().unwrap_or_default();
        values.clear();
        values.extend_from_slice(samples.range(from, to).unwrap_or(&[]));
        let job = Job {
            number: self.given,
            values,
            first: from,
            start: *start,
        };
        self.given += 1;
        if let Some(jobs) = &self.jobs {
            // Without a thread that would take it, the job is lost.
            let _ = jobs.send(job);
        }
    }

    /// Takes the frames whose turn it is; all that were given if `wait`. Where decoding one
    /// panicked, so does this, as it would without threads.
    pub fn take(&mut self, wait: bool, mut each: impl FnMut(Decoded)) {
        while self.taken < self.given {
            // After a panic too: the frames after the one that panicked are in `early`.
            if let Some(frame) = self.early.remove(&self.taken) {
                self.taken += 1;
                each(frame.unwrap_or_else(|panic| resume_unwind(panic)));
                continue;
            }
            let done = if wait {
                self.done.recv().ok()
            } else {
                self.done.try_recv().ok()
            };
            let Some(Done {
                number,
                frame,
                buffer,
            }) = done
            else {
                break;
            };
            self.buffers.push(buffer);
            self.early.insert(number, frame);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const START: Start = Start {
        sample: 0,
        fraction: 0.0,
        frequency: 0.0,
        strength: 0.0,
        origin: 0,
    };

    #[test]
    fn threads_that_cannot_be_had_are_an_error_and_the_others_end() {
        let (ended, mut spawned) = (Arc::new(AtomicUsize::new(0)), 0);
        let spawn = |work: Work| {
            if spawned == 3 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            spawned += 1;
            let ended = ended.clone();
            thread::Builder::new().spawn(move || {
                work();
                ended.fetch_add(1, Ordering::Relaxed);
            })
        };
        let refused = Pool::start(5, || Box::new(|_, _| Err(Missed::NotAcquired)), spawn)
            .err()
            .unwrap();
        assert_eq!(
            refused,
            RxConfigError::NoThread {
                wanted: 5,
                started: 3
            }
        );
        let text = refused.to_string();
        assert!(
            text.contains("5 threads") && text.contains("at most 3"),
            "{text}"
        );
        assert_eq!(ended.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_panic_of_a_thread_comes_in_its_turn_and_nobody_waits_for_ever() {
        let decode = || -> Decode {
            Box::new(|samples, _| {
                assert_ne!(samples.first, 2, "the third one");
                Err(Missed::NotAcquired)
            })
        };
        let spawn = |work| thread::Builder::new().spawn(work);
        let mut pool = Pool::start(2, decode, spawn).unwrap();
        for first in 0..5 {
            let values = &[0.0; 8];
            pool.give(Samples { values, first }, first, first + 2, &START);
        }
        let mut came = 0;
        let taken = catch_unwind(AssertUnwindSafe(|| pool.take(true, |_| came += 1)));
        let panic = *taken.unwrap_err().downcast::<String>().unwrap();
        assert!(panic.contains("the third one"), "{panic}");
        assert_eq!(came, 2);
        pool.take(true, |_| came += 1);
        assert_eq!(came, 4);
    }
}
