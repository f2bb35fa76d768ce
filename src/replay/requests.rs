//! Requests in a file, each for the time when the output reaches its timestamp.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use ground::{SampleClock, Timestamp, TscClock};
use katcp::{Message, MessageKind, Refusal, Response};

use crate::control::fgpu::{Action, RequestError, interpret};
use crate::engine::RequestStats;
use crate::engine::steer::ControlHandle;
use crate::report::{Reply, RequestsReport, StallReport};

/// A file of requests that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RequestsError {
    /// It cannot be read.
    #[error("--requests {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line is no request with a timestamp.
    #[error(
        "--requests {}, line {line}: {what}; a line is TIMESTAMP ?request arguments, such as 1048576 ?gain wideband 0 0.5",
        path.display()
    )]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// Bytes of a line, at most: several times the gains of 65536 channels.
const MOST_LINE: u64 = 16 << 20;
/// Bytes of a file of requests, at most: a thousand sets of such gains.
const MOST_BYTES: u64 = 8 << 30;

/// Requests in the order of their timestamps; those of one timestamp in the order of their lines.
#[derive(Clone, Debug, Default)]
pub struct Requests(Vec<Request>);

#[derive(Clone, Debug)]
struct Request {
    line: usize,
    at: Timestamp,
    message: Vec<u8>,
}

impl Requests {
    /// Reads lines of `TIMESTAMP ?request arguments`. Blank lines and those that begin with # are
    /// skipped.
    pub fn read(path: &Path) -> Result<Self, RequestsError> {
        let unread = |source| RequestsError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::new(File::open(path).map_err(unread)?);
        let (mut requests, mut bytes, mut line) = (Vec::new(), Vec::new(), 0);
        let mut left = MOST_BYTES;
        // Line by line: a device or a capture, given by mistake, is refused by its first.
        loop {
            bytes.clear();
            let most = &mut (&mut file).take(MOST_LINE);
            let length = most.read_until(b'\n', &mut bytes).map_err(unread)? as u64;
            if length == 0 {
                break;
            }
            line += 1;
            let refused = |what| RequestsError::Line {
                path: path.to_owned(),
                line,
                what,
            };
            if length == MOST_LINE {
                let most = MOST_LINE >> 20;
                return Err(refused(format!("it has {most} MiB or more")));
            }
            left = left.checked_sub(length).ok_or_else(|| {
                let why = format!("has more than {} GiB; use several runs", MOST_BYTES >> 30);
                unread(io::Error::new(io::ErrorKind::FileTooLarge, why))
            })?;
            let text = bytes.trim_ascii();
            if text.is_empty() || text[0] == b'#' {
                continue;
            }
            let (at, message) = parse(text).map_err(refused)?;
            let message = message.to_vec();
            requests.push(Request { line, at, message });
        }
        requests.sort_by_key(|request| request.at);
        Ok(Self(requests))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks an engine that has not begun, whose queues have room for all of them. Returns what it
    /// replied.
    pub fn ask(&self, clock: SampleClock, steering: &ControlHandle) -> Vec<Reply> {
        let ask = |request: &Request| {
            let steering = steering.at(request.at);
            let reply = match Message::parse(&request.message) {
                Ok(Some(message)) => {
                    let mut response = Response::to(&message);
                    let outcome =
                        interpret(clock, &steering, &message).and_then(|action| match action {
                            // Statistics come when it runs.
                            Action::LevelGains { output, .. } => Err(RequestError::NoInput {
                                output: steering.outputs()[output].name().to_owned(),
                            }),
                            action => action.perform(&steering, &mut response),
                        });
                    response.finish(outcome.map_err(Refusal::from))
                }
                // They were read once already.
                _ => Vec::new(),
            };
            Reply {
                line: request.line,
                timestamp: request.at.0,
                reply: String::from_utf8_lossy(reply.trim_ascii_end()).into_owned(),
            }
        };
        self.0.iter().map(ask).collect()
    }
}

/// Timestamp and message of a line.
fn parse(line: &[u8]) -> Result<(Timestamp, &[u8]), String> {
    let blank = line.iter().position(u8::is_ascii_whitespace);
    let (at, message) = line.split_at(blank.unwrap_or(line.len()));
    let text = String::from_utf8_lossy(at);
    let at: u64 = text
        .parse()
        .map_err(|_| format!("'{text}' is no ADC timestamp, which is a whole number of samples"))?;
    let message = message.trim_ascii_start();
    match Message::parse(message) {
        Ok(Some(parsed)) if parsed.kind() == MessageKind::Request => Ok((Timestamp(at), message)),
        Ok(Some(_)) => Err("only requests, which begin with ?, can be replayed".to_owned()),
        Ok(None) => Err("there is nothing after the timestamp".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What became of requests: `replies` to them, and what the engine made of them before the `end` of
/// its output, if there was some.
pub fn report(
    replies: Vec<Reply>,
    stats: &RequestStats,
    end: Option<Timestamp>,
    clock: TscClock,
) -> RequestsReport {
    let stalls = &stats.stalls;
    let failed = replies.iter().filter(|reply| reply.failed()).count() as u64;
    let seconds = |ticks: u64| clock.seconds(ticks);
    let mut histogram: Vec<(f64, u64)> = Vec::new();
    for step in stalls.iter_recorded() {
        // Microseconds, up to the next power of two.
        let micros = (seconds(step.value_iterated_to()) * 1e6).max(0.5);
        let bound = micros.log2().ceil().exp2() * 1e-6;
        match histogram.last_mut().filter(|(last, _)| *last >= bound) {
            Some((_, count)) => *count += step.count_since_last_iteration(),
            None => histogram.push((bound, step.count_since_last_iteration())),
        }
    }
    let is_behind = |reply: &&Reply| end.is_none_or(|end| reply.timestamp >= end.0);
    RequestsReport {
        failed,
        behind: replies.iter().filter(is_behind).count() as u64,
        applied: stats.changes,
        stalls: StallReport {
            median: seconds(stalls.value_at_quantile(0.5)),
            p99: seconds(stalls.value_at_quantile(0.99)),
            max: seconds(stalls.max()),
            histogram,
        },
        replies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::steer::Change;

    const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";

    fn read(text: &str) -> Result<Requests, RequestsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.txt");
        std::fs::write(&path, text).unwrap();
        Requests::read(&path)
    }

    #[test]
    fn requests_are_asked_in_the_order_of_their_timestamps() {
        let text = "# incident 12\n\n300 ?gain-all w 0.5\r\n 100 ?gain w 1 2\n300 ?gain w 0\n200\t?gain v 0 1\n";
        let requests = read(text).unwrap();
        let config = crate::config::tests::engine(WIDEBAND, |_| ());
        let (steering, steered) = ControlHandle::new(&config, requests.len());
        let replies = requests.ask(config.clock, &steering);
        let told: Vec<_> = replies
            .iter()
            .map(|r| (r.line, r.timestamp, r.failed()))
            .collect();
        assert_eq!(
            told,
            [
                (4, 100, false),
                (6, 200, true),
                (3, 300, false),
                (5, 300, false)
            ]
        );
        assert_eq!(replies[3].reply, "!gain ok 0.5+0j");
        let taken: Vec<_> = std::iter::from_fn(|| steered.outputs[0].take()).collect();
        assert_eq!(
            taken.iter().map(|r| r.at).collect::<Vec<_>>(),
            [100, 300].map(|t| Some(Timestamp(t)))
        );
        assert!(matches!(&taken[1].change, Change::Gains([Some(x), Some(y)]) if x == y));
    }

    #[test]
    fn lines_that_are_no_requests_are_named() {
        for (text, what) in [
            (
                "1 ?gain w 0\nsoon ?gain w 0",
                "line 2: 'soon' is no ADC timestamp",
            ),
            ("-1 ?gain w 0", "line 1: '-1' is no ADC timestamp"),
            ("7", "line 1: there is nothing after the timestamp"),
            ("7 !gain ok", "only requests"),
            ("7 gain w 0", "line 1"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(read("").unwrap().is_empty());
        let long = format!("7 ?gain w 0\n7 ?gain w {}", "0".repeat(MOST_LINE as usize));
        for error in [read(&long), Requests::read(Path::new("/dev/zero"))] {
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains(": it has 16 MiB or more; a line is"),
                "{error}"
            );
        }
    }
}
