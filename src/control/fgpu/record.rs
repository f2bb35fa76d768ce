//! Who asked an engine for what.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use katcp::Message;
use katcp::reading::unix_now;

/// Requests that are kept.
const KEPT: usize = 100;
/// Letters of a request and of a reply that are kept: gains of all channels are long.
const LETTERS: usize = 120;

/// A request and its reply.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRequest {
    /// UNIX time in seconds of the reply.
    pub time: f64,
    /// The client.
    pub client: SocketAddr,
    /// The request, as text.
    pub request: String,
    /// The reply, as text.
    pub reply: String,
}

/// The last requests to an engine, newest first.
#[derive(Debug, Default)]
pub struct RequestRecord(Mutex<VecDeque<RecordedRequest>>);

impl RequestRecord {
    /// Notes what a client was answered in these lines.
    pub fn note(&self, client: SocketAddr, request: &Message<'_>, lines: &[u8]) {
        let mut text = format!("?{}", request.name());
        // One by one: of gains of all channels, few are kept.
        for argument in request.arguments() {
            if text.len() > LETTERS {
                break;
            }
            text.push(' ');
            text.push_str(&String::from_utf8_lossy(&argument));
        }
        let reply = lines.trim_ascii_end().rsplit(|&byte| byte == b'\n').next();
        let reply = String::from_utf8_lossy(reply.unwrap_or_default());
        let entry = RecordedRequest {
            time: unix_now(),
            client,
            request: shortened(&text),
            reply: shortened(&reply.replace("\\_", " ")),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front(entry);
        kept.truncate(KEPT);
    }

    /// All that are kept, newest first.
    pub fn all(&self) -> Vec<RecordedRequest> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_requests_are_kept_and_long_ones_are_cut() {
        let record = RequestRecord::default();
        let client = ([10, 0, 0, 1], 4000).into();
        for number in 0..KEPT + 5 {
            let line = format!("?gain w {number} {}", "1 ".repeat(4096));
            let request = Message::parse(line.as_bytes()).unwrap().unwrap();
            record.note(client, &request, b"#gain a\n!gain fail no\\_such\n");
        }
        let all = record.all();
        assert_eq!(all.len(), KEPT);
        assert!(
            all[0].request.starts_with("?gain w 104 1 1"),
            "{:?}",
            all[0]
        );
        assert_eq!(all[0].request.chars().count(), LETTERS + 1);
        assert_eq!(all[0].reply, "!gain fail no such");
        assert_eq!(all[0].client, client);
    }
}
