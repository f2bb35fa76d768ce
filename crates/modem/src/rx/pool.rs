//! Threads that decode frames. Frames come back in the order in which they were found.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::acquire::Start;
use super::blocks::Samples;
use super::config::RxConfig;
use super::decoder::Decoder;
use super::frame::ReceivedFrame;

/// Frames that wait for a thread, for each thread.
const WAITING: usize = 2;

struct Job {
    number: u64,
    values: Vec<f32>,
    first: i64,
    start: Start,
}

/// A job that is done: its frame, if there is one, and its buffer.
struct Done {
    number: u64,
    frame: Option<ReceivedFrame>,
    buffer: Vec<f32>,
}

pub(crate) struct Pool {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    /// Frames that came back before one that was found earlier.
    early: BTreeMap<u64, Option<ReceivedFrame>>,
    buffers: Vec<Vec<f32>>,
    given: u64,
    taken: u64,
}

impl Pool {
    pub fn new(config: &RxConfig) -> Pool {
        let (jobs, waiting) = mpsc::sync_channel::<Job>(WAITING * config.threads);
        let waiting = Arc::new(Mutex::new(waiting));
        let (finished, done) = mpsc::channel();
        let work = |_| {
            let (waiting, finished) = (Arc::clone(&waiting), finished.clone());
            let mut decoder = Decoder::new(config);
            thread::spawn(move || {
                loop {
                    let Ok(job) = waiting.lock().map(|waiting| waiting.recv()) else {
                        return;
                    };
                    let Ok(Job {
                        number,
                        values,
                        first,
                        start,
                    }) = job
                    else {
                        return;
                    };
                    let frame = decoder.decode(
                        Samples {
                            values: &values,
                            first,
                        },
                        &start,
                    );
                    if finished
                        .send(Done {
                            number,
                            frame,
                            buffer: values,
                        })
                        .is_err()
                    {
                        return;
                    }
                }
            })
        };
        Pool {
            jobs: Some(jobs),
            done,
            threads: (0..config.threads).map(work).collect(),
            early: BTreeMap::new(),
            buffers: Vec::new(),
            given: 0,
            taken: 0,
        }
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
            // Fails only if all threads have ended, which they do after `jobs`.
            let _ = jobs.send(job);
        }
    }

    /// Takes the frames whose turn it is; all that were given if `wait`.
    pub fn take(&mut self, wait: bool, mut each: impl FnMut(Option<ReceivedFrame>)) {
        while self.taken < self.given {
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
            while let Some(frame) = self.early.remove(&self.taken) {
                self.taken += 1;
                each(frame);
            }
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
