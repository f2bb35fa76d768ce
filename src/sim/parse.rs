//! The signal language, by recursive descent.
//!
//! ```text
//! program   := { [ identifier "=" ] expr ";" }
//! expr      := term { ("+" | "-") term }
//! term      := atom { "*" atom }
//! atom      := number | function | identifier | "(" expr ")"
//! function  := cw(a, f) | multicw(m, a, da, f, df) | comb(a, f) | wgn(std[, seed])
//!            | delay(expr, samples) | nodither(expr)
//! ```

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::signal::{Operator, Signal, Term};

/// Most terms in an expression, variables written out.
const MAX_TERMS: usize = 1024;
/// Deepest nesting of expressions: that of as many terms with all parentheses written, as `signals`
/// has them.
const MAX_DEPTH: usize = MAX_TERMS + 8;
/// Most tones of a `multicw`.
const MAX_TONES: u64 = 65536;

const FUNCTIONS: [&str; 6] = ["cw", "multicw", "comb", "wgn", "delay", "nodither"];

/// What is wrong with a program; positions are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// Something else was needed here.
    #[error("signals: expected {expected} at position {at}, found {found}")]
    Expected {
        /// Where.
        at: usize,
        /// What would do.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// Not a finite number, or out of the range of its place.
    #[error("signals: number {text:?} at position {at} is out of range; it must be from {range}")]
    Number {
        /// Where.
        at: usize,
        /// As written.
        text: String,
        /// The smallest and the largest that would do.
        range: String,
    },
    /// Used before it was assigned.
    #[error("signals: unknown variable '{name}' at position {at}; assign it first")]
    UnknownVariable {
        /// Where.
        at: usize,
        /// Name of the variable.
        name: String,
    },
    /// There is no function of this name.
    #[error("signals: no function '{name}' at position {at}; there are {}", FUNCTIONS.join(", "))]
    UnknownFunction {
        /// Where.
        at: usize,
        /// Name that was called.
        name: String,
    },
    /// Assignment to the name of a function.
    #[error("signals: '{name}' at position {at} is a function and cannot be assigned to")]
    Reserved {
        /// Where.
        at: usize,
        /// The name.
        name: String,
    },
    /// An operand without dither.
    #[error(
        "signals: {term} at position {at} cannot be part of another expression; put nodither around the whole"
    )]
    Nodither {
        /// Where the operand begins.
        at: usize,
        /// The operand.
        term: String,
    },
    /// Too large to evaluate.
    #[error(
        "signals: expression at position {at} is nested deeper than {MAX_DEPTH} or has more than {MAX_TERMS} terms"
    )]
    TooComplex {
        /// Where.
        at: usize,
    },
}

impl SignalError {
    /// Byte of the program that it is about.
    pub fn at(&self) -> usize {
        match self {
            Self::Expected { at, .. }
            | Self::Number { at, .. }
            | Self::UnknownVariable { at, .. }
            | Self::UnknownFunction { at, .. }
            | Self::Reserved { at, .. }
            | Self::Nodither { at, .. }
            | Self::TooComplex { at } => *at,
        }
    }
}

/// Parses a program to its output signals, in order of polarisation.
/// Noise without a seed takes its seed from `seeds`.
pub fn parse(program: &str, seeds: impl FnMut() -> u64) -> Result<Vec<Signal>, SignalError> {
    let mut parser = Parser {
        text: program,
        at: 0,
        depth: 0,
        variables: HashMap::new(),
        seeds,
    };
    parser.program()
}

struct Parser<'a, S> {
    text: &'a str,
    at: usize,
    depth: usize,
    variables: HashMap<&'a str, Signal>,
    seeds: S,
}

impl<'a, S: FnMut() -> u64> Parser<'a, S> {
    fn program(&mut self) -> Result<Vec<Signal>, SignalError> {
        let mut outputs = Vec::new();
        while !self.rest().is_empty() {
            let target = self.target()?;
            let signal = self.expression()?;
            self.expect(';', "';'")?;
            match target {
                Some(name) => {
                    self.variables.insert(name, signal);
                }
                None => outputs.push(signal),
            }
        }
        Ok(outputs)
    }

    /// `identifier "="`, if that is what comes.
    fn target(&mut self) -> Result<Option<&'a str>, SignalError> {
        let (start, _) = (self.at, self.rest());
        let at = self.at;
        if let Some(name) = self.identifier()
            && self.accept('=')
        {
            if FUNCTIONS.contains(&name) {
                let name = name.to_owned();
                return Err(SignalError::Reserved { at, name });
            }
            return Ok(Some(name));
        }
        self.at = start;
        Ok(None)
    }

    fn expression(&mut self) -> Result<Signal, SignalError> {
        self.rest();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SignalError::TooComplex { at: self.at });
        }
        let start = self.at;
        let mut left = self.product()?;
        loop {
            let operator = if self.accept('+') {
                Operator::Add
            } else if self.accept('-') {
                Operator::Subtract
            } else {
                self.depth -= 1;
                return Ok(left);
            };
            left = self.combine(operator, left, start, Self::product)?;
        }
    }

    fn product(&mut self) -> Result<Signal, SignalError> {
        self.rest();
        let start = self.at;
        let mut left = self.atom()?;
        while self.accept('*') {
            left = self.combine(Operator::Multiply, left, start, Self::atom)?;
        }
        Ok(left)
    }

    fn combine(
        &mut self,
        operator: Operator,
        left: Signal,
        start: usize,
        operand: fn(&mut Self) -> Result<Signal, SignalError>,
    ) -> Result<Signal, SignalError> {
        let left = inner(left, start)?;
        self.rest();
        let at = self.at;
        let right = inner(operand(self)?, at)?;
        bounded(Term::Combine(operator, left, right), start)
    }

    fn atom(&mut self) -> Result<Signal, SignalError> {
        self.rest();
        let at = self.at;
        if self.accept('(') {
            let signal = self.expression()?;
            self.expect(')', "')'")?;
            return Ok(signal);
        }
        let Some(name) = self.identifier() else {
            let expected = "a number, a function, a variable or '('";
            let text = self.number_text(true);
            if text.is_empty() {
                return Err(self.expected(expected));
            }
            return Ok(dithered(Term::Constant(finite(text, at)?)));
        };
        if !FUNCTIONS.contains(&name) {
            let signal = self.variables.get(name).cloned();
            let name = name.to_owned();
            if signal.is_none() && self.rest().starts_with('(') {
                return Err(SignalError::UnknownFunction { at, name });
            }
            return signal.ok_or(SignalError::UnknownVariable { at, name });
        }
        self.expect('(', "'('")?;
        let signal = self.call(name)?;
        self.expect(')', "')'")?;
        Ok(signal)
    }

    /// A function's arguments.
    fn call(&mut self, name: &str) -> Result<Signal, SignalError> {
        let term = match name {
            "cw" => Term::Cw {
                amplitude: self.number()?,
                frequency: self.next_number()?,
            },
            "comb" => Term::Comb {
                amplitude: self.number()?,
                frequency: self.next_number()?,
            },
            "multicw" => Term::MultiCw {
                tones: self.integer(0..=MAX_TONES)?,
                amplitude: (self.next_number()?, self.next_number()?),
                frequency: (self.next_number()?, self.next_number()?),
            },
            "wgn" => Term::Wgn {
                std: self.number()?,
                seed: match self.accept(',') {
                    true => self.integer(0..=u64::MAX)?,
                    false => (self.seeds)(),
                },
            },
            "delay" => {
                self.rest();
                let at = self.at;
                let signal = self.expression()?;
                self.expect(',', "','")?;
                let samples = self.integer(i64::MIN..=i64::MAX)?;
                return bounded(Term::Delay(inner(signal, at)?, samples), at);
            }
            _ => {
                self.rest();
                let at = self.at;
                let signal = self.expression()?;
                return Ok(Signal {
                    term: inner(signal, at)?,
                    dither: false,
                });
            }
        };
        Ok(dithered(term))
    }

    fn next_number(&mut self) -> Result<f64, SignalError> {
        self.expect(',', "','")?;
        self.number()
    }

    fn number(&mut self) -> Result<f64, SignalError> {
        self.rest();
        let at = self.at;
        match self.number_text(true) {
            "" => Err(self.expected("a number")),
            text => finite(text, at),
        }
    }

    fn integer<T>(&mut self, range: RangeInclusive<T>) -> Result<T, SignalError>
    where
        T: std::str::FromStr + PartialOrd + Default + std::fmt::Display,
    {
        let signed = *range.start() < T::default();
        self.rest();
        let at = self.at;
        let expected = if signed {
            "an integer"
        } else {
            "an integer without sign"
        };
        if !signed && self.rest().starts_with(['+', '-']) {
            return Err(self.expected(expected));
        }
        let text = self.number_text(false);
        if text.is_empty() {
            return Err(self.expected(expected));
        }
        text.parse()
            .ok()
            .filter(|value| range.contains(value))
            .ok_or_else(|| SignalError::Number {
                at,
                text: text.to_owned(),
                range: format!("{} to {}", range.start(), range.end()),
            })
    }

    /// Takes a number with optional sign, and with fraction and exponent where `real`; empty if
    /// there is none.
    fn number_text(&mut self, real: bool) -> &'a str {
        let rest = self.rest();
        let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        let sign = usize::from(rest.starts_with(['+', '-']));
        let whole = digits(sign);
        let mut end = sign + whole;
        let mut fraction = 0;
        if real && rest[end..].starts_with('.') {
            fraction = digits(end + 1);
            end += 1 + fraction;
        }
        if whole + fraction == 0 {
            return "";
        }
        if real && rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let exponent = digits(end + 1 + sign);
            if exponent > 0 {
                end += 1 + sign + exponent;
            }
        }
        self.at += end;
        &rest[..end]
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let letter = |c: char| c == '_' || c.is_ascii_alphabetic();
        let end = rest
            .find(|c: char| !(letter(c) || c.is_ascii_digit()))
            .unwrap_or(rest.len());
        let name = rest[..end].starts_with(letter).then_some(&rest[..end])?;
        self.at += end;
        Some(name)
    }

    /// The text from the next character that is not white space.
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn accept(&mut self, symbol: char) -> bool {
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    fn expect(&mut self, symbol: char, expected: &'static str) -> Result<(), SignalError> {
        match self.accept(symbol) {
            true => Ok(()),
            false => Err(self.expected(expected)),
        }
    }

    fn expected(&mut self, expected: &'static str) -> SignalError {
        let found = match self.rest().chars().next() {
            Some(symbol) => format!("{symbol:?}"),
            None => "the end".to_owned(),
        };
        SignalError::Expected {
            at: self.at,
            expected,
            found,
        }
    }
}

fn dithered(term: Term) -> Signal {
    Signal {
        term: Arc::new(term),
        dither: true,
    }
}

/// A term made of others, unless it has become too large: evaluation recurses.
fn bounded(term: Term, at: usize) -> Result<Signal, SignalError> {
    match term.size() > MAX_TERMS {
        true => Err(SignalError::TooComplex { at }),
        false => Ok(dithered(term)),
    }
}

/// The term of a signal that becomes a part of another.
fn inner(signal: Signal, at: usize) -> Result<Arc<Term>, SignalError> {
    match signal.dither {
        true => Ok(signal.term),
        false => Err(SignalError::Nodither {
            at,
            term: format!("nodither({})", signal.term),
        }),
    }
}

fn finite(text: &str, at: usize) -> Result<f64, SignalError> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
        .ok_or_else(|| SignalError::Number {
            at,
            text: text.to_owned(),
            range: "-1.797e308 to 1.797e308".to_owned(),
        })
}

#[cfg(test)]
mod tests;
