//! JSON as Python's `json.dump` writes it, with `NaN`, `Infinity` and `-Infinity`, which JSON
//! (RFC 8259) does not have.

use memchr::{memchr, memmem};

/// Python's words for values that are not finite.
const WORDS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
/// A character for private use (Unicode 23.5), which other programs do not write.
const MARK: &str = "\u{e000}";

/// Quotes these words, which makes the text valid JSON. A record with such a string instead of a
/// number then fails to parse by itself; all other records are read. Strings and line numbers do
/// not change.
#[must_use]
pub fn quote(text: Vec<u8>) -> Vec<u8> {
    quote_with(text, "")
}

/// The same with a mark in the quotes, by which [`unmark`] finds these words again.
#[must_use]
pub fn mark(text: Vec<u8>) -> Vec<u8> {
    quote_with(text, MARK)
}

/// Takes quotes and marks off again, so that the text is as Python wrote it.
#[must_use]
pub fn unmark(mut text: String) -> String {
    if !text.contains(MARK) {
        return text;
    }
    for word in ["NaN", "-Infinity", "Infinity"] {
        text = text.replace(&format!("\"{MARK}{word}\""), word);
    }
    text
}

/// Quotes these words, with a mark before each.
fn quote_with(text: Vec<u8>, mark: &str) -> Vec<u8> {
    if WORDS.iter().all(|word| memmem::find(&text, word).is_none()) {
        return text;
    }
    let mut quoted = Vec::with_capacity(text.len() + 64);
    let mut rest = &text[..];
    while let Some(first) = rest.first() {
        let word = WORDS.into_iter().find(|word| rest.starts_with(word));
        let len = match word {
            Some(word) => word.len(),
            None if *first == b'"' => string_len(rest),
            None => 1,
        };
        if word.is_some() {
            quoted.push(b'"');
            quoted.extend_from_slice(mark.as_bytes());
        }
        quoted.extend_from_slice(&rest[..len]);
        if word.is_some() {
            quoted.push(b'"');
        }
        rest = &rest[len..];
    }
    quoted
}

/// The bytes of the string that a text begins with, with its marks; all of the text if it has no
/// end.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(end) = memchr(b'"', &text[at.min(text.len())..]) {
        let end = at + end;
        let before = text[1..end].iter().rev().take_while(|byte| **byte == b'\\').count();
        at = end + 1;
        if before % 2 == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_no_number_becomes_text_and_strings_stay() {
        let text = r#"{"a": NaN, "b": [-Infinity, Infinity, 1], "NaN \" Infinity\\": "-Infinity"}"#;
        let value: Value = serde_json::from_slice(&quote(text.into())).expect("JSON");
        let expected = json!({"a": "NaN", "b": ["-Infinity", "Infinity", 1], "NaN \" Infinity\\": "-Infinity"});
        assert_eq!(value, expected);
    }

    #[test]
    fn what_was_marked_comes_back() {
        let text = r#"{"a":NaN,"b":[-Infinity,Infinity,"NaN","Infinity"]}"#;
        let value: Value = serde_json::from_slice(&mark(text.into())).expect("JSON");
        assert_eq!(unmark(value.to_string()), text);
        assert_eq!(unmark("\"NaN\"".to_owned()), "\"NaN\"");
    }

    proptest! {
        #[test]
        fn json_stays_as_it_is(text in "[\"\\\\NaInfty {}:,]{0,40}", number in any::<f64>()) {
            let value = json!({ text.clone(): [text, number] });
            let bytes = serde_json::to_vec(&value).expect("JSON");
            prop_assert_eq!(quote(bytes.clone()), bytes);
        }

        #[test]
        fn any_bytes_are_gone_through(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0..60_usize) {
            let mut bytes = bytes;
            let at = at.min(bytes.len());
            bytes.splice(at..at, *b"NaN\"\\");
            prop_assert!(quote(bytes.clone()).len() >= bytes.len());
        }
    }
}
