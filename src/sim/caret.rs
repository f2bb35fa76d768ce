//! Mistakes in the signal language, shown where they are.

use super::SignalError;

/// The functions, as the grammar has them.
const FUNCTIONS: &str = "cw(amplitude, frequency), multicw(n, a, da, f, df), comb(amplitude, frequency), \
     wgn(deviation[, seed]), delay(signal, samples), nodither(signal)";
/// Characters on either side of a mistake that are shown.
const AROUND: usize = 36;

/// A mistake in a program that stands on a command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{error}\n  {line}\n  {pointer}\nfunctions: {FUNCTIONS}")]
pub struct ShownSignalError {
    #[source]
    error: SignalError,
    /// The text around the mistake, without line breaks.
    line: String,
    /// A caret under the mistake.
    pointer: String,
}

impl SignalError {
    /// This mistake with the place in `program` that it is about.
    pub fn shown(self, program: &str) -> ShownSignalError {
        let at = self.at().min(program.len());
        let blank = |c: char| if c.is_control() { ' ' } else { c };
        let (before, behind) = program.split_at_checked(at).unwrap_or((program, ""));
        let skipped = before.chars().count().saturating_sub(AROUND);
        let mut line: String = before.chars().skip(skipped).map(blank).collect();
        let mut column = line.chars().count();
        if skipped > 0 {
            line.insert(0, '…');
            column += 1;
        }
        line.extend(behind.chars().take(AROUND).map(blank));
        if behind.chars().nth(AROUND).is_some() {
            line.push('…');
        }
        ShownSignalError {
            pointer: format!("{}^", " ".repeat(column)),
            line,
            error: self,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;

    fn shown(program: &str) -> Vec<String> {
        let error = parse(program, || 0).expect_err("a mistake");
        let text = error.shown(program).to_string();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_caret_stands_under_the_mistake() {
        let lines = shown("cw(0.1 1e6);");
        assert!(lines[0].starts_with("--signals: expected ','"), "{lines:?}");
        assert_eq!(lines[1..3], ["  cw(0.1 1e6);", "         ^"]);
        assert!(lines[3].contains("comb(amplitude, frequency)"));
    }

    #[test]
    fn functions_that_there_are_none_of_are_named() {
        let lines = shown("cw(1, 2) + sin(0.1, 1e6);");
        assert!(lines[0].contains("no function 'sin'"), "{lines:?}");
        assert_eq!(lines[2], format!("{}^", " ".repeat(2 + 11)));
        let lines = shown("noise;");
        assert!(lines[0].contains("unknown variable 'noise'"), "{lines:?}");
    }

    #[test]
    fn of_a_long_program_only_the_place_is_shown() {
        let long = "cw(1, 2) + ".repeat(100) + "cw(é); " + &"cw(3, 4);\n".repeat(100);
        let lines = shown(&long);
        assert!(lines[1].chars().count() < 90, "{lines:?}");
        assert!(lines[1].starts_with("  …") && lines[1].ends_with('…'));
        let column = lines[2].chars().count() - 1;
        assert_eq!(lines[1].chars().nth(column), Some('é'));
    }

    proptest! {
        #[test]
        fn no_mistake_makes_it_panic(text in "[cwdelay0-9+*()=;,. é\n-]{0,40}") {
            if let Err(error) = parse(&text, || 0) {
                prop_assert_eq!(error.shown(&text).to_string().lines().count(), 4);
            }
        }
    }
}
