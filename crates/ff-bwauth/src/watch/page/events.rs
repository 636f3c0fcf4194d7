//! Changes as server-sent events: parts of pages, as HTML from the server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::pool::Cached;
use super::site::{Live, Site};
use super::slots::Map;
use super::{overview, team};

/// The interval of events when nothing changes, so that closed connections are noticed, and readers
/// notice when a coordinator hangs.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A part of a page that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The overview without the map.
    Live,
    /// The map of slots.
    Map,
    /// The team.
    Team,
}

impl Part {
    /// The name in pages and events.
    fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Map => "map",
            Self::Team => "team",
        }
    }

    /// The HTML of the part now.
    async fn html(self, site: &Site, map: &Cached<Map>) -> String {
        match self {
            Self::Live => overview::live(site),
            Self::Map => overview::map(site, map).await,
            Self::Team => team::live(site),
        }
        .into_string()
    }
}

/// A stream of events.
struct News {
    site: Arc<Site>,
    /// The cache of the map.
    map: Arc<Cached<Map>>,
    /// The status.
    live: Live,
    /// The requested parts, with the last text sent of each.
    parts: Vec<(Part, String)>,
    /// A permit for one of the streams.
    _place: OwnedSemaphorePermit,
}

/// Sends the requested parts of a page whenever they change.
pub(super) async fn stream(
    State(site): State<Arc<Site>>,
    State(map): State<Arc<Cached<Map>>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let Ok(place) = Arc::clone(&site.streams).try_acquire_owned() else {
        let text = "Too many pages are open; reload this one to see what is new.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let asked = query.get("parts").map_or("", String::as_str);
    let is_asked = |part: &Part| asked.split(',').any(|name| name == part.name());
    let parts = [Part::Live, Part::Map, Part::Team].into_iter().filter(is_asked);
    let parts = parts.map(|part| (part, String::new())).collect();
    let mut live = site.live.clone();
    live.mark_changed();
    let events = events(News { live, site, map, parts, _place: place });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn events(stream: News) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(stream, |mut stream| async move {
        // Parts are computed also without a change, because they show their age.
        if let Ok(Err(_)) = timeout(KEEP_ALIVE, stream.live.changed()).await {
            return None;
        }
        let mut events = Vec::new();
        for (part, last) in &mut stream.parts {
            let html = part.html(&stream.site, &stream.map).await;
            if *last != html {
                events.push(Ok(Event::default().event(part.name()).data(&html)));
                *last = html;
            }
        }
        Some((stream::iter(events), stream))
    })
    .flatten()
}
