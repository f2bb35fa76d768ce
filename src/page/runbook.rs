//! What the run-book says of a cause, as plain text.

/// The run-book, in Markdown: a section for each cause, whose first paragraph says what the cause
/// means, and whose last item says what mends it.
const BOOK: &str = include_str!("../../docs/runbook.md");

/// What a cause means and what mends it; nothing if the run-book has no section of this name.
pub fn line(cause: &str) -> Option<String> {
    let (means, mends) = section(cause)?;
    let mut line = format!("{} Mends: {}", plain(means), plain(mends));
    // Some mend as others do.
    let (_, other) = mends.split_once("as for [").unwrap_or_default();
    let other = other.split(']').next().unwrap_or_default();
    if let Some((_, mends)) = section(other) {
        line.push_str(&format!(" For {other}: {}", plain(mends)));
    }
    Some(line)
}

/// The first paragraph of a section, and what its last item says.
fn section(cause: &str) -> Option<(&'static str, &'static str)> {
    let (_, section) = BOOK.split_once(&format!("\n### {cause}\n"))?;
    let section = section.split("\n##").next()?.trim();
    let (means, rest) = section.split_once("\n\n")?;
    let (_, mends) = rest.rsplit_once("ends**:")?;
    Some((means, mends.split("\n\n").next()?))
}

/// Text of a paragraph without links and marks of code.
fn plain(markdown: &str) -> String {
    let words: Vec<_> = markdown.split_whitespace().collect();
    let mut text = words.join(" ").replace('`', "");
    while let Some(middle) = text.find("](") {
        let open = text[..middle].rfind('[');
        let close = text[middle..].find(')');
        let Some((open, close)) = open.zip(close) else {
            break;
        };
        text.replace_range(middle..=middle + close, "");
        text.remove(open);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses::Cause;

    #[test]
    fn every_cause_has_a_line() {
        for cause in Cause::all() {
            let name = cause.name();
            let line = line(name).unwrap_or_else(|| panic!("docs/runbook.md has no {name}"));
            let (means, mends) = line.split_once(" Mends: ").unwrap();
            assert!(means.len() > 15 && mends.len() > 15, "{name}: {line}");
            assert!(
                !line.contains(['`', '*', '#']) && !line.contains("]("),
                "{line}"
            );
        }
        assert_eq!((line("no-such-cause"), line("")), (None, None));
        let checksum = line("bad-checksum").unwrap();
        assert!(checksum.contains(" For rx-errors: "), "{checksum}");
    }

    #[test]
    fn links_are_their_words() {
        let text = "As [here](a.md#b) and\n  `there` [not a link], [or so](c.md).";
        assert_eq!(plain(text), "As here and there [not a link], or so.");
        assert_eq!(plain("[open]("), "[open](");
    }
}
