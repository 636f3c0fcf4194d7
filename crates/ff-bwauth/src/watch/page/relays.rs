//! Finding relays.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::Site;
use super::layout::{Page, failed};
use super::pool::Work;
use super::text::{plain, shown, time};
use crate::store::Known;

/// Relays that are shown at most.
const MOST: u32 = 100;
/// The longest text that is looked for: a fingerprint with its blanks has fewer.
const MAX_TEXT: usize = 60;

/// The page.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let text = query.get("find").map_or("", String::as_str).trim();
    let page = Page::new(&site, "Relays").at("/relays");
    if text.is_empty() {
        return page.html(&form("")).into_response();
    }
    if text.chars().count() > MAX_TEXT {
        let content =
            html! { (form("")) p.notice { "No nickname and no fingerprint is so long." } };
        return page.html(&content).into_response();
    }
    // Fingerprints are written in groups of four by tor.
    let wanted = text.replace(' ', "");
    let found = site.pool.ask(Work::Much, move |reader| reader.find(&wanted, MOST)).await;
    match found {
        Ok(found) => page.html(&html! { (form(text)) (list(&found, text)) }).into_response(),
        Err(error) => failed(page, &error),
    }
}

/// Where to ask.
fn form(text: &str) -> Markup {
    html! {
        form action="/relays" method="get" role="search" {
            label for="find" { "Nickname or fingerprint, or how it begins" }
            input id="find" name="find" type="search" maxlength=(MAX_TEXT) value=(plain(text)) autocomplete="off"
                spellcheck="false";
            button { "Find" }
        }
    }
}

/// What was found.
fn list(found: &[Known], text: &str) -> Markup {
    html! {
        @if found.is_empty() {
            p.notice { "No relay that was ever tried begins with “" (shown(text)) "”." }
        } @else {
            div.wide {
                table {
                    thead { tr {
                        th scope="col" { "Relay" } th scope="col" { "Tried last" } th scope="col" { "Fingerprint" }
                    } }
                    tbody { @for one in found {
                        @let fingerprint = hex::encode_upper(one.fingerprint);
                        tr {
                            td { a href={ "/relay/" (fingerprint) } { (shown(one.nickname.as_deref().unwrap_or("(no nickname)"))) } }
                            td { (time(one.last_unix_secs)) }
                            td.digits { code { (fingerprint) } }
                        }
                    } }
                }
            }
            @if found.len() >= MOST as usize { p { "There are more: say more of its name." } }
        }
    }
}
