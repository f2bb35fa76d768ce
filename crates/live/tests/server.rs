//! What clients of all kinds get, and what they cannot do to each other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use live::connections::Limits;
use live::{Array, Document, Download, Site, Source, TICK};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

/// Values of an array that no buffers of sockets hold.
const LARGE: usize = 8 << 20;

#[derive(Clone, Default)]
struct Counted {
    notes: Arc<AtomicU64>,
    documents: Arc<AtomicU64>,
}

impl Source for Counted {
    fn note(&mut self) {
        self.notes.fetch_add(1, Ordering::Relaxed);
    }

    fn document(&mut self) -> Document {
        let made = self.documents.fetch_add(1, Ordering::Relaxed);
        Document::new(format!("document {made}"), Vec::new())
    }

    fn array(&mut self, name: &str) -> Option<Array> {
        let values = match name {
            "a" => vec![1.0, 2.0],
            "large" => vec![0.0; LARGE],
            _ => return None,
        };
        Some(Array {
            shape: vec![values.len() as u64],
            values,
        })
    }

    fn file(&mut self, name: &str) -> Option<Download> {
        (name == "drops.bin").then(|| Download {
            content_type: "application/x-drops",
            bytes: b"dropped".to_vec(),
        })
    }
}

/// Starts a site of this source.
fn start(source: impl Source, limits: Limits) -> SocketAddr {
    begin(source, limits).0
}

/// The same, and its task.
fn begin(source: impl Source, limits: Limits) -> (SocketAddr, JoinHandle<io::Result<()>>) {
    let listener = live::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let site = Site::default().metrics(|| Ok("a 1\n".to_owned()));
    let site = site.source(source).limits(limits);
    (address, tokio::spawn(site.serve(listener)))
}

async fn ask(address: SocketAddr, path: &str, accept: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: karoo\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

async fn get(address: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = ask(address, path, accept).await.unwrap();
    let mut bytes = Vec::new();
    let all = timeout(LONG, stream.read_to_end(&mut bytes)).await;
    all.expect("in time").unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until `text` has come.
async fn read_until(stream: &mut TcpStream, text: &str) {
    let mut read = String::new();
    while !read.contains(text) {
        let mut bytes = [0; 4096];
        let count = timeout(LONG, stream.read(&mut bytes)).await;
        let count = count.expect("in time").unwrap();
        assert!(count > 0, "ended without {text}: {read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

/// As `nc -N` does, and checks of load balancers.
#[tokio::test]
async fn a_client_that_closes_its_half_is_answered() {
    let address = start(Counted::default(), Limits::default());
    for path in ["/metrics", "/live.json", "/arrays/large.npy"].repeat(10) {
        let mut stream = ask(address, path, "*/*").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut bytes = Vec::new();
        let all = timeout(LONG, stream.read_to_end(&mut bytes)).await;
        all.expect("in time").unwrap();
        assert!(bytes.starts_with(b"HTTP/1.1 200"), "{path}");
    }
}

#[tokio::test]
async fn browsers_get_the_page_and_scrapers_metrics_at_the_same_address() {
    let address = start(Counted::default(), Limits::default());
    let page = get(address, "/", "text/html,*/*").await;
    assert!(
        page.contains("content-security-policy: default-src 'none'"),
        "{page}"
    );
    assert!(
        page.contains("<script type=\"module\" src=\"live.js\">"),
        "{page}"
    );
    for path in ["/", "/metrics"] {
        let text = get(address, path, "application/openmetrics-text,*/*").await;
        assert!(text.ends_with("a 1\n"), "{text}");
    }
    let array = get(address, "/arrays/a.npy", "*/*").await;
    assert!(array.contains("NUMPY"), "{array}");
    let file = get(address, "/drops.bin", "*/*").await;
    assert!(file.starts_with("HTTP/1.1 200"), "{file}");
    assert!(file.contains("content-type: application/x-drops"), "{file}");
    assert!(file.ends_with("\r\n\r\ndropped"), "{file}");
    for (path, says) in [
        ("/drops", "/live.json"),
        ("/arrays/b.npy", "no such array"),
        ("/arrays/a", "no such array"),
        ("/arrays/%2e%2e%2fa.npy", "no such array"),
        ("/nothing", "/live.json"),
        ("/%ff", "/live.json"),
    ] {
        let text = get(address, path, "*/*").await;
        assert!(
            text.starts_with("HTTP/1.1 404") && text.contains(says),
            "{text}"
        );
    }
}

/// What came while the process stood still waits for its turn.
#[tokio::test]
async fn nobody_is_turned_away_who_asks_at_once() {
    let listener = live::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        fresh: 8,
        ..Limits::default()
    };
    let mut asked = Vec::new();
    for _ in 0..100 {
        asked.push(ask(address, "/live.js", "*/*").await.unwrap());
    }
    let site = Site::default().source(Counted::default()).limits(limits);
    tokio::spawn(site.serve(listener));
    for stream in &mut asked {
        read_until(stream, "HTTP/1.1 200").await;
    }
}

#[tokio::test]
async fn a_document_is_made_once_for_all_viewers_and_for_nobody_never() {
    let source = Counted::default();
    let address = start(source.clone(), Limits::default());
    while source.notes.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(source.documents.load(Ordering::Relaxed), 0);
    let mut viewers = Vec::new();
    for _ in 0..16 {
        viewers.push(ask(address, "/events", "text/event-stream").await.unwrap());
    }
    for viewer in &mut viewers {
        read_until(viewer, "\"document 3\"").await;
    }
    // Beside those that were read, one may have been made since.
    let made = source.documents.load(Ordering::Relaxed);
    let notes = source.notes.load(Ordering::Relaxed);
    assert!(
        made >= 4 && made < notes + 1,
        "{made} documents in {notes} ticks"
    );
}

/// Once when it notes something, once when it makes a document.
struct Panics(Counted);

impl Source for Panics {
    fn note(&mut self) {
        self.0.note();
        assert_ne!(self.0.notes.load(Ordering::Relaxed), 2, "this is the test");
    }

    fn document(&mut self) -> Document {
        let document = self.0.document();
        let made = self.0.documents.load(Ordering::Relaxed);
        assert_ne!(made, 3, "this is the test");
        document
    }

    fn array(&mut self, name: &str) -> Option<Array> {
        self.0.array(name)
    }
}

#[tokio::test]
async fn a_panic_of_the_source_costs_a_document_and_no_more() {
    let address = start(Panics(Counted::default()), Limits::default());
    let mut viewer = ask(address, "/events", "*/*").await.unwrap();
    read_until(&mut viewer, "\"document 4\"").await;
    let page = get(address, "/live.json", "*/*").await;
    assert!(page.contains("\"document "), "{page}");
}

#[tokio::test]
async fn a_site_that_ends_leaves_nobody_connected() {
    let source = Counted::default();
    let (address, site) = begin(source.clone(), Limits::default());
    let mut viewer = ask(address, "/events", "*/*").await.unwrap();
    read_until(&mut viewer, "data: ").await;
    // One that has asked for nothing yet.
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert!(get(address, "/metrics", "*/*").await.ends_with("a 1\n"));
    site.abort();
    for stream in [&mut viewer, &mut silent] {
        // An error is a connection that was closed, too.
        let ended = timeout(LONG, stream.read_to_end(&mut Vec::new())).await;
        let _ = ended.expect("in time");
    }
    let gone = async {
        while Arc::strong_count(&source.notes) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, gone).await.expect("the source is gone");
}

/// Clients that have asked for something large, one more than may be, and do not read it: the
/// oldest makes room for the newest, and none for a scrape.
#[tokio::test]
async fn pages_and_scrapes_do_not_keep_each_other_out() {
    let limits = Limits {
        scrapes: 1,
        pages: 2,
        patience: 10 * LONG,
        ..Limits::default()
    };
    let address = start(Counted::default(), limits);
    let mut pages = Vec::new();
    for _ in 0..3 {
        let mut page = ask(address, "/arrays/large.npy", "*/*").await.unwrap();
        read_until(&mut page, "HTTP/1.1 200").await;
        pages.push(page);
    }
    for _ in 0..4 {
        assert!(get(address, "/metrics", "*/*").await.ends_with("a 1\n"));
    }
    let mut whole = Vec::new();
    for mut page in pages {
        let mut rest = Vec::new();
        // An error is a connection that was closed.
        let read = timeout(LONG, page.read_to_end(&mut rest)).await;
        let _ = read.expect("in time");
        // What came with the first bytes is read already.
        whole.push(rest.len() + 4096 >= 4 * LARGE);
    }
    assert_eq!(whole, [false, true, true]);
}

#[tokio::test]
async fn one_viewer_too_many_is_refused_and_silent_clients_make_room() {
    let limits = Limits {
        fresh: 4,
        scrapes: 2,
        pages: 2,
        viewers: 2,
        ..Limits::default()
    };
    let address = start(Counted::default(), limits);
    let mut viewers = Vec::new();
    for _ in 0..2 {
        let mut viewer = ask(address, "/events", "*/*").await.unwrap();
        read_until(&mut viewer, "data: ").await;
        viewers.push(viewer);
    }
    let refused = get(address, "/events", "*/*").await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    // Clients that say nothing make room for the next.
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(get(address, "/metrics", "*/*").await.ends_with("a 1\n"));
    // A viewer that leaves makes room for another.
    drop(viewers.pop());
    let until = tokio::time::Instant::now() + LONG;
    loop {
        let mut viewer = ask(address, "/events", "*/*").await.unwrap();
        let mut bytes = [0; 12];
        viewer.read_exact(&mut bytes).await.unwrap();
        if &bytes == b"HTTP/1.1 200" {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "still refused");
        tokio::time::sleep(TICK / 10).await;
    }
}
