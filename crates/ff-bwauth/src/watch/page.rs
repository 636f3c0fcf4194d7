//! The coordinator's web page, on loopback: its status, its results, and their explanations.
//!
//! ```text
//!   connection.rs: limit, deadlines ─▶ guard.rs: Host, method, length; the answer's headers
//!     ─▶ overview, team, capacities, failures, relays, relay   made from Status and pool.rs
//!     ─▶ events: the live parts, as server-sent events         /status.json, /metrics
//! ```
//!
//! It is for the operator, over loopback or a tunnel, without a login. It is protected in three
//! ways: it listens on loopback only; it answers only requests for its own names, so a web site
//! whose name resolves to 127.0.0.1 gets nothing; and no other site may read or frame it. It loads
//! nothing from other hosts, sets no cookie, and works without JavaScript, which only renews the
//! parts that change.

mod capacities;
mod events;
mod failures;
mod layout;
mod overview;
mod pool;
mod relay;
mod relays;
mod site;
mod slots;
mod team;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ff_base::utc::now_unix_secs as now;
use ff_operator::http::connection::{self, Deadlines};
use ff_operator::http::{self, guarded};
use ff_store::Memory;
use tokio::net::TcpListener;
use tokio::time::sleep;

use self::layout::{Page, sentence};
use self::pool::Cached;
use self::site::Site;
pub use self::site::{Live, PageOptions};
use super::figures;
use super::text::plain;

/// How long the failures are cached.
const FAILURES_SHOWN: Duration = Duration::from_secs(10);
/// How often data of all relays is read again: for ten thousand relays this takes too long for a
/// request.
const RENEWED: Duration = Duration::from_secs(60);
/// How long that data is cached: longer than [`RENEWED`], so that no request waits for it.
const RENEWED_SHOWN: Duration = Duration::from_secs(90);
/// How long the map of slots is cached.
const MAP_SHOWN: Duration = Duration::from_secs(1);

/// The state of all pages: the shared site, and a cache for each page that reads slow data.
#[derive(Clone)]
struct Pages {
    site: Arc<Site>,
    /// The map of the period's slots.
    map: Arc<Cached<slots::Map>>,
    capacities: Arc<Cached<capacities::Distribution>>,
    failures: Arc<Cached<failures::Counts>>,
    relays: Arc<Cached<relays::List>>,
    /// The store's data about all relays.
    memory: Arc<Cached<Memory>>,
}

impl Pages {
    /// All pages, with empty caches.
    fn new(live: Live, store: PathBuf, options: PageOptions) -> Self {
        Self {
            site: Arc::new(Site::new(live, store, options)),
            map: Arc::new(Cached::new(MAP_SHOWN)),
            capacities: Arc::new(Cached::new(RENEWED_SHOWN)),
            failures: Arc::new(Cached::new(FAILURES_SHOWN)),
            relays: Arc::new(Cached::new(RENEWED_SHOWN)),
            memory: Arc::new(Cached::new(RENEWED_SHOWN)),
        }
    }
}

/// Lets a page take a part of the state.
macro_rules! part {
    ($field:ident: $part:ty) => {
        impl FromRef<Pages> for Arc<$part> {
            fn from_ref(pages: &Pages) -> Self {
                Arc::clone(&pages.$field)
            }
        }
    };
}

part!(site: Site);
part!(map: Cached<slots::Map>);
part!(capacities: Cached<capacities::Distribution>);
part!(failures: Cached<failures::Counts>);
part!(relays: Cached<relays::List>);
part!(memory: Cached<Memory>);

/// Serves the page until the future is dropped. The store need not exist yet.
pub async fn serve(listener: TcpListener, live: Live, store: PathBuf, options: PageOptions) {
    run(listener, Pages::new(live, store, options), Deadlines::default()).await;
}

/// Answers requests, and keeps slow data cached.
async fn run(listener: TcpListener, pages: Pages, deadlines: Deadlines) -> Infallible {
    let keeping = pages.clone();
    tokio::select! {
        never = connection::serve(listener, router(pages), deadlines) => never,
        never = keep(&keeping) => never,
    }
}

/// Reads slow data regularly, so that no page waits for it.
async fn keep(pages: &Pages) -> Infallible {
    let Pages { site, capacities, relays, memory, .. } = pages;
    loop {
        // If it fails, the page that needs the data reports the error.
        if let Ok(distribution) = capacities::look(site).await {
            capacities.put(0, distribution).await;
        }
        if let Ok(list) = relays::look(site).await {
            relays.put(0, list).await;
        }
        if let Ok(remembered) = relay::remember(site).await {
            memory.put(0, remembered).await;
        }
        sleep(RENEWED).await;
    }
}

/// The paths of all pages.
fn router(pages: Pages) -> Router {
    let hosts = pages.site.options.hosts.clone();
    let router = Router::new()
        .route("/", get(overview::page))
        .route("/team", get(team::page))
        .route("/capacities", get(capacities::page))
        .route("/failures", get(failures::page))
        .route("/relays", get(relays::page))
        .route("/relay/{fingerprint}", get(relay::page))
        .route("/events", get(events::stream))
        .route("/status.json", get(status_json))
        .route("/metrics", get(metrics))
        .route(
            "/style.css",
            get(|| asset("text/css; charset=utf-8", include_str!("page/style.css"))),
        )
        .route(
            "/live.js",
            get(|| asset("text/javascript; charset=utf-8", include_str!("page/live.js"))),
        )
        .route("/icon.svg", get(|| asset("image/svg+xml", include_str!("page/icon.svg"))))
        .fallback(not_found)
        .with_state(pages);
    guarded(router, &hosts)
}

/// A file that is built into the program.
async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=3600")], text).into_response()
}

/// The status as JSON, as `ff-bwauth status` reads it.
async fn status_json(State(site): State<Arc<Site>>) -> Response {
    let status = site.live.borrow().clone();
    match status.map(|status| serde_json::to_string(&*status)) {
        Some(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "The coordinator is starting.\n").into_response(),
    }
}

/// The metrics for Prometheus.
async fn metrics(
    State(site): State<Arc<Site>>,
    State(cache): State<Arc<Cached<capacities::Distribution>>>,
    request: HeaderMap,
) -> Response {
    let status = site.live.borrow().clone();
    let estimates = if site.options.figures_per_relay {
        capacities::distribution(&site, &cache).await.ok()
    } else {
        None
    };
    let relays = estimates.as_deref().map(|distribution| &distribution.estimates[..]);
    let surroundings =
        figures::Surroundings::look(site.pool.path(), site.options.publish_dir.as_deref());
    let text = figures::text(status.as_deref(), &surroundings, relays, now());
    http::figures(&request, text)
}

/// The page for unknown paths.
async fn not_found(State(site): State<Arc<Site>>, uri: Uri) -> Response {
    let path = plain(uri.path());
    let page = Page::new(&site, "Not found").html(&sentence(&format!("There is no page {path}.")));
    (StatusCode::NOT_FOUND, page).into_response()
}

#[cfg(test)]
mod tests;
