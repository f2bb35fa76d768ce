//! Threads that decode frames. Frames come back in the order in which they were found.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::acquire::Start;
use super::config::{RxConfig, RxConfigError};
use super::decoder::Decoder;
use super::frame::ReceivedFrame;
use super::samples::Samples;

/// Frames that wait for a thread, for each thread.
const WAITING: usize = 2;

struct Job {
    number: u64,
    values: Vec<f32>,
    first: i64,
    start: Start,
}

/// A job that is done: its frame, if there is one, or the panic that it came to, and its buffer.
struct Done {
    number: u64,
    frame: thread::Result<Option<ReceivedFrame>>,
    buffer: Vec<f32>,
}

/// Makes a frame of samples.
type Decode = Box<dyn FnMut(Samples, &Start) -> Option<ReceivedFrame> + Send>;

/// What a thread does.
type Work = Box<dyn FnOnce() + Send>;

/// Jobs on their way to threads. No lock is held while a thread waits: whoever gives a job wakes
/// one that sleeps, and no thread has to wait for another one to begin.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Condvar,
    went: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Threads that take jobs.
    threads: usize,
    /// No more jobs come.
    ended: bool,
}

impl Queue {
    /// What a thread that panicked leaves behind is whole: it decodes without the lock.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a job; waits while `most` are waiting. Without a thread that would take it, the job is
    /// lost.
    fn give(&self, job: Job, most: usize) {
        let full = |waiting: &mut Waiting| waiting.jobs.len() >= most && waiting.threads > 0;
        let waiting = self.went.wait_while(self.lock(), full);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.jobs.push_back(job);
        drop(waiting);
        self.came.notify_one();
    }

    /// Waits for a job; none comes any more if there is none.
    fn take(&self) -> Option<Job> {
        let none = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.ended;
        let waiting = self.came.wait_while(self.lock(), none);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let job = waiting.jobs.pop_front();
        drop(waiting);
        self.went.notify_one();
        job
    }

    fn end(&self) {
        self.lock().ended = true;
        self.came.notify_all();
    }
}

/// A thread that takes jobs, as long as it lives.
struct Taker(Arc<Queue>);

impl Taker {
    fn new(queue: &Arc<Queue>) -> Taker {
        queue.lock().threads += 1;
        Taker(Arc::clone(queue))
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        // Whoever waits for it to take jobs need not wait any more.
        self.0.went.notify_all();
    }
}

/// Decodes until no more jobs come, or nobody wants what is decoded. A panic is a job's end like
/// another: whoever waits for the frames behind it would wait for ever.
fn work(taker: &Taker, mut decode: Decode, finished: &Sender<Done>) {
    while let Some(job) = taker.0.take() {
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
    queue: Arc<Queue>,
    /// Jobs that may wait.
    most: usize,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    /// Frames that came back before one that was found earlier.
    early: BTreeMap<u64, thread::Result<Option<ReceivedFrame>>>,
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
        let (finished, done) = mpsc::channel();
        // If a thread cannot be started, dropping the pool ends those that were.
        let mut pool = Pool {
            queue: Arc::default(),
            most: WAITING * threads,
            done,
            threads: Vec::new(),
            early: BTreeMap::new(),
            buffers: Vec::new(),
            given: 0,
            taken: 0,
        };
        for started in 0..threads {
            let (taker, finished) = (Taker::new(&pool.queue), finished.clone());
            let decode = decoder();
            let thread = spawn(Box::new(move || work(&taker, decode, &finished)));
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
        self.queue.give(job, self.most);
    }

    /// Takes the frames whose turn it is; all that were given if `wait`. Where decoding one
    /// panicked, so does this, as it would without threads.
    pub fn take(&mut self, wait: bool, mut each: impl FnMut(Option<ReceivedFrame>)) {
        while self.taken < self.given {
            // After a panic too: the frames behind the one that panicked are in `early`.
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
        self.queue.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
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
        let refused = Pool::start(5, || Box::new(|_, _| None), spawn)
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
                None
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
