//! Lines on their way to a client, and the memory that such lines take.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::sparing::Sparing;

/// Whole lines, perhaps for many clients.
pub type SharedLine = Arc<[u8]>;

/// Number of a connection. No number is used twice.
pub type ClientId = u64;

/// Bytes that may wait for a client when its next request is taken.
const DRAINED: usize = 64 << 10;

/// Lines that are written at once, at most.
const BATCH: usize = 64;

/// Bytes that wait for all clients together.
#[derive(Debug)]
pub struct Backlogs {
    bytes: AtomicUsize,
    limit: usize,
    over: Notify,
    /// Lines of the log about clients that are cut off.
    cuts: Sparing,
}

impl Backlogs {
    /// No bytes wait, and so many may.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            limit,
            over: Notify::new(),
            cuts: Sparing::default(),
        }
    }

    /// Bytes that wait now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether more wait than may.
    pub fn is_over(&self) -> bool {
        self.bytes() > self.limit
    }

    /// Waits until more wait than may.
    pub async fn over(&self) {
        self.over.notified().await;
    }

    fn add(&self, bytes: usize) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit {
            self.over.notify_one();
        }
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Lines that wait for one client.
#[derive(Debug)]
pub struct Outbox {
    client: ClientId,
    /// Bytes that may wait when there is another inform. Beyond, the client is cut off.
    limit: usize,
    total: Arc<Backlogs>,
    queue: Mutex<Queue>,
    /// There is a line, or no line will come.
    ready: Notify,
    drained: Notify,
    cut: Notify,
    last_request: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<SharedLine>,
    /// Bytes of `lines`, and of lines that are being written.
    bytes: usize,
    closed: bool,
}

impl Outbox {
    /// An empty outbox of this client, which counts its bytes in `total` as well.
    pub fn new(client: ClientId, limit: usize, total: Arc<Backlogs>) -> Self {
        Self {
            client,
            limit,
            total,
            queue: Mutex::default(),
            ready: Notify::new(),
            drained: Notify::new(),
            cut: Notify::new(),
            last_request: AtomicU64::new(0),
        }
    }

    /// Notes a request of the client, by its number over all clients, from 1.
    pub fn note_request(&self, number: u64) {
        self.last_request.store(number, Ordering::Relaxed);
    }

    /// Number of the last request that was noted; 0 if there was none.
    pub fn last_request(&self) -> u64 {
        self.last_request.load(Ordering::Relaxed)
    }

    /// The client that the lines are for.
    pub fn client(&self) -> ClientId {
        self.client
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait for the client.
    pub fn backlog(&self) -> usize {
        self.queue().bytes
    }

    /// Adds lines that the client asked for. An empty slice and a closed outbox change nothing.
    pub fn push(&self, lines: impl Into<SharedLine>) {
        let lines = lines.into();
        let mut queue = self.queue();
        if queue.closed || lines.is_empty() {
            return;
        }
        queue.bytes += lines.len();
        self.total.add(lines.len());
        queue.lines.push_back(lines);
        self.ready.notify_one();
    }

    /// Adds a line that the client did not ask for. A client that reads too slowly is cut off
    /// instead.
    pub fn inform(&self, line: SharedLine) {
        if self.backlog() > self.limit {
            self.cut("it does not read what is sent to it");
        } else {
            self.push(line);
        }
    }

    /// Closes the outbox: lines that wait are still sent, others are not accepted.
    pub fn close(&self) {
        self.queue().closed = true;
        self.ready.notify_one();
    }

    /// Gives the client up: lines that wait are not sent.
    pub fn cut(&self, why: &'static str) {
        let mut queue = self.queue();
        if queue.closed && queue.lines.is_empty() {
            return;
        }
        if let Some(left_out) = self.total.cuts.line(Instant::now()) {
            tracing::warn!(client = self.client, left_out, "client cut off: {why}");
        }
        queue.closed = true;
        self.forget(&mut queue);
        self.cut.notify_one();
    }

    fn forget(&self, queue: &mut Queue) {
        queue.lines.clear();
        self.total.subtract(queue.bytes);
        queue.bytes = 0;
    }

    /// Waits until the client is cut off.
    pub async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// Waits until little enough waits for the client to take its next request.
    pub async fn is_drained(&self) {
        while self.backlog() > DRAINED {
            self.drained.notified().await;
        }
    }

    /// Takes a line, if one waits.
    pub fn pop(&self) -> Option<SharedLine> {
        self.queue().lines.pop_front()
    }

    /// Waits for lines, and moves some of them into `batch`. False when no more will come.
    pub async fn take(&self, batch: &mut Vec<SharedLine>) -> bool {
        batch.clear();
        loop {
            {
                let mut queue = self.queue();
                let most = queue.lines.len().min(BATCH);
                batch.extend(queue.lines.drain(..most));
                if !batch.is_empty() {
                    return true;
                }
                if queue.closed {
                    return false;
                }
            }
            self.ready.notified().await;
        }
    }

    /// Notes that `bytes` of the lines that were taken are written.
    pub fn written(&self, bytes: usize) {
        let mut queue = self.queue();
        let bytes = bytes.min(queue.bytes);
        queue.bytes -= bytes;
        self.total.subtract(bytes);
        if queue.bytes <= DRAINED {
            self.drained.notify_one();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let queue = self.queue.get_mut();
        let bytes = queue.unwrap_or_else(PoisonError::into_inner).bytes;
        self.total.subtract(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(limit: usize) -> (Outbox, Arc<Backlogs>) {
        let total = Arc::new(Backlogs::new(usize::MAX));
        (Outbox::new(1, limit, total.clone()), total)
    }

    #[tokio::test]
    async fn lines_come_out_in_order() {
        let (outbox, total) = outbox(100);
        outbox.push(*b"one\n");
        outbox.inform(Arc::new(*b"two\n"));
        let mut batch = Vec::new();
        assert!(outbox.take(&mut batch).await);
        assert_eq!(batch.concat(), b"one\ntwo\n");
        assert_eq!((outbox.backlog(), total.bytes()), (8, 8));
        outbox.written(5);
        assert_eq!((outbox.backlog(), total.bytes()), (3, 3));
        outbox.push(*b"three\n");
        outbox.close();
        outbox.push(*b"too late\n");
        assert!(outbox.take(&mut batch).await);
        assert_eq!(batch.concat(), b"three\n");
        assert!(!outbox.take(&mut batch).await);
        drop(outbox);
        assert_eq!(total.bytes(), 0);
    }

    #[tokio::test]
    async fn who_does_not_read_is_cut_off_by_news_and_not_by_answers() {
        let (outbox, total) = outbox(4);
        outbox.push(*b"12345\n");
        outbox.push(*b"12345\n");
        assert_eq!(total.bytes(), 12);
        outbox.inform(Arc::new(*b"6\n"));
        outbox.is_cut().await;
        assert_eq!((outbox.backlog(), total.bytes()), (0, 0));
        outbox.push(*b"7\n");
        assert!(!outbox.take(&mut Vec::new()).await);
    }
}
