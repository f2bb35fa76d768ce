//! The waveform: everything that transmitter and receiver must agree on.
//!
//! A frame is a short training field (STF), a channel estimation field (CEF), a header, and a body
//! of payload and check field. Its number of symbols is the same in every modulation, and no field
//! of the header changes it.
//!
//! ```text
//! | STF 1984 | CEF 1792 | header 64 | body 12 256 (payload, 4 bytes of check field) |  blanks 24
//! |--------------- BPSK -------------|-- the frame's modulation -------------------|
//! ```
//!
//! All is in double precision, next to its formula; fast versions are held against it.

mod bits;
mod check;
mod constellation;
mod frame;
mod golay;
mod header;
mod message;
mod modulation;
mod pulse;

pub use bits::{pack_bits, unpack_bits};
pub use check::{CheckField, jamcrc};
pub use constellation::{decide, point, points};
pub use frame::{Frame, FrameError};
pub use golay::{
    CEF_PAIRS, GOLAY_DELAYS, GOLAY_LENGTH, GOLAY_WEIGHTS, STF_REPETITIONS, cef, golay_pair,
    preamble, stf,
};
pub use header::{Header, ModeSet, SEQUENCE_NUMBERS, mode_by_majority, mode_by_soft_values};
pub use message::{Scrambler, frame_message, pad_message};
pub use modulation::{Modulation, UnknownModulation};
pub use pulse::{ROLL_OFF, RRC_SPAN, RRC_TAPS, rrc, rrc_taps, rrc_value};

/// Samples per symbol.
pub const SAMPLES_PER_SYMBOL: usize = 3;
/// Symbols of the short training field.
pub const STF_SYMBOLS: usize = 1984;
/// Symbols of the channel estimation field.
pub const CEF_SYMBOLS: usize = 1792;
/// Symbols of the preamble: STF and CEF.
pub const PREAMBLE_SYMBOLS: usize = STF_SYMBOLS + CEF_SYMBOLS;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// Symbols of the header, one for each bit.
pub const HEADER_SYMBOLS: usize = 8 * HEADER_BYTES;
/// Bytes of the check field.
pub const CHECK_BYTES: usize = 4;
/// Symbols of payload and check field together, in every modulation.
pub const BODY_SYMBOLS: usize = 12_256;
/// Symbols of a frame.
pub const FRAME_SYMBOLS: usize = PREAMBLE_SYMBOLS + HEADER_SYMBOLS + BODY_SYMBOLS;
/// Symbols of a block of the original, which sends whole blocks.
pub const BLOCK_SYMBOLS: usize = 40;
/// Blank symbols that fill a frame's last block.
pub const BLANK_SYMBOLS: usize = FRAME_SYMBOLS.next_multiple_of(BLOCK_SYMBOLS) - FRAME_SYMBOLS;
