//! Numbers of bytes as text: `5MiB`, `300kB`, `12`.

/// Parses a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return Err("the unit must be B, kB, KiB, MB, MiB, GB or GiB".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "give a whole number of bytes".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "the number is too large".to_owned())
}

/// Text of a size, in MiB or KiB if it is a multiple, otherwise in bytes.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!((bytes("5MiB"), bytes("12")), (Ok(5_242_880), Ok(12)));
        assert_eq!((bytes("5GB"), bytes("1GiB")), (Ok(5_000_000_000), Ok(1 << 30)));
        for odd in ["", "MiB", "GB", "-1", "1.5MB", "5TB", "99999999999999MiB", "99999999999GB"] {
            assert!(bytes(odd).is_err(), "{odd}");
        }
        let odd = bytes("5TB").expect_err("no unit of ours");
        assert_eq!(odd, "the unit must be B, kB, KiB, MB, MiB, GB or GiB");
    }
}
