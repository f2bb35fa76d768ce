//! Bytes to frames.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use karoo_modem::graph::SendFrames;
use karoo_modem::waveform::{CheckField, Frame, Header, Modulation, Scrambler, frame_message};

use super::samples::{self, is_standard};
use crate::cli::Failure;
use crate::net::is_read_once;

/// Messages that may wait to be sent.
const WAITING: usize = 16;

/// How long a look for messages lasts.
const LOOK: Duration = Duration::from_millis(50);

/// What check fields have.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Check {
    /// A checksum of header and payload
    #[default]
    Crc,
    /// Padding, as in the original's demo
    Pad,
}

impl From<Check> for CheckField {
    fn from(check: Check) -> CheckField {
        match check {
            Check::Crc => CheckField::Crc,
            Check::Pad => CheckField::Pad,
        }
    }
}

/// What frames are like.
#[derive(Clone, Copy, Debug)]
pub struct FrameSettings {
    pub modulation: Modulation,
    pub check: CheckField,
    /// Whether payloads are scrambled as in the original's demo.
    pub scramble: bool,
    pub source: u8,
    pub destination: u8,
    pub network: u16,
}

impl FrameSettings {
    /// Frames with a checksum, from nobody to nobody.
    pub fn new(modulation: Modulation) -> Self {
        Self {
            modulation,
            check: CheckField::Crc,
            scramble: false,
            source: 0,
            destination: 0,
            network: 0,
        }
    }

    /// A frame, with its number if frames have numbers, and how many bytes of the message are in
    /// it.
    pub fn frame(&self, message: &[u8], number: Option<u8>) -> (Frame, usize) {
        let header = Header {
            source: self.source,
            destination: self.destination,
            network: self.network,
            ..Header::new(self.modulation)
        };
        let header = number.map_or(header, |number| header.with_sequence(number));
        let scrambler = self.scramble.then(Scrambler::demo);
        frame_message(message, header, self.check, scrambler)
    }

    /// The node of a graph that makes such frames, of a power that is `gain` squared.
    pub fn node(&self, gain: f32) -> SendFrames {
        SendFrames {
            modulation: self.modulation,
            check: self.check,
            scramble: self.scramble,
            source: self.source,
            destination: self.destination,
            network: self.network,
            gain,
        }
    }
}

/// Opens a file, or standard input.
fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if is_standard(path) {
        return Ok(Box::new(io::stdin()));
    }
    let failed = |error| Failure::data(format!("--input {}: {error}", path.display()));
    Ok(Box::new(samples::open(path).map_err(failed)?))
}

/// Messages of at most `most` bytes out of a file, so many times, as they come: they are read on a
/// thread of their own, for whoever sends has other things to do while there are none. With
/// `at_once` each is what there is to be read, else each but the last has all of its bytes.
pub fn messages(
    path: &Path,
    times: u64,
    most: usize,
    at_once: bool,
) -> Result<Receiver<Result<Vec<u8>, Failure>>, Failure> {
    if times > 1 && (is_standard(path) || is_read_once(path)) {
        let path = path.display();
        let why = "it is not a file, so it cannot be read again; name one";
        return Err(Failure::usage(format!(
            "--repeat {times} with --input {path}: {why}"
        )));
    }
    let mut input = open(path)?;
    let path = path.to_owned();
    let (sender, messages) = sync_channel(WAITING);
    let work = move || {
        for pass in 0..times {
            let opened = match pass {
                0 => Ok(()),
                _ => open(&path).map(|again| input = again),
            };
            let failed = |error| Failure::data(format!("{}: {error}", path.display()));
            let mut all = || read(&mut input, at_once, most, &sender).map_err(failed);
            if let Err(failure) = opened.and_then(|()| all()) {
                // If nobody waits for it, nobody is told.
                let _ = sender.send(Err(failure));
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("messages".to_owned());
    thread.spawn(work).map_err(Failure::data)?;
    Ok(messages)
}

/// Waits for a message: none if no more come, or as soon as somebody wants the end.
pub fn next_message(
    messages: &Receiver<Result<Vec<u8>, Failure>>,
    has_ended: impl Fn() -> bool,
) -> Result<Option<Vec<u8>>, Failure> {
    while !has_ended() {
        match messages.recv_timeout(LOOK) {
            Ok(message) => return message.map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(None)
}

/// Sends what is read, until the end or until nobody wants more.
fn read(
    input: &mut dyn Read,
    at_once: bool,
    most: usize,
    messages: &SyncSender<Result<Vec<u8>, Failure>>,
) -> io::Result<()> {
    loop {
        let mut message = vec![0; most];
        let length = match at_once {
            true => input.read(&mut message)?,
            false => {
                message.clear();
                (&mut *input).take(most as u64).read_to_end(&mut message)?
            }
        };
        message.truncate(length);
        if length == 0 || messages.send(Ok(message)).is_err() {
            return Ok(());
        }
    }
}
