//! Tests of the style sheet: contrasts, and labels on cards.

use std::collections::HashMap;

use super::http::{get, paths};
use super::served::Served;

/// The style sheet.
const STYLE: &str = include_str!("../style.css");

/// The colours of the n-th `:root` block of the style sheet, by name.
fn colours(block: usize) -> HashMap<&'static str, &'static str> {
    let block = STYLE.split(":root {").nth(block).and_then(|rest| rest.split('}').next());
    let pairs = block.expect("a block").split(';').filter_map(|line| line.trim().split_once(": #"));
    pairs.collect()
}

/// The relative luminance of a colour (WCAG 2.2).
fn luminance(colour: &str) -> f64 {
    let part = |at: usize| {
        let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("two digits");
        let part = f64::from(value) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
}

#[test]
fn texts_have_a_contrast_of_4_5_and_the_map_of_3() {
    for colours in [colours(1), colours(2)] {
        let contrast = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|name| luminance(colours[name]) + 0.05);
            one.max(other) / one.min(other)
        };
        for ground in ["--back", "--raised", "--notice-back", "--bad-back"] {
            for text in ["--text", "--dim", "--link", "--bad"] {
                let found = contrast(text, ground);
                assert!(found >= 4.5, "{text} on {ground}: {found}");
            }
        }
        assert!(contrast("--good", "--back") >= 4.5);
        for graphic in
            ["--s-done", "--s-failing", "--s-to-come", "--m", "--counted", "--claimed", "--limit"]
        {
            let found = contrast(graphic, "--back");
            assert!(found >= 3.0, "{graphic}: {found}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_value_of_a_card_has_a_label() {
    let served = Served::new(40).await;
    for path in paths() {
        let answer = get(served.addr, &path).await;
        let tables = answer.split("<table class=\"").skip(1);
        let cards = tables.filter(|table| {
            table.split('"').next().is_some_and(|classes| classes.contains("cards"))
        });
        for table in cards {
            let table = table.split("</table>").next().unwrap_or_default();
            for cell in table.split("<td").skip(1) {
                let (attributes, rest) = cell.split_once('>').expect("an end");
                let is_empty = rest.starts_with("</td>");
                assert!(attributes.contains("data-label=") || is_empty, "{path}: <td{cell}");
            }
        }
    }
}
