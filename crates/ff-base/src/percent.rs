//! Percent-encoding (RFC 3986, section 2.1), for parts of addresses and names of files in them.

use std::fmt::Write as _;

/// The bytes with all but letters, digits, `-`, `.`, `_`, `~` and those in `also` as `%XX`.
#[must_use]
pub fn encoded(bytes: &[u8], also: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also.contains(&byte) {
            text.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn only_unreserved_bytes_stay() {
        assert_eq!(encoded("/a Z?é%".as_bytes(), b"/"), "/a%20Z%3F%C3%A9%25");
        assert_eq!(encoded(b"/\xff-._~", b""), "%2F%FF-._~");
    }
}
