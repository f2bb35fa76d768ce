//! The server: metrics, pages, documents and events on one listener.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;

use crate::connections::{Class, Connections, Limits};
use crate::feed::{Feed, Source};

/// Content type of a scrape.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Bytes of a request, at most.
const REQUEST: usize = 16 << 10;
/// Time between two lines of the log that no client can connect, at least.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// Bytes that may wait in a socket for a viewer.
const WAITING: usize = 256 << 10;
/// The page loads nothing from elsewhere, and runs no other script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// The files of the page: path, content type, text.
const FILES: [(&str, &str, &str); 7] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../page/index.html"),
    ),
    (
        "/live.css",
        "text/css; charset=utf-8",
        include_str!("../page/live.css"),
    ),
    (
        "/live.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/live.js"),
    ),
    (
        "/panels.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/panels.js"),
    ),
    (
        "/plots.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/plots.js"),
    ),
    (
        "/draw.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/draw.js"),
    ),
    (
        "/network.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/network.js"),
    ),
];

/// Text of metrics, or why there is none.
type Scrape = dyn Fn() -> Result<String, String> + Send + Sync;

/// What is served.
#[derive(Clone, Default)]
pub struct Site {
    metrics: Option<Arc<Scrape>>,
    feed: Option<Arc<Feed>>,
    limits: Limits,
}

/// Listens on an address.
///
/// # Errors
///
/// If another program listens there, or the address is not one of this host.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    // Many clients at once, on a busy host, wait here and are not turned away.
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Listens on a port of all addresses, of IPv6 too if this host has it, whatever its
/// `net.ipv6.bindv6only`.
///
/// # Errors
///
/// As [`bind`].
pub fn bind_all(port: u16) -> io::Result<TcpListener> {
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => bind(([0, 0, 0, 0], port).into()),
        result => result,
    }
}

impl Site {
    /// With metrics at `/metrics`, and at `/` for clients that do not ask for HTML.
    #[must_use]
    pub fn metrics(
        mut self,
        scrape: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.metrics = Some(Arc::new(scrape));
        self
    }

    /// With a page of `source`.
    #[must_use]
    pub fn source(mut self, source: impl Source) -> Self {
        self.feed = Some(Feed::new(Box::new(source)));
        self
    }

    /// With other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves for ever. Dropped, it lets go of its clients and of its source.
    ///
    /// # Errors
    ///
    /// If the listener cannot be used. A connection that fails is not an error.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let connections = Connections::new(self.limits);
        // All that runs beside this: it ends with the set.
        let mut tasks = JoinSet::new();
        if let Some(feed) = self.feed.clone() {
            tasks.spawn(feed.tick());
        }
        let router = self.router();
        let mut told: Option<Instant> = None;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, as a rule: connections that end give theirs back.
                    if told.is_none_or(|told| told.elapsed() >= TOLD_AGAIN) {
                        tracing::warn!(%error, "no client can connect: are too many files open? (`ulimit -n`)");
                        told = Some(Instant::now());
                    }
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            connections.room().await;
            bound_waiting(&stream, self.limits.stuck);
            let (router, shared) = (router.clone(), connections.clone());
            while tasks.try_join_next().is_some() {}
            connections.add(|number| tasks.spawn(connection(stream, router, shared, number)));
        }
    }

    fn router(&self) -> Router {
        let mut router = Router::new().route("/metrics", get(metrics));
        if self.feed.is_none() {
            router = router.route("/", get(metrics));
        } else {
            for (path, kind, text) in FILES.into_iter().skip(1) {
                let file = move || async move { ([(header::CONTENT_TYPE, kind)], text) };
                router = router.route(path, get(file));
            }
            router = router
                .route("/", get(front))
                .route("/live.json", get(document))
                .route("/events", get(events))
                .route("/arrays/{name}", get(array));
        }
        router.fallback(file).with_state(self.clone())
    }
}

/// Bounds what waits for a client that does not read, and for how long.
fn bound_waiting(stream: &tokio::net::TcpStream, stuck: Duration) {
    let socket = SockRef::from(stream);
    let bounded = socket
        .set_tcp_user_timeout(Some(stuck))
        .and_then(|()| socket.set_send_buffer_size(WAITING));
    if let Err(error) = bounded {
        tracing::debug!(%error, "a client without bounds");
    }
}

/// One client, and its one request.
async fn connection(
    stream: tokio::net::TcpStream,
    router: Router,
    connections: Arc<Connections>,
    number: u64,
) {
    let patience = connections.limits().patience;
    let shared = connections.clone();
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let class = match request.uri().path() {
            "/metrics" => Class::Scrape,
            "/" if !wants_page(request.headers()) => Class::Scrape,
            "/events" => Class::Viewer,
            _ => Class::Page,
        };
        let response = shared
            .classify(number, class)
            .then(|| service.call(request));
        async move {
            match response {
                Some(response) => response.await,
                None => Ok::<_, Infallible>(full()),
            }
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        // A client that has asked may close its half, as `nc -N` does.
        .half_close(true)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    if timeout(patience, &mut connection).await.is_err() && connections.is_viewer(number) {
        let _ = connection.await;
    }
}

fn full() -> Response {
    let text = "as many pages are open as may be: close one, or look at live.json\n";
    let later = [(header::RETRY_AFTER, "10")];
    (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response()
}

/// Browsers ask for HTML; what scrapes does not.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    accept.is_some_and(|accept| accept.windows(9).any(|part| part == b"text/html"))
}

async fn front(state: State<Site>, headers: HeaderMap) -> Response {
    if state.metrics.is_some() && !wants_page(&headers) {
        return metrics(state).await;
    }
    let (_, kind, page) = FILES[0];
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::VARY, "Accept"),
    ];
    (headers, page).into_response()
}

/// A file of the source's own, whatever its name.
async fn file(State(site): State<Site>, method: Method, uri: Uri) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(&method);
    let feed = site.feed.as_ref().filter(|_| reads);
    let name = uri.path().trim_start_matches('/');
    match feed.and_then(|feed| feed.file(name)) {
        Some(file) => {
            let kind = (header::CONTENT_TYPE, file.content_type);
            ([kind, FRESH], file.bytes).into_response()
        }
        None => nothing_here(State(site)).await,
    }
}

async fn nothing_here(State(site): State<Site>) -> Response {
    let text = match site.feed {
        Some(_) => {
            "nothing is here: see / (the page, with links to files), /metrics, /live.json, /events, \
             /arrays/STREAM.npy\n"
        }
        None => "nothing is here: see /metrics\n",
    };
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn metrics(State(site): State<Site>) -> Response {
    match site.metrics.as_ref().map(|scrape| scrape()) {
        Some(Ok(text)) => ([(header::CONTENT_TYPE, METRICS)], text).into_response(),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

const FRESH: (header::HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

async fn document(State(site): State<Site>) -> Response {
    match site.feed {
        Some(feed) => {
            let kind = (header::CONTENT_TYPE, "application/json");
            ([kind, FRESH], feed.document()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn events(State(site): State<Site>) -> Response {
    match site.feed {
        Some(feed) => {
            // A viewer takes the newest document when there is room for it: it skips the others.
            let events = WatchStream::new(feed.subscribe()).map(Ok::<_, Infallible>);
            let kind = (header::CONTENT_TYPE, "text/event-stream");
            ([kind, FRESH], Body::from_stream(events)).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn array(State(site): State<Site>, Path(name): Path<String>) -> Response {
    let name = name.strip_suffix(".npy");
    let array = name.and_then(|name| site.feed.as_ref()?.array(name));
    match array.map(|array| array.to_npy()) {
        Some(Ok(bytes)) => {
            let kind = (header::CONTENT_TYPE, "application/octet-stream");
            ([kind, FRESH], bytes).into_response()
        }
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        None => (StatusCode::NOT_FOUND, "there is no such array yet\n").into_response(),
    }
}
