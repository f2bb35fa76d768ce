//! Colours on a terminal, unless `NO_COLOR` is set.

use std::io::{stderr, stdout};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// What is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What should be looked at.
pub const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// What is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Whether standard output shows colours.
pub fn on_stdout() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// Whether standard error shows colours.
pub fn on_stderr() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}

/// `text` in a colour, if it is `shown`.
pub fn paint(style: Style, text: &str, shown: bool) -> String {
    match shown && !text.is_empty() {
        true => format!("{style}{text}{style:#}"),
        false => text.to_owned(),
    }
}

/// `text` with a word at the beginning of each line in the colour that `styles` has for it, if it
/// is `shown`.
pub fn first_words(text: &str, styles: &[(&str, Style)], shown: bool) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let end = line[indent..]
            .find(char::is_whitespace)
            .map_or(line.len(), |end| indent + end);
        let word = &line[indent..end];
        match styles.iter().find(|(known, _)| *known == word) {
            Some((_, style)) => {
                let word = paint(*style, word, shown);
                format!("{}{word}{}", &line[..indent], &line[end..])
            }
            None => line.to_owned(),
        }
    };
    text.split_inclusive('\n').map(line).collect()
}

/// `text` with its last line in a colour, if it is `shown`.
pub fn last_line(text: &str, style: Style, shown: bool) -> String {
    let start = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
    let (before, last) = text.split_at(start);
    format!("{before}{}", paint(style, last, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_begin_a_line_are_coloured() {
        let styles = [("MISS", BAD), ("ok", GOOD)];
        let text = "MISS a ok\n  ok b\nokay MISS\n";
        let painted = first_words(text, &styles, true);
        assert_eq!(
            painted,
            format!("{BAD}MISS{BAD:#} a ok\n  {GOOD}ok{GOOD:#} b\nokay MISS\n")
        );
        assert_eq!(first_words(text, &styles, false), text);
        assert_eq!(paint(BAD, "", true), "");
        let painted = last_line("a\nb", GOOD, true);
        assert_eq!(painted, format!("a\n{GOOD}b{GOOD:#}"));
        assert_eq!(last_line("b", GOOD, false), "b");
    }
}
