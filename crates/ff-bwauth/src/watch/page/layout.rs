//! The layout that all pages share.

use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use ff_base::utc::now_unix_secs as now;
use maud::{DOCTYPE, Markup, html};

use super::pool::AskError;
use super::site::Site;
use crate::watch::problems::STALE_SECS;
use crate::watch::text::{ago, plain, time};

/// The main pages, to which every page links.
const PAGES: [(&str, &str); 5] = [
    ("/", "Overview"),
    ("/team", "Team"),
    ("/capacities", "Capacities"),
    ("/failures", "Failures"),
    ("/relays", "Relays"),
];
/// How often a live page is reloaded without JavaScript, in seconds.
const REFRESH_SECS: u32 = 15;

/// A page without its content.
pub(super) struct Page<'a> {
    site: &'a Site,
    title: &'a str,
    /// The page's own path, to mark it among the links.
    path: &'a str,
    /// Whether the content changes every second.
    is_live: bool,
}

impl<'a> Page<'a> {
    /// A page with this title that is not a main page.
    pub(super) fn new(site: &'a Site, title: &'a str) -> Self {
        Self { site, title, path: "", is_live: false }
    }

    /// Makes it the main page at this path.
    pub(super) fn at(self, path: &'a str) -> Self {
        Self { path, ..self }
    }

    /// Makes it a live page.
    pub(super) fn live(self) -> Self {
        Self { is_live: true, ..self }
    }

    /// The whole page as HTML.
    pub(super) fn html(self, content: &Markup) -> Html<String> {
        let title = plain(self.title);
        let version = env!("CARGO_PKG_VERSION");
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · FlashFlow" }
                    link rel="stylesheet" href={ "/style.css?" (version) };
                    link rel="icon" href="/icon.svg" type="image/svg+xml";
                    @if self.is_live {
                        noscript { meta http-equiv="refresh" content=(REFRESH_SECS); }
                        script src={ "/live.js?" (version) } defer {}
                    }
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        p.name { "FlashFlow" }
                        nav aria-label="Pages" {
                            ul {
                                @for (path, name) in PAGES {
                                    li { a href=(path) aria-current=[(path == self.path).then_some("page")] { (name) } }
                                }
                            }
                        }
                    }
                    main id="content" {
                        h1 { (title) }
                        @if !self.is_live { (state(self.site)) }
                        (content)
                    }
                    footer {
                        p {
                            "ff-bwauth " (version) " · times are UTC · for programs: "
                            a href="/status.json" { "status.json" } ", " a href="/metrics" { "metrics" }
                        }
                    }
                }
            }
        };
        Html(page.into_string())
    }
}

/// A warning while the coordinator is starting or does not respond.
pub(super) fn state(site: &Site) -> Markup {
    let now = now();
    let live = site.live.borrow();
    match live.as_deref() {
        None => html! { p.notice { "The coordinator is starting: no data yet." } },
        Some(status) if now.saturating_sub(status.now_unix_secs) > STALE_SECS => html! {
            p.notice.bad {
                "The coordinator does not respond. This page shows its last status, which is from "
                (time(status.now_unix_secs)) " (" (ago(now, status.now_unix_secs)) ")."
            }
        },
        Some(_) => html! {},
    }
}

/// A sentence instead of content.
pub(super) fn sentence(text: &str) -> Markup {
    html! { p.notice { (plain(text)) } }
}

/// A page that shows an error.
pub(super) fn failed(page: Page<'_>, error: &AskError) -> Response {
    let status = match error {
        AskError::Busy | AskError::Late => StatusCode::SERVICE_UNAVAILABLE,
        AskError::Failed(_) | AskError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let content = html! { p.notice.bad role="alert" { (plain(&error.to_string())) } };
    (status, [(header::RETRY_AFTER, "5")], page.html(&content)).into_response()
}

/// A chart that is as wide as its container, and scrolls on narrow screens; `label` is for screen
/// readers.
pub(super) fn figure(label: &str, svg: Result<String, impl std::fmt::Display>) -> Markup {
    match svg {
        Ok(svg) => {
            let svg = svg.replacen("<svg ", "<svg aria-hidden=\"true\" focusable=\"false\" ", 1);
            html! {
                div.chart role="img" aria-label=(plain(label)) tabindex="0" { (maud::PreEscaped(svg)) }
            }
        }
        Err(error) => sentence(&format!("Cannot draw the chart: {error}")),
    }
}
