//! Numbers in sentences.

/// So many of something, whose plural is regular: `1 frame`, `2 frames`, `2 batches`.
///
/// ```
/// assert_eq!(ground::counted(1, "heap"), "1 heap");
/// assert_eq!(ground::counted(0, "heap"), "0 heaps");
/// assert_eq!(ground::counted(2, "batch"), "2 batches");
/// ```
pub fn counted(count: u64, noun: &str) -> String {
    let end = match noun {
        _ if count == 1 => "",
        noun if noun.ends_with("ch") || noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{end}")
}
