//! JSON as Python's `json.dump` writes it, with `NaN`, `Infinity` and `-Infinity`, which JSON (RFC 8259) does not have.

use memchr::{memchr, memmem};

/// Python's words for values that are not finite.
const WORDS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];

/// Quotes these words, which makes the text valid JSON. A record with such a string in place of a number then fails to parse by
/// itself; all other records are read. Strings and line numbers do not change.
#[must_use]
pub fn quote(text: Vec<u8>) -> Vec<u8> {
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
        let mark: &[u8] = if word.is_some() { b"\"" } else { b"" };
        quoted.extend_from_slice(mark);
        quoted.extend_from_slice(&rest[..len]);
        quoted.extend_from_slice(mark);
        rest = &rest[len..];
    }
    quoted
}

/// The bytes of the string that a text begins with, with its marks; all of the text if it has no end.
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
