//! The command line as it was typed, to be copied with what it lacked.

use std::ffi::OsStr;
use std::path::Path;

/// The `given` arguments, the program's name first, and `more` of them, as a line for a shell.
pub fn completed<'a>(
    given: impl IntoIterator<Item = &'a OsStr>,
    more: impl IntoIterator<Item = &'a str>,
) -> String {
    let mut given = given.into_iter();
    let program = given
        .next()
        .map(|path| Path::new(path).file_name().unwrap_or(path));
    let words = program.into_iter().chain(given).map(OsStr::to_string_lossy);
    let words = words.chain(more.into_iter().map(Into::into));
    words
        .map(|word| quoted(&word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word as a shell takes it. No shell reads anything into commas, equals signs and plus signs
/// within a word, and they are easier to read bare.
fn quoted(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_=+,.:/@%…".contains(c);
    match !word.is_empty() && word.chars().all(bare) {
        true => word.to_owned(),
        // What a shell cannot be told, no shell has given.
        false => shlex::try_quote(word).map_or_else(|_| word.to_owned(), Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_same_words() {
        let given = [
            "/usr/bin/karoo",
            "fgpu",
            "--wideband",
            "name=a b,dst=239.1.2.3+7",
            "",
            "it's",
        ];
        let line = completed(given.iter().map(OsStr::new), ["--sync-time", "1"]);
        let words = shlex::split(&line).expect("a line");
        let expected = [
            "karoo",
            "fgpu",
            "--wideband",
            "name=a b,dst=239.1.2.3+7",
            "",
            "it's",
            "--sync-time",
            "1",
        ];
        assert_eq!(words, expected);
        assert!(
            line.starts_with("karoo fgpu --wideband 'name=a b,"),
            "{line}"
        );
    }
}
