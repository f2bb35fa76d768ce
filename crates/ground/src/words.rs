//! Numbers in sentences.

/// So many of something, whose plural is regular: `1 frame`, `2 frames`, `2 batches`.
///
/// ```
/// assert_eq!(ground::counted(1, "heap"), "1 heap");
/// assert_eq!(ground::counted(0, "heap"), "0 heaps");
/// assert_eq!(ground::counted(2, "batch"), "2 batches");
/// ```
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {}", plural(count, noun))
}

/// The noun for so many, if its plural is regular: `frame`, `frames`.
pub fn plural(count: u64, noun: &str) -> String {
    let end = match noun {
        _ if count == 1 => "",
        noun if noun.ends_with("ch") || noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{noun}{end}")
}

/// A number with its digits in groups of three, `separator` between them.
///
/// ```
/// assert_eq!(ground::grouped(1_234_567, ' '), "1 234 567");
/// assert_eq!(ground::grouped(123, ' '), "123");
/// ```
pub fn grouped(number: u64, separator: char) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(2 * digits.len());
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}
