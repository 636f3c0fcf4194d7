//! Formats numbers, times and foreign texts for pages and printed summaries.

use ff_base::utc::Utc;
use ff_coordinator::report::escape::Escaped;
use ff_proto::units::BytesPerSec;
use maud::{Markup, PreEscaped, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Seconds of a minute, an hour and a day.
const SPANS: [(u64, &str); 3] = [(24 * 3600, "d"), (3600, "h"), (60, "min")];

/// Characters that a value in a query does not have as they are: all but the unreserved ones (RFC
/// 3986, section 2.3).
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A foreign text, without markup and without characters that reorder the text around it.
pub(super) fn shown(text: &str) -> Markup {
    PreEscaped(Escaped(text).to_string())
}

/// The same for attributes, which maud escapes.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() || ff_coordinator::report::escape::reorders(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// A foreign text as a value in the query of an address.
pub(super) fn in_address(text: &str) -> String {
    utf8_percent_encode(text, IN_QUERY).to_string()
}

pub(super) fn rate(bytes_per_sec: u64) -> String {
    BytesPerSec::new(bytes_per_sec).to_string()
}

/// A time, readable by people and by programs.
pub(super) fn time(unix_secs: u64) -> Markup {
    let Ok(utc) = Utc::from_unix_secs(unix_secs) else { return html! { "-" } };
    let text = utc.to_string();
    html! { time datetime={ (text) "Z" } { (text.replace('T', " ")) " UTC" } }
}

/// A time as plain text.
pub(super) fn utc(unix_secs: u64) -> String {
    Utc::from_unix_secs(unix_secs).map_or_else(|_| "-".to_owned(), |utc| format!("{utc} UTC"))
}

/// The time of day, in hours and minutes.
pub(super) fn clock(unix_secs: u64) -> String {
    let utc = Utc::from_unix_secs(unix_secs).map(|utc| utc.to_string());
    utc.ok().and_then(|text| text.get(11..16).map(str::to_owned)).unwrap_or_default()
}

/// A duration, in its two largest units.
pub(super) fn span(secs: u64) -> String {
    let mut left = secs;
    let mut words = Vec::new();
    for (unit_secs, unit) in SPANS {
        if left >= unit_secs {
            words.push(format!("{} {unit}", left / unit_secs));
            left %= unit_secs;
        }
    }
    if left > 0 || words.is_empty() {
        words.push(format!("{left} s"));
    }
    words.truncate(2);
    words.join(" ")
}

/// The time from `unix_secs` to `now` in words.
pub(super) fn ago(now: u64, unix_secs: u64) -> String {
    match now.checked_sub(unix_secs) {
        Some(secs) => format!("{} ago", span(secs)),
        None => format!("in {}", span(unix_secs - now)),
    }
}

/// A number with its digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number of relays.
pub(super) fn relays(count: u64) -> String {
    if count == 1 { "1 relay".to_owned() } else { format!("{} relays", grouped(count)) }
}

/// A part of a whole in percent.
#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (secs, text) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3601, "1 h 1 s"), (200_000, "2 d 7 h")]
        {
            assert_eq!(span(secs), text);
        }
        assert_eq!((ago(100, 40), ago(40, 100)), ("1 min ago".to_owned(), "in 1 min".to_owned()));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!([relays(0), relays(1), relays(20)], ["0 relays", "1 relay", "20 relays"]);
        assert_eq!(
            (grouped(123), percent(1, 3), percent(1, 0)),
            ("123".into(), "33.3 %".into(), "-".into())
        );
    }

    #[test]
    fn foreign_texts_are_texts() {
        assert_eq!(shown("<b>\u{202e}\u{7}").into_string(), "&lt;b&gt;\\u{202e}\\u{7}");
        assert_eq!(plain("a\"\u{202e}b\n"), "a\"\u{fffd}b\u{fffd}");
        assert_eq!(in_address("aZ-9._~ &\"é#/%"), "aZ-9._~%20%26%22%C3%A9%23%2F%25");
    }
}
