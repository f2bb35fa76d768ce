//! Documents for all viewers, made once per tick.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::{Array, Document};

/// Between two documents.
pub const TICK: Duration = Duration::from_secs(1);

/// What a page is about. Called on the thread that serves, one call after the other.
///
/// A call that panics is logged, and costs what it was to make: the next tick calls again.
pub trait Source: Send + 'static {
    /// Keeps what a later document says of the past. Called every [`TICK`], viewers or not.
    fn note(&mut self);

    /// How it is now. Called at most once per tick, and only if somebody looks.
    fn document(&mut self) -> Document;

    /// The array at `arrays/NAME.npy`, if there is one of this name.
    fn array(&mut self, name: &str) -> Option<Array>;

    /// The file at `NAME`, beside the page, if there is one of this name.
    fn file(&mut self, name: &str) -> Option<Download> {
        let _ = name;
        None
    }
}

/// A file that a source makes for whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Its content type.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The source, and what was made of it this tick.
pub struct Feed {
    source: Mutex<Current>,
    events: watch::Sender<Bytes>,
}

struct Current {
    source: Box<dyn Source>,
    /// The document of this tick, once somebody has asked for it.
    document: Option<Bytes>,
}

impl Feed {
    pub fn new(source: Box<dyn Source>) -> Arc<Self> {
        let source = Mutex::new(Current {
            source,
            document: None,
        });
        let events = watch::Sender::new(Bytes::new());
        Arc::new(Self { source, events })
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on for ever.
    pub async fn tick(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut current = self.lock();
            current.document = None;
            // A source that stopped halfway is asked again all the same.
            let noted = catch_unwind(AssertUnwindSafe(|| {
                current.source.note();
                if self.events.receiver_count() > 0 {
                    self.events.send_replace(event(&current.document()));
                }
            }));
            if noted.is_err() {
                tracing::error!("a panic, whose text is above: the page has no new document");
            }
        }
    }

    /// The document of this tick as JSON.
    pub fn document(&self) -> Bytes {
        self.lock().document()
    }

    /// An array of the source.
    pub fn array(&self, name: &str) -> Option<Array> {
        self.lock().source.array(name)
    }

    /// A file of the source.
    pub fn file(&self, name: &str) -> Option<Download> {
        self.lock().source.file(name)
    }

    /// Documents from this tick's on, as server-sent events.
    pub fn subscribe(&self) -> watch::Receiver<Bytes> {
        let mut current = self.lock();
        let document = event(&current.document());
        // Others have it already.
        self.events.send_if_modified(|shown| {
            *shown = document;
            false
        });
        self.events.subscribe()
    }
}

impl Current {
    fn document(&mut self) -> Bytes {
        let made = self.document.get_or_insert_with(|| {
            let json = serde_json::to_vec(&self.source.document());
            json.unwrap_or_else(|error| {
                tracing::error!(%error, "the page's document");
                b"{}".to_vec()
            })
            .into()
        });
        made.clone()
    }
}

/// JSON has no line breaks as it is written here.
fn event(document: &Bytes) -> Bytes {
    [b"data: ", &document[..], b"\n\n"].concat().into()
}
