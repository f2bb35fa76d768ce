//! `karoo modem`: frames of a single-carrier waveform, sent, sent through channels, and tried.

mod algorithms;
mod bench;
mod ber;
mod channel;
mod ending;
mod graph;
mod link;
mod messages;
mod rx;
mod samples;
mod sink;
mod soft;
mod stream;
mod tx;

pub(in crate::cli) use bench::{
    LatencyDocument, LoopDocument, RxDocument as BenchRxDocument, TxDocument as BenchTxDocument,
};
pub(in crate::cli) use ber::Curves as BerDocument;
pub(in crate::cli) use channel::Passed as ChannelDocument;
pub(in crate::cli) use link::Linked as LinkDocument;
pub(in crate::cli) use rx::Done as RxDocument;
pub(in crate::cli) use tx::Sent as TxDocument;

use clap::{Args, Subcommand};

use super::{Failure, examples};

/// Send and receive frames of a single-carrier packet waveform, and simulate what is between
#[derive(Debug, Args)]
pub struct ModemArgs {
    #[command(subcommand)]
    what: Modem,
}

#[derive(Debug, Subcommand)]
enum Modem {
    /// Send a file as frames: bytes to samples
    ///
    /// Three samples make a symbol. The last frame is padded, and its header has the length of what
    /// is used. SIGINT, SIGTERM and SIGHUP end it after a frame. Exit codes: 0 all was sent, or a
    /// stream without an end was ended; 1 an input or an output failed, or a signal came before the
    /// end of a file; 2 the command line is wrong.
    #[command(after_help = examples::MODEM_TX)]
    Tx(Box<tx::TxArgs>),
    /// Receive frames: samples to bytes
    ///
    /// Prints how many frames were delivered, how many were not, by cause, and the level of the
    /// samples. SIGINT, SIGTERM and SIGHUP end it: what came until then is received and told. Exit
    /// codes: 0 the samples were received, whatever was in them; 1 an input or an output failed, or
    /// a signal came before the end of a file; 2 the command line is wrong.
    #[command(after_help = examples::MODEM_RX)]
    Rx(Box<rx::RxArgs>),
    /// Do to samples what a radio and its surroundings do
    ///
    /// In this order: gain, sample clock and delay, frequency and phase, paths or fading, noise, IQ
    /// imbalance, DC, converter. The same options give the same samples. SIGINT, SIGTERM and SIGHUP
    /// end it. Exit codes: 0 all went through, or standard input until a signal; 1 an input or an
    /// output failed, or a signal came before the end of a file; 2 the command line is wrong.
    #[command(after_help = examples::MODEM_CHANNEL)]
    Channel(Box<channel::ChannelArgs>),
    /// Send over a simulated channel in real time: text as it is typed, or files
    ///
    /// Transmitter, channel and receiver run at the sample rate by the clock. With --http a page
    /// shows constellation, spectrum, eye and equaliser. Exit codes: 0 it was ended, or all was
    /// sent; 1 an input or an output failed; 2 the command line is wrong.
    #[command(after_help = examples::MODEM_LINK)]
    Link(Box<link::LinkArgs>),
    /// Measure bit error rates over noise, beside theory
    ///
    /// Frames with random payloads, carrier phases and delays go through a channel to the receiver,
    /// each by itself. Bits are counted over payloads and check fields of frames that were found
    /// with the right modulation; frames that were lost, or read with another modulation, are
    /// counted beside. The same options give the same figures for any number of threads. Exit
    /// codes: 0 measured; 1 an output failed; 2 the command line is wrong.
    #[command(after_help = examples::MODEM_BER)]
    Ber(Box<ber::BerArgs>),
    /// Measure rates and latency on this machine
    Bench(Box<bench::BenchArgs>),
}

impl ModemArgs {
    /// Whether it starts its log by itself.
    pub fn runs_for_long(&self) -> bool {
        match &self.what {
            Modem::Tx(_) | Modem::Rx(_) | Modem::Channel(_) | Modem::Link(_) => true,
            Modem::Ber(_) | Modem::Bench(_) => false,
        }
    }
}

/// Runs the command.
pub fn run(args: &ModemArgs) -> Result<(), Failure> {
    match &args.what {
        Modem::Tx(args) => tx::run(args),
        Modem::Rx(args) => rx::run(args),
        Modem::Channel(args) => channel::run(args),
        Modem::Link(args) => link::run(args),
        Modem::Ber(args) => ber::run(args),
        Modem::Bench(args) => bench::run(args),
    }
}
