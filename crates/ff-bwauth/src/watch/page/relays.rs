//! All relays as a table: sorted by a column, searched by name, [`PER_PAGE`] at a time.
//!
//! Sorting and paging use links, searching a form; no script is needed.

mod list;

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use ff_base::utc::now_unix_secs as now;
use maud::{Markup, html};

use self::list::{Column, Row};
pub(super) use self::list::{List, look};
use super::layout::{Page, failed};
use super::pool::Cached;
use super::site::Site;
use crate::watch::text::{ago, grouped, in_address, plain, relays, shown, time};

/// Relays per page.
const PER_PAGE: usize = 200;
/// The longest search text: a fingerprint with blanks is shorter.
const MAX_TEXT: usize = 60;

/// A request for the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    /// The text to search for; empty for all relays.
    text: String,
    /// The column to sort by.
    column: Column,
    /// Whether the greatest values come first.
    is_descending: bool,
    /// Which page, from 1.
    page: usize,
}

pub(super) async fn page(
    State(site): State<Arc<Site>>,
    State(cache): State<Arc<Cached<List>>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let asked = Asked::of(&query);
    let page = Page::new(&site, "Relays").at("/relays");
    if asked.text.chars().count() > MAX_TEXT {
        let content = html! { (form(&asked, "")) p.notice { "The search text is longer than any nickname or fingerprint." } };
        return page.html(&content).into_response();
    }
    match cache.get(0, look(&site)).await {
        Ok(list) => page.html(&content(&list, &asked, now())).into_response(),
        Err(error) => failed(page, &error),
    }
}

impl Asked {
    /// Reads the query of an address; invalid values are replaced by the defaults.
    fn of(query: &HashMap<String, String>) -> Self {
        let value = |key: &str| query.get(key).map_or("", String::as_str).trim();
        let column = Column::of(value("sort")).unwrap_or(Column::Bw);
        let is_descending = match value("order") {
            "asc" => false,
            "desc" => true,
            _ => column.begins_with_greatest(),
        };
        let page = value("page").parse::<usize>().unwrap_or(1).max(1);
        Self { text: value("find").to_owned(), column, is_descending, page }
    }

    /// The order's name in an address.
    fn order(&self) -> &'static str {
        if self.is_descending { "desc" } else { "asc" }
    }

    /// The address of this request.
    fn address(&self) -> String {
        let (text, sort) = (in_address(&self.text), self.column.key());
        format!("/relays?find={text}&sort={sort}&order={}&page={}", self.order(), self.page)
    }

    /// The same request sorted by a column, in reverse if it is sorted by it already.
    fn sorted_by(&self, column: Column) -> Self {
        let is_descending =
            if self.column == column { !self.is_descending } else { column.begins_with_greatest() };
        Self { column, is_descending, page: 1, ..self.clone() }
    }
}

fn content(list: &List, asked: &Asked, now: u64) -> Markup {
    let found = list.sorted(&asked.text, asked.column, asked.is_descending);
    let pages = found.len().div_ceil(PER_PAGE).max(1);
    let asked = Asked { page: asked.page.min(pages), ..asked.clone() };
    let first = (asked.page - 1) * PER_PAGE;
    let rows = &found[first..found.len().min(first + PER_PAGE)];
    html! {
        (form(&asked, &asked.text))
        p {
            @if asked.text.is_empty() { (relays(found.len() as u64)) }
            @else { (grouped(found.len() as u64)) " of " (grouped(list.len() as u64)) " relays match “" (shown(&asked.text)) "”" }
            @if !rows.is_empty() {
                ", sorted by " (asked.column.title()) ", " (asked.column.order(asked.is_descending)) "; shown: "
                (grouped(first as u64 + 1)) " to " (grouped((first + rows.len()) as u64))
            }
            ". As of " (time(list.made_unix_secs)) "."
        }
        (sources(list))
        @if !rows.is_empty() {
            (table(rows, &asked, now))
            (turn(&asked, pages))
        }
    }
}

/// The search form.
fn form(asked: &Asked, text: &str) -> Markup {
    html! {
        form action="/relays" method="get" role="search" {
            label for="find" { "Part of a nickname, or the beginning of a fingerprint" }
            input id="find" name="find" type="search" maxlength=(MAX_TEXT) value=(plain(text)) autocomplete="off"
                spellcheck="false";
            input type="hidden" name="sort" value=(asked.column.key());
            input type="hidden" name="order" value=(asked.order());
            button { "Find" }
        }
    }
}

/// The names of the files with the shown numbers.
fn sources(list: &List) -> Markup {
    html! {
        p.small {
            @match (&list.file, &list.file_before) {
                (Err(reason), _) => { "The bandwidth file cannot be read: " (shown(reason)) "." }
                (Ok(None), _) => { "No bandwidth file yet: bw and change are empty." }
                (Ok(Some(file)), None) => { "bw is from " code { (shown(file)) } "; there is no earlier file to compare it with." }
                (Ok(Some(file)), Some(before)) => {
                    "bw is from " code { (shown(file)) } ", change is since " code { (shown(before)) } "."
                }
            }
        }
    }
}

fn table(rows: &[&Row], asked: &Asked, now: u64) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.cards.sorted {
                caption.hidden { "Relays" }
                thead { tr { @for column in Column::ALL { (head(column, asked)) } } }
                tbody { @for row in rows { (body_row(row, now)) } }
            }
        }
    }
}

/// The head of a column: a link that sorts by it.
fn head(column: Column, asked: &Asked) -> Markup {
    let is_sorted = asked.column == column;
    let (order, arrow) =
        if asked.is_descending { ("descending", "▼") } else { ("ascending", "▲") };
    html! {
        th.n[column.is_number()] scope="col" aria-sort=[is_sorted.then_some(order)] {
            a href=(asked.sorted_by(column).address()) { (column.title()) }
            @if is_sorted { " " span aria-hidden="true" { (arrow) } }
        }
    }
}

/// A row of the table.
fn body_row(row: &Row, now: u64) -> Markup {
    let fingerprint = hex::encode_upper(row.fingerprint);
    html! {
        tr {
            th.who scope="row" {
                a href={ "/relay/" (fingerprint) } title=(fingerprint) {
                    (shown(row.nickname.as_deref().unwrap_or("(no nickname)")))
                }
            }
            td.n data-label=(Column::Bw.title()) { (number(row.bw)) }
            td.bad[row.is_bad] data-label=(Column::Verdict.title()) {
                @match &row.verdict { Some(verdict) => { (shown(verdict)) } None => { "not measured yet" } }
            }
            td.n data-label=(Column::Age.title()) {
                @match row.started_unix_secs { Some(at) => { (ago(now, at)) } None => { "-" } }
            }
            td.n data-label=(Column::Change.title()) {
                @match row.change { Some(change) => { (format!("{:+.1} %", change * 100.0)) } None => { "-" } }
            }
            td.n data-label=(Column::Weight.title()) {
                (number(row.weight)) @if row.is_unmeasured { " (unmeasured)" }
            }
        }
    }
}

/// A number, or a dash.
fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), grouped)
}

/// Links to the previous and the next page.
fn turn(asked: &Asked, pages: usize) -> Markup {
    let address = |page: usize| Asked { page, ..asked.clone() }.address();
    html! {
        @if pages > 1 {
            nav aria-label="Pages of the table" {
                ul {
                    @if asked.page > 1 {
                        li { a href=(address(1)) { "First" } }
                        li { a rel="prev" href=(address(asked.page - 1)) { "Previous" } }
                    }
                    li { "Page " (asked.page) " of " (pages) }
                    @if asked.page < pages {
                        li { a rel="next" href=(address(asked.page + 1)) { "Next" } }
                        li { a href=(address(pages)) { "Last" } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request of this query.
    fn asked(query: &[(&str, &str)]) -> Asked {
        let pairs = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Asked::of(&pairs.collect())
    }

    #[test]
    fn a_request_is_read_from_an_address_and_written_to_one() {
        let default = asked(&[]);
        assert_eq!((default.column, default.is_descending, default.page), (Column::Bw, true, 1));
        assert_eq!(default, asked(&[("sort", "<b>"), ("order", "x"), ("page", "-1")]));
        let some = asked(&[("find", "a&b c"), ("sort", "age"), ("page", "7")]);
        assert!(!some.is_descending, "the newest come first");
        assert_eq!(some.address(), "/relays?find=a%26b%20c&sort=age&order=asc&page=7");
        let turned = some.sorted_by(Column::Age);
        assert!(turned.is_descending && turned.page == 1 && turned.text == "a&b c");
        assert!(some.sorted_by(Column::Weight).is_descending);
    }

    #[test]
    fn a_page_has_two_hundred_relays_at_most_and_leads_to_the_others() {
        let list = List::made_up(450);
        let html = |page: &str| content(&list, &asked(&[("page", page)]), 0).into_string();
        for (page, rows, words) in [
            ("1", 200, "shown: 1 to 200"),
            ("3", 50, "shown: 401 to 450"),
            ("99", 50, "Page 3 of 3"),
        ] {
            let html = html(page);
            assert_eq!(html.matches("scope=\"row\"").count(), rows, "{page}");
            assert!(html.contains(words), "{page}: {html}");
        }
        assert!(html("1").contains("rel=\"next\"") && !html("1").contains("rel=\"prev\""));
        assert!(html("3").contains("rel=\"prev\"") && !html("3").contains("rel=\"next\""));
        let none = content(&list, &asked(&[("find", "nobody")]), 0).into_string();
        assert!(none.contains("0 of 450 relays match") && !none.contains("<table"), "{none}");
    }
}
