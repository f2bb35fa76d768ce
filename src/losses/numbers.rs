//! Numbers and times as lines have them.

use std::time::Duration;

/// A number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    ground::grouped(number, ' ')
}

/// A number per second: whole, unless it is small.
pub fn per_second(rate: f64) -> String {
    match rate {
        rate if rate == 0.0 || rate >= 9.95 => grouped(rate.round() as u64),
        rate if rate < 0.1 => "under 0.1".to_owned(),
        rate => format!("{rate:.1}"),
    }
}

/// A share of 1, as a reader of a log wants it.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 0.1 => "under 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// A duration with as much precision as anybody wants.
pub fn span(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0..120 => format!("{:.1} s", time.as_secs_f64()),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        7200..172_800 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} days", grouped(whole / 86400)),
    }
}
