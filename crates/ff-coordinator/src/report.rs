//! The report: one self-contained HTML page that shows how an estimate came about.
//!
//! The page has no script and loads nothing (its content security policy forbids both), so it can
//! be kept, mailed and opened anywhere. Whatever a relay or a user chose is escaped. It looks like
//! the coordinator's page, light or dark as set in the reader's system.

use core::fmt::{self, Write as _};

use base64ct::{Base64Unpadded, Encoding};
use ff_base::utc::Utc;
use ff_plan::outcome::Outcome;
use ff_proto::aggregate::Verdict;
use ff_proto::units::BytesPerSec;

pub mod chart;
pub mod escape;

use escape::Escaped;

/// Rows of a table: a label and its value.
type Rows = Vec<(&'static str, String)>;

/// The page about one measurement.
#[must_use]
pub fn report_html(outcome: &Outcome) -> String {
    let mut page = String::new();
    // Writing into a string fails only when a `Display` does, and none of ours does.
    let _ = write_page(&mut page, outcome);
    page
}

/// Writes the page.
fn write_page(page: &mut String, outcome: &Outcome) -> fmt::Result {
    let name = outcome.target.nickname.as_deref().unwrap_or(&outcome.target.address);
    let title = format!("FlashFlow measurement of {name}");
    page.push_str(HEAD);
    writeln!(
        page,
        "<title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>",
        Escaped(&title)
    )?;
    writeln!(page, "<h1>{}</h1>", Escaped(&title))?;
    if let Ok(started) = Utc::from_unix_secs(outcome.started_unix_secs) {
        writeln!(page, "<p class=\"when\">{} UTC</p>", started.to_string().replace('T', " "))?;
    }
    write_headline(page, outcome)?;
    if outcome.seconds.is_empty() {
        page.push_str("<p class=\"none\">No second was measured, so there is no chart.</p>\n");
    } else {
        write_chart(page, outcome)?;
    }
    write_rows(page, "Result", &result_rows(outcome))?;
    write_rows(page, "Measurement", &measurement_rows(outcome))?;
    if !outcome.seconds.is_empty() {
        write_seconds(page, outcome)?;
    }
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

/// The estimate in large type and what it is worth, or why there is none.
fn write_headline(page: &mut String, outcome: &Outcome) -> fmt::Result {
    let (class, meaning) = match &outcome.result {
        Ok(Verdict::Conclusive) => ("good", "conclusive: this is the relay's capacity".to_owned()),
        Ok(Verdict::NeedsMoreCapacity) => {
            let meaning = "not conclusive: it has to be measured again with more capacity";
            ("fair", meaning.to_owned())
        }
        Ok(Verdict::MeasurerLimited) => {
            ("fair", "not the relay's capacity: the measurers were at their own limit".to_owned())
        }
        Ok(Verdict::PathLimited) => {
            ("fair", "not conclusive: the network path to the relay was the limit".to_owned())
        }
        Ok(Verdict::Unsettled) => {
            ("fair", "not conclusive: the rate never stopped growing".to_owned())
        }
        Ok(Verdict::ShortGrant) => (
            "fair",
            "not conclusive: the relay granted fewer seconds than were asked for".to_owned(),
        ),
        Ok(Verdict::LowerBound) => (
            "fair",
            "a lower bound: our own traffic, without that of the relay's clients".to_owned(),
        ),
        Err(failure) => ("bad", format!("failed: {} ({})", failure.message, failure.code())),
    };
    let estimate = outcome.estimate.map_or("no estimate".to_owned(), |rate| rate.to_string());
    writeln!(
        page,
        "<p class=\"headline\"><span class=\"estimate\">{estimate}</span> \
         <span class=\"verdict {class}\">{}</span></p>",
        Escaped(&meaning)
    )
}

/// The chart with its legend.
fn write_chart(page: &mut String, outcome: &Outcome) -> fmt::Result {
    page.push_str("<figure aria-label=\"Traffic per second\">\n<ul class=\"legend\">\n");
    for entry in chart::legend(outcome) {
        let (class, text) = (entry.swatch.class(), entry.text);
        writeln!(page, "<li><span class=\"swatch k-{class}\"></span>{text}</li>")?;
    }
    page.push_str("</ul>\n");
    match chart::svg(outcome) {
        Ok(svg) => write_drawing(page, outcome, &svg)?,
        Err(error) => {
            let error = error.to_string();
            writeln!(
                page,
                "<p class=\"none\">The chart could not be drawn: {}</p>",
                Escaped(&error)
            )?;
        }
    }
    page.push_str("</figure>\n");
    Ok(())
}

/// The drawing, with a description for screen readers.
fn write_drawing(page: &mut String, outcome: &Outcome, svg: &str) -> fmt::Result {
    let totals = outcome.second_rows();
    let totals = || totals.iter().map(|row| BytesPerSec::new(row.total_bytes));
    let [least, most] = [totals().min(), totals().max()].map(Option::unwrap_or_default);
    writeln!(
        page,
        "<div class=\"chart\" role=\"img\" tabindex=\"0\" aria-label=\"{} seconds, from {least} to {most}; the table has \
         them all\">{}</div>",
        outcome.seconds.len(),
        svg.replacen("<svg ", "<svg aria-hidden=\"true\" focusable=\"false\" ", 1)
    )
}

/// A table of names and values.
fn write_rows(page: &mut String, heading: &str, rows: &Rows) -> fmt::Result {
    writeln!(page, "<h2>{heading}</h2>\n<table class=\"facts\">")?;
    for (label, value) in rows {
        writeln!(page, "<tr><th scope=\"row\">{label}</th><td>{}</td></tr>", Escaped(value))?;
    }
    page.push_str("</table>\n");
    Ok(())
}

/// The rows of the result.
fn result_rows(outcome: &Outcome) -> Rows {
    let rate = |rate: Option<BytesPerSec>, none: &str| {
        rate.map_or_else(
            || none.to_owned(),
            |rate| format!("{rate} ({} bytes/s)", grouped(rate.get())),
        )
    };
    let mut rows = vec![
        ("Estimate", rate(outcome.estimate, "none")),
        ("Known limit", rate(outcome.limit, "not known")),
    ];
    if let Some(error) = outcome.error_percent() {
        rows.push(("Error of the estimate", format!("{error:+.1} %")));
    }
    rows.push(("Verdict", outcome.verdict_name().replace('_', " ")));
    if let Err(failure) = &outcome.result {
        rows.push(("Why it failed", format!("{} ({})", failure.message, failure.code())));
    }
    rows.push(("As a draw", {
        let value = outcome.draw.value().map_or("none".to_owned(), |value| value.to_string());
        if outcome.draw.counts() {
            format!("counts; value: {value}")
        } else {
            "does not count".to_owned()
        }
    }));
    let cells = &outcome.cells;
    let pair = |a, b| format!("{} / {}", grouped(a), grouped(b));
    rows.push(("Cells sent / echoed", pair(cells.sent, cells.echoed)));
    rows.push(("Cells checked / wrong", pair(cells.checked, cells.bad)));
    let rtt = &outcome.round_trip;
    let rtt = [rtt.p50, rtt.p90, rtt.p99, rtt.max].map(or_dash).join(" / ");
    rows.push(("Round trip p50 / p90 / p99 / max", format!("{rtt} ms")));
    rows
}

/// How it was measured.
fn measurement_rows(outcome: &Outcome) -> Rows {
    let target = &outcome.target;
    let none = || "not known".to_owned();
    let mut rows = vec![
        ("Relay", target.address.clone()),
        ("Nickname", target.nickname.clone().unwrap_or_else(none)),
        ("Ed25519 identity", Base64Unpadded::encode_string(&target.ed_identity)),
        ("RSA fingerprint", target.rsa_fingerprint.map_or_else(none, hex::encode_upper)),
        ("Seconds measured / granted / asked for", {
            let granted = outcome.granted_secs.map_or("–".to_owned(), |secs| secs.to_string());
            format!("{} / {granted} / {}", outcome.seconds.len(), outcome.asked_secs)
        }),
        ("Sockets opened / asked for", {
            format!("{} / {}", outcome.sockets.opened, outcome.sockets.asked)
        }),
        ("Background ratio r", outcome.ratio.to_string()),
        ("Cipher of the cells", {
            outcome.crypto.map_or_else(none, |crypto| crypto.name().to_owned())
        }),
        ("Capacity allocated", {
            outcome.allocated.map_or("no measurer limited in rate".to_owned(), |a| a.to_string())
        }),
        ("CPU time of the measurers", format!("{:.2} s", outcome.cpu.measurers)),
    ];
    if let Some(target) = outcome.cpu.target {
        rows.push(("CPU time of the relay", format!("{target:.2} s")));
    }
    rows
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds, or a dash.
fn or_dash(ms: Option<f64>) -> String {
    ms.map_or("–".to_owned(), |ms| format!("{ms:.1}"))
}

/// The table of samples.
fn write_seconds(page: &mut String, outcome: &Outcome) -> fmt::Result {
    page.push_str(
        "<h2>Seconds</h2>\n<div class=\"wide\" tabindex=\"0\">\n<table class=\"seconds\">\n",
    );
    page.push_str(SECONDS_HEAD);
    for (row, sample) in outcome.second_rows().iter().zip(&outcome.seconds) {
        write!(page, "<tr><th scope=\"row\">{}</th>", row.second)?;
        for bytes in [
            row.measurement_bytes,
            sample.background_sent_bytes,
            sample.background_received_bytes,
            row.background_counted_bytes,
            row.total_bytes,
        ] {
            write!(page, "<td>{:.2}</td>", BytesPerSec::new(bytes).mbit())?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    Ok(())
}

/// Everything above the title.
const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
"#;

/// Head of the table of samples.
const SECONDS_HEAD: &str = r#"<caption>All in Mbit/s</caption>
<thead>
<tr><th scope="col" rowspan="2">Second</th><th scope="col" rowspan="2">Measurement</th><th scope="colgroup" colspan="3">Background</th><th scope="col" rowspan="2">Total</th></tr>
<tr><th scope="col">sent</th><th scope="col">received</th><th scope="col">counted</th></tr>
</thead>
<tbody>
"#;

/// The style sheet of the page, with the colours of the coordinator's page.
const STYLE: &str = r##"
:root { color-scheme: light dark;
  --back: #ffffff; --raised: #f3f5f8; --text: #1a2330; --dim: #525d6c; --line: #d3d9e2; --link: #1c5aa8; --shade: #8b96a5;
  --good: #14532d; --good-back: #e3f4e8; --fair: #6b4300; --fair-back: #fdf0d5; --bad: #8a1414; --bad-back: #fde5e5;
  --m: #3a74b8; --counted: #c97e16; --claimed: #a84d1c; --estimate: #182234; --limit: #8a4fa3; --grid: #e6e9ef; }
@media (prefers-color-scheme: dark) { :root {
  --back: #12171e; --raised: #1b222c; --text: #e6eaf0; --dim: #a7b1bf; --line: #364150; --link: #8ab8f0; --shade: #6d7888;
  --good: #8fe0b5; --good-back: #14301f; --fair: #f2c879; --fair-back: #35280f; --bad: #ffb0b6; --bad-back: #3a1d22;
  --m: #6ba3e0; --counted: #f2aa4c; --claimed: #e58a56; --estimate: #f0f3f8; --limit: #c9a0dc; --grid: #2a3340; } }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1.25rem; color: var(--text); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
[tabindex]:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.when { margin: .15rem 0 0; color: var(--dim); }
.headline { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem 1rem; margin: 1rem 0; }
.estimate { font-size: 2rem; font-weight: 650; line-height: 1.2; }
.verdict { padding: .15rem .7rem; border-radius: 1rem; overflow-wrap: anywhere; }
.good { background: var(--good-back); color: var(--good); }
.fair { background: var(--fair-back); color: var(--fair); }
.bad { background: var(--bad-back); color: var(--bad); }
.none { padding: 1.5rem; border: 1px dashed var(--line); border-radius: .5rem; color: var(--dim); }
figure { margin: 1rem 0; }
.chart, .wide { overflow-x: auto; }
.chart svg { display: block; width: 100%; min-width: 35rem; height: auto; }
/* A shade at the edge of a box that can be scrolled to that side. */
.chart, .wide { background: linear-gradient(to right, var(--back) 50%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--back) 50%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / .6rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / .6rem 100% no-repeat scroll; }
@media (max-width: 37.5rem) {
  .chart::before { content: "Wider than the screen: scroll sideways"; display: inline-block; position: sticky; left: 0;
    color: var(--dim); font-size: .9rem; }
}
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.4rem; margin: 0 0 .5rem; padding: 0;
  list-style: none; font-size: .9rem; }
.swatch { display: inline-block; width: 1.3rem; height: .8rem; margin-right: .45rem; vertical-align: middle; }
.k-measurement { background: var(--m); }
.k-counted { background: var(--counted); }
.k-claimed { height: 0; border-top: 2px dashed var(--claimed); }
.k-estimate { height: 0; border-top: 2px solid var(--estimate); }
.k-limit { height: 0; border-top: 2px dashed var(--limit); }
/* Replaces the drawing's colours by those of the reader's light or dark theme. */
.chart [fill="#5A6473"] { fill: var(--dim); }
.chart [stroke="#5A6473"] { stroke: var(--dim); }
.chart [stroke="#E6E9EF"] { stroke: var(--grid); }
.chart [fill="#4C82C4"] { fill: var(--m); }
.chart [fill="#F2AA4C"] { fill: var(--counted); }
.chart [stroke="#BE5C24"] { stroke: var(--claimed); }
.chart [stroke="#182234"] { stroke: var(--estimate); }
.chart [stroke="#8A4FA3"] { stroke: var(--limit); }
table { border-collapse: collapse; font-size: .93rem; }
th, td { padding: .28rem .8rem; border-bottom: 1px solid var(--line); vertical-align: top; }
.facts { width: 100%; }
.facts th { width: min(17rem, 40%); padding-left: 0; text-align: left; font-weight: 400; color: var(--dim); }
.facts td { overflow-wrap: anywhere; }
.seconds { width: 100%; }
.seconds caption { text-align: left; color: var(--dim); padding-bottom: .3rem; }
.seconds thead th { font-weight: 600; vertical-align: bottom; }
.seconds thead th[colspan] { text-align: center; }
.seconds th, .seconds td { text-align: right; }
.seconds tbody th { font-weight: 400; color: var(--dim); }
"##;
