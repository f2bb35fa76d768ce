//! The progress bar of a replay.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::assembly::CaptureProgress;

/// A progress bar over the bytes of the capture, drawn by a thread of its own until dropped.
pub(super) struct ProgressBar {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressBar {
    const PERIOD: Duration = Duration::from_millis(100);

    /// Draws until the bar is dropped.
    pub(super) fn show(progress: &Arc<CaptureProgress>, total: u64) -> Self {
        let (stop, stopped) = channel();
        let progress = progress.clone();
        let thread = thread::spawn(move || {
            let style = indicatif::ProgressStyle::with_template(
                "{bar:40} {percent:>3}%  {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
            );
            let bar = indicatif::ProgressBar::new(total)
                .with_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
            // Ends when the sender is dropped.
            while stopped.recv_timeout(Self::PERIOD) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(progress.bytes.load(Ordering::Relaxed));
            }
            bar.finish_and_clear();
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
