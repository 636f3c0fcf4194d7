//! Figures for Prometheus, in the format that a scraper asks for.
//!
//! Programs write them in the text format of OpenMetrics. A scraper whose header `Accept` does not
//! accept it receives the older text format 0.0.4, which all scrapers read. The two differ in the
//! names of families and in their types.

use std::fmt;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The text format of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The version of the OpenMetrics format.
const OPENMETRICS_VERSION: &str = "1.0.0";
/// The older text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers a request with these headers with figures in the text format of OpenMetrics, or in text
/// format 0.0.4.
pub fn figures(request: &HeaderMap, openmetrics: Result<String, fmt::Error>) -> Response {
    let (kind, text) = match openmetrics {
        Ok(text) if takes_openmetrics(request) => (OPENMETRICS, text),
        Ok(text) => (TEXT, text_format(&text)),
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
    };
    ([(header::CONTENT_TYPE, kind), (header::VARY, "accept")], text).into_response()
}

/// Converts figures in the text format of OpenMetrics, without exemplars, to text format 0.0.4.
#[must_use]
pub fn text_format(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // The line HELP comes before TYPE, which decides the name of both.
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, words)| words);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = family(kind);
            if let Some(words) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// The suffix of the name and the type of a family of this OpenMetrics type in text format 0.0.4.
fn family(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", kind),
        "info" => ("_info", "gauge"),
        "stateset" => ("", "gauge"),
        "unknown" => ("", "untyped"),
        _ => ("", kind),
    }
}

/// Whether the text format of OpenMetrics is accepted, with at least the quality of plain text.
fn takes_openmetrics(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepted: Vec<_> = values.flat_map(|value| value.split(',')).map(Accepted::of).collect();
    // The most specific entry counts (RFC 9110, 12.5.1).
    let plain = ["text/plain", "text/*", "*/*"].iter().find_map(|media| best(&accepted, media));
    let openmetrics = best(&accepted, "application/openmetrics-text").unwrap_or(0.0);
    openmetrics > 0.0 && openmetrics >= plain.unwrap_or(0.0)
}

/// The best quality of this media type, if it is named: 0 to 1.
fn best(accepted: &[Accepted<'_>], media: &str) -> Option<f32> {
    let named = accepted.iter().filter(|one| one.media.eq_ignore_ascii_case(media));
    let ours = named.filter(|one| {
        !media.ends_with("openmetrics-text")
            || one.version.is_none_or(|version| version == OPENMETRICS_VERSION)
    });
    ours.map(|one| one.quality).reduce(f32::max)
}

/// An entry of the header `Accept`.
struct Accepted<'a> {
    /// The media type.
    media: &'a str,
    /// Its version, if one is asked for.
    version: Option<&'a str>,
    /// Its quality, 0 to 1.
    quality: f32,
}

impl<'a> Accepted<'a> {
    /// Reads an entry; a quality that cannot be read is 0.
    fn of(entry: &'a str) -> Self {
        let mut parts = entry.split(';').map(str::trim);
        let mut accepted =
            Self { media: parts.next().unwrap_or_default(), version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "q" => accepted.quality = value.parse().unwrap_or(0.0),
                "version" => accepted.version = Some(value),
                _ => {}
            }
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a request with these headers `Accept` gets OpenMetrics.
    fn takes(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, value.parse().expect("a header"));
        }
        takes_openmetrics(&headers)
    }

    #[test]
    fn openmetrics_is_for_those_that_ask_for_it() {
        for accept in [
            // Prometheus 2.42 and 3.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; version=\"1.0.0\"",
            "text/plain;q=0.5, application/openmetrics-text; q=0.5",
        ] {
            assert!(takes(&[accept]), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0.1,text/plain",
            "application/openmetrics-text;q=0.1,*/*",
            "application/openmetrics",
        ] {
            assert!(!takes(&[accept]), "{accept}");
        }
        assert!(!takes(&[]), "without the header");
        assert!(takes(&["text/plain;q=0.1", "application/openmetrics-text"]), "in two headers");
    }

    #[test]
    fn the_older_format_has_its_own_names_and_types() {
        let openmetrics = "# HELP a_build The version\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_fails Failures # by why\n# TYPE a_fails counter\na_fails_total{code=\"# TYPE x\"} 3.0\n\
            # HELP a_age_seconds Its age\n# TYPE a_age_seconds gauge\n# UNIT a_age_seconds seconds\na_age_seconds 0.5\n\
            # HELP a_rtt_seconds Trips\n# TYPE a_rtt_seconds histogram\n# UNIT a_rtt_seconds seconds\na_rtt_seconds_sum 2.0\n\
            a_rtt_seconds_count 1\na_rtt_seconds_bucket{le=\"+Inf\"} 1\n\
            # TYPE a_thing unknown\na_thing 1\n# EOF\n";
        let expected = "# HELP a_build_info The version\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP a_fails_total Failures # by why\n# TYPE a_fails_total counter\na_fails_total{code=\"# TYPE x\"} 3.0\n\
            # HELP a_age_seconds Its age\n# TYPE a_age_seconds gauge\na_age_seconds 0.5\n\
            # HELP a_rtt_seconds Trips\n# TYPE a_rtt_seconds histogram\na_rtt_seconds_sum 2.0\n\
            a_rtt_seconds_count 1\na_rtt_seconds_bucket{le=\"+Inf\"} 1\n\
            # TYPE a_thing untyped\na_thing 1\n";
        assert_eq!(text_format(openmetrics), expected);
    }
}
