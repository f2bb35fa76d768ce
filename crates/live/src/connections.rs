//! Connections in classes of their own, so that one kind of client does not keep out another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// How many clients there may be, and how long each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that have not asked for anything yet: the oldest makes room for the next.
    pub fresh: usize,
    /// Connections for scrapes at the same time: the oldest makes room for the next.
    pub scrapes: usize,
    /// The same of pages and what belongs to them.
    pub pages: usize,
    /// Viewers of events. One more is refused.
    pub viewers: usize,
    /// How long each has that is no viewer, from the connection to the last byte that it reads.
    pub patience: Duration,
    /// How long a viewer may read nothing.
    pub stuck: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fresh: 64,
            scrapes: 16,
            pages: 64,
            viewers: 64,
            patience: Duration::from_secs(10),
            stuck: Duration::from_secs(30),
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Metrics.
    Scrape,
    /// A page, a document, an array or a file.
    Page,
    /// Events, for as long as the client likes.
    Viewer,
}

/// All connections.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    open: Mutex<Open>,
}

/// A connection that has had so long to ask for something makes room for others.
const TIME_TO_ASK: Duration = Duration::from_millis(100);
/// How often it is looked for room.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// With the time when each came.
    fresh: VecDeque<(u64, AbortHandle, Instant)>,
    scrapes: VecDeque<(u64, AbortHandle)>,
    pages: VecDeque<(u64, AbortHandle)>,
    viewers: VecDeque<(u64, AbortHandle)>,
}

impl Connections {
    /// None yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            open: Mutex::default(),
        })
    }

    /// What is allowed.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the connection whose task `start` starts, given the connection's number.
    pub fn add(&self, start: impl FnOnce(u64) -> AbortHandle) {
        // Held meanwhile, so that the task finds itself here.
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.fresh.retain(|(_, task, _)| !task.is_finished());
        if open.fresh.len() >= self.limits.fresh
            && let Some((_, oldest, _)) = open.fresh.pop_front()
        {
            oldest.abort();
        }
        open.fresh
            .push_back((number, start(number), Instant::now()));
    }

    /// Waits until one more connection turns none away that has had no time to ask for something,
    /// as after this process stood still: until then, those that come wait in the system's queue.
    pub async fn room(&self) {
        let is_full = || {
            let mut open = self.lock();
            open.fresh.retain(|(_, task, _)| !task.is_finished());
            let oldest = open.fresh.front().map(|(_, _, came)| came.elapsed());
            open.fresh.len() >= self.limits.fresh && oldest.is_some_and(|age| age < TIME_TO_ASK)
        };
        while is_full() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Says what a connection is for, once that is known. Returns whether there is room for it.
    pub fn classify(&self, number: u64, class: Class) -> bool {
        let mut open = self.lock();
        let place = open.fresh.iter().position(|(other, ..)| *other == number);
        let Some((_, task, _)) = place.and_then(|place| open.fresh.remove(place)) else {
            // It was told already.
            return true;
        };
        let connection = (number, task);
        match class {
            Class::Scrape => {
                make_room(&mut open.scrapes, self.limits.scrapes);
                open.scrapes.push_back(connection);
            }
            Class::Page => {
                make_room(&mut open.pages, self.limits.pages);
                open.pages.push_back(connection);
            }
            Class::Viewer => {
                open.viewers.retain(|(_, task)| !task.is_finished());
                if open.viewers.len() >= self.limits.viewers {
                    return false;
                }
                open.viewers.push_back(connection);
            }
        }
        true
    }

    /// Whether a connection is that of a viewer.
    pub fn is_viewer(&self, number: u64) -> bool {
        let open = self.lock();
        open.viewers.iter().any(|(other, _)| *other == number)
    }
}

/// Ends the oldest connection if there are as many as may be.
fn make_room(connections: &mut VecDeque<(u64, AbortHandle)>, limit: usize) {
    connections.retain(|(_, task)| !task.is_finished());
    if connections.len() >= limit
        && let Some((_, oldest)) = connections.pop_front()
    {
        oldest.abort();
    }
}
