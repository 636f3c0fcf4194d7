//! The use that relays report: `write-history` and `read-history` of extra-info documents (dir-spec
//! 2.1.2).

use std::collections::HashMap;

/// The longest interval that is accepted, in seconds; tor's is a day.
const LONGEST_SECS: u64 = 7 * 24 * 3600;

/// The rates in bytes a second that relays report for their newest finished interval, by
/// fingerprint in upper case: the greater of read and written bytes. Of several documents of a
/// relay the last is used. Invalid lines are ignored.
#[must_use]
pub fn rates(text: &str) -> HashMap<String, f64> {
    let mut rates = HashMap::new();
    let mut relay: Option<String> = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("extra-info") => {
                relay = words.nth(1).filter(|id| is_id(id)).map(str::to_ascii_uppercase);
                if let Some(id) = &relay {
                    rates.remove(id);
                }
            }
            Some("write-history" | "read-history") => {
                let newest = newest(line);
                if let (Some(id), Some(rate)) = (&relay, newest) {
                    let most = rates.entry(id.clone()).or_insert(rate);
                    *most = most.max(rate);
                }
            }
            _ => {}
        }
    }
    rates
}

/// Whether this is a fingerprint.
fn is_id(id: &str) -> bool {
    id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The rate of the last interval of a line: `write-history YYYY-MM-DD HH:MM:SS (NSEC s) NUM,NUM,…`.
fn newest(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once('(')?;
    let (interval, numbers) = rest.split_once(')')?;
    let secs: u64 = interval.split_ascii_whitespace().next()?.parse().ok()?;
    let bytes: u64 = numbers.trim().rsplit(',').next()?.trim().parse().ok()?;
    (1..=LONGEST_SECS).contains(&secs).then(|| bytes as f64 / secs as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_newest_interval_of_the_newest_document_counts() {
        let a = "A".repeat(40);
        let text = format!(
            "extra-info one {a}\nwrite-history 2026-11-20 00:00:00 (10 s) 1,2,900\n\
             extra-info one {}\npublished 2026-11-22 00:00:00\n\
             write-history 2026-11-22 00:00:00 (100 s) 7,500\nread-history 2026-11-22 00:00:00 (100 s) 9,700\n\
             extra-info odd xyz\nwrite-history 2026-11-22 00:00:00 (100 s) 5\n\
             extra-info two {}\nwrite-history 2026-11-22 00:00:00 (0 s) 5\nread-history (1 s)\n",
            a.to_lowercase(),
            "B".repeat(40)
        );
        assert_eq!(rates(&text), HashMap::from([(a, 7.0)]));
    }

    proptest! {
        #[test]
        fn any_text_has_finite_rates(text in "(extra-info [ab] [A-F]{40}\n|[a-z-]{0,5}write-history [0-9 :()s,]{0,40}\n|.{0,9}\n){0,20}") {
            prop_assert!(rates(&text).values().all(|rate| rate.is_finite() && *rate >= 0.0));
        }
    }
}
