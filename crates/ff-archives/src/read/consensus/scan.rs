//! Scans directory documents as bytes: lines, words, numbers and times (dir-spec 1.2).
//!
//! Nothing here allocates, and documents need not be UTF-8 as a whole: only extracted texts are
//! checked. Objects between `-----BEGIN` and `-----END` are skipped, whatever their content.

use std::net::Ipv4Addr;

use ff_base::utc::DAY_SECS;
use ff_dir::DocumentError;

/// 2007-01-01 00:00:00 UTC in seconds since 1970: no document here is older.
const YEAR_2007: u64 = 1_167_609_600;
pub(crate) fn error(line: usize, reason: impl Into<String>) -> DocumentError {
    DocumentError { line, reason: reason.into() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The line's number, from 1.
    pub(crate) number: usize,
    /// The start of the line in the document.
    pub(crate) start: usize,
    /// The start of the next line.
    pub(crate) end: usize,
    /// The first word.
    pub(crate) keyword: &'a [u8],
    /// The text after the first word.
    pub(crate) rest: &'a [u8],
}

/// The lines of a document, without objects.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    /// The unread bytes.
    left: &'a [u8],
    /// The number of bytes read.
    at: usize,
    /// The number of lines read.
    number: usize,
    /// Whether the last item is complete: a line with its end, or an object with its last line.
    is_whole: bool,
}

impl<'a> Lines<'a> {
    pub(crate) const fn of(document: &'a [u8]) -> Self {
        Self { left: document, at: 0, number: 0, is_whole: true }
    }

    /// The number of lines read.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// The start of the next line in the document.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Whether these bytes follow.
    pub(crate) fn comes(&self, bytes: &[u8]) -> bool {
        self.left.starts_with(bytes)
    }

    /// Whether the last item is complete.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The next line, without its line end.
    fn line(&mut self) -> Option<&'a [u8]> {
        if self.left.is_empty() {
            return None;
        }
        let len = memchr::memchr(b'\n', self.left).map_or(self.left.len(), |at| at + 1);
        let (line, left) = self.left.split_at_checked(len)?;
        self.left = left;
        self.at += len;
        self.number += 1;
        let ended = line.strip_suffix(b"\n");
        self.is_whole = ended.is_some();
        let line = ended.unwrap_or(line);
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Skips known lines, with this number of bytes and lines.
    pub(crate) fn pass(&mut self, bytes: usize, lines: usize) {
        self.left = self.left.get(bytes..).unwrap_or_default();
        self.at += bytes;
        self.number += lines;
        self.is_whole = true;
    }

    /// Skips the rest of an object.
    fn pass_object(&mut self) {
        while let Some(line) = self.line() {
            if let Some(label) = line.strip_prefix(b"-----END ") {
                self.is_whole |= label.ends_with(b"-----");
                return;
            }
        }
        self.is_whole = false;
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    #[inline]
    fn next(&mut self) -> Option<Line<'a>> {
        loop {
            let start = self.at;
            let line = self.line()?;
            // For nearly all lines the first byte is enough.
            if line.first() == Some(&b'-') && line.starts_with(b"-----BEGIN ") {
                self.pass_object();
                continue;
            }
            // Keywords may be marked as optional.
            let line = line.strip_prefix(b"opt ").unwrap_or(line);
            let space = line.iter().position(|byte| is_space(*byte)).unwrap_or(line.len());
            let (keyword, rest) = line.split_at(space);
            let rest = rest.get(1..).unwrap_or_default();
            return Some(Line { number: self.number, start, end: self.at, keyword, rest });
        }
    }
}

/// The content between the first and the last line of the object at the start of `bytes`, if it is
/// complete.
pub(crate) fn object(bytes: &[u8]) -> Option<&[u8]> {
    let mut lines = Lines::of(bytes);
    lines.line().filter(|line| line.starts_with(b"-----BEGIN "))?;
    let start = lines.at;
    loop {
        let end = lines.at;
        if lines.line()?.starts_with(b"-----END ") {
            return bytes.get(start..end);
        }
    }
}

/// Whether a byte separates words. Nearly all bytes are greater than both separators.
const fn is_space(byte: u8) -> bool {
    byte <= b' ' && (byte == b' ' || byte == b'\t')
}

/// The words of a line's rest.
pub(crate) const fn words(rest: &[u8]) -> Words<'_> {
    Words(rest)
}

/// The remaining words of a line.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Skips separators.
    fn pass_spaces(&mut self) {
        while let Some((first, behind)) = self.0.split_first()
            && is_space(*first)
        {
            self.0 = behind;
        }
    }

    /// The next word if it has exactly this number of bytes, which are not examined. They may
    /// include separators, so callers must reject these.
    pub(crate) fn of_len<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        self.pass_spaces();
        let (word, behind) = self.0.split_first_chunk()?;
        self.0 = behind;
        behind.first().is_none_or(|byte| is_space(*byte)).then_some(word)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.pass_spaces();
        let len = self.0.iter().position(|byte| is_space(*byte)).unwrap_or(self.0.len());
        let (word, behind) = self.0.split_at(len);
        self.0 = behind;
        (len > 0).then_some(word)
    }
}

/// Splits a word at its first `=`.
pub(crate) fn key_value(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    Some((word.get(..at)?, word.get(at + 1..)?))
}

/// The bytes as text, if they are UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A number of decimal digits only.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

pub(crate) fn port(digits: &[u8]) -> Option<u16> {
    number(digits)?.try_into().ok()
}

/// Parses an IPv4 address with the standard library's result, in a fraction of the time.
pub(crate) fn ipv4(word: &[u8]) -> Option<Ipv4Addr> {
    let (mut octets, mut at, mut octet, mut digits) = ([0; 4], 0, 0_u16, 0);
    for &byte in word {
        match byte {
            // A leading 0 is the only digit.
            b'0'..=b'9' if digits == 0 || octet > 0 => {
                (octet, digits) = (octet * 10 + u16::from(byte - b'0'), digits + 1);
                *octets.get_mut(at)? = u8::try_from(octet).ok()?;
            }
            b'.' if digits > 0 => (at, octet, digits) = (at + 1, 0, 0),
            _ => return None,
        }
    }
    (at == 3 && digits > 0).then(|| octets.into())
}

/// The value of each base64 character; 64 for all others.
const BASE64: [u8; 256] = {
    let characters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut values, mut value) = ([64; 256], 0_u8);
    while value < 64 {
        values[characters[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// Decodes 20 or 32 bytes from base64 without padding. A table is four times as fast as a
/// constant-time decoder, and a month has ten million of these.
pub(crate) fn base64<const N: usize>(word: &[u8]) -> Option<[u8; N]> {
    if word.len() != (N * 8).div_ceil(6) {
        return None;
    }
    let mut bytes = [0; N];
    let ((groups, tail), (whole, rest)) = (word.as_chunks::<4>(), bytes.as_chunks_mut::<3>());
    let mut wrong = 0;
    let mut decode = |group: [u8; 4]| {
        let [a, b, c, d] = group.map(|byte| BASE64[usize::from(byte)]);
        wrong |= a | b | c | d;
        (u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d)).to_be_bytes()
    };
    for (to, from) in whole.iter_mut().zip(groups) {
        [_, to[0], to[1], to[2]] = decode(*from);
    }
    // `A` stands for zero bits.
    let mut last = [b'A'; 4];
    last.get_mut(..tail.len())?.copy_from_slice(tail);
    let [_, decoded @ ..] = decode(last);
    let (kept, left) = decoded.split_at_checked(rest.len())?;
    rest.copy_from_slice(kept);
    // Bits after the last byte must be zero, and all characters must be in the alphabet.
    let is_right = wrong & 64 == 0 && left.iter().all(|byte| *byte == 0);
    is_right.then_some(bytes)
}

/// Decodes 20 bytes from 40 hexadecimal digits.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<[u8; 20]> {
    let mut bytes = [0; 20];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

/// Whether a word is a valid nickname (dir-spec 2.1.3).
pub(crate) fn is_nickname(word: &[u8]) -> bool {
    (1..=19).contains(&word.len()) && word.iter().all(u8::is_ascii_alphanumeric)
}

/// Parses a time, `2019-07-14 00:00:00` in UTC without anything else; returns seconds since 1970 or
/// the reason for an error.
pub(crate) fn time(bytes: &[u8]) -> Result<u64, &'static str> {
    let secs = unix_secs(bytes).ok_or("is not a time")?;
    if secs < YEAR_2007 { Err("lies before 2007") } else { Ok(secs) }
}

/// Parses a time from 1970 on; returns seconds since 1970.
fn unix_secs(bytes: &[u8]) -> Option<u64> {
    let (&date, clock) = bytes.split_first_chunk::<10>()?;
    let &clock: &[u8; 9] = clock.try_into().ok()?;
    let ([y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1], [b' ', h0, h1, b':', n0, n1, b':', s0, s1]) =
        (date, clock)
    else {
        return None;
    };
    let (year, month, day) = (number(&[y0, y1, y2, y3])?, number(&[m0, m1])?, number(&[d0, d1])?);
    let (hour, minute, second) = (number(&[h0, h1])?, number(&[n0, n1])?, number(&[s0, s1])?);
    let is_clock = hour < 24 && minute < 60 && second < 60;
    Some(
        (is_clock.then(|| days(year, month, day))?)? * DAY_SECS
            + hour * 3600
            + minute * 60
            + second,
    )
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    /// Days before each month in a common year.
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let before = *BEFORE.get(index)?;
    let len = BEFORE.get(index + 1).unwrap_or(&365) - before + u64::from(is_leap && month == 2);
    if year < 1970 || day == 0 || day > len {
        return None;
    }
    let last = year - 1;
    let leap_days = last / 4 - last / 100 + last / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let passed = before + u64::from(is_leap && month > 2) + day - 1;
    Some((year - 1970) * 365 + leap_days + passed)
}

#[cfg(test)]
mod tests {
    use base64ct::{Base64Unpadded, Encoding};
    use time::{Date, Duration, Month};

    use super::*;

    #[test]
    fn every_day_of_500_years_is_as_another_calendar_has_it() {
        let mut date = Date::from_calendar_date(1970, Month::January, 1).expect("a date");
        for day in 0..183_000 {
            let (year, month) = (date.year().unsigned_abs(), u8::from(date.month()));
            let text = format!("{year:04}-{month:02}-{:02} 23:59:59", date.day());
            assert_eq!(unix_secs(text.as_bytes()), Some(day * DAY_SECS + DAY_SECS - 1), "{text}");
            date += Duration::DAY;
        }
    }

    #[test]
    fn what_is_no_time_has_a_reason() {
        assert_eq!(time(b"2019-07-14 00:00:00"), Ok(1_563_062_400));
        assert_eq!(time(b"2007-01-01 00:00:00"), Ok(YEAR_2007));
        for (text, reason) in [
            ("2006-12-31 23:59:59", "lies before 2007"),
            ("1970-01-01 00:00:00", "lies before 2007"),
            ("1969-12-31 23:59:59", "is not a time"),
            ("2019-02-29 00:00:00", "is not a time"),
            ("2100-02-29 00:00:00", "is not a time"),
            ("2019-13-01 00:00:00", "is not a time"),
            ("2019-00-01 00:00:00", "is not a time"),
            ("2019-04-31 00:00:00", "is not a time"),
            ("2019-04-00 00:00:00", "is not a time"),
            ("2019-07-14 24:00:00", "is not a time"),
            ("2019-07-14 00:60:00", "is not a time"),
            ("2019-07-14 00:00:60", "is not a time"),
            ("2019-07-14T00:00:00", "is not a time"),
            ("2019-07-14 00:00:00 ", "is not a time"),
            ("2019-07-14 00:00", "is not a time"),
            ("+019-07-14 00:00:00", "is not a time"),
            ("", "is not a time"),
        ] {
            assert_eq!(time(text.as_bytes()), Err(reason), "{text:?}");
        }
        assert!(time(b"9999-12-31 23:59:59").is_ok());
    }

    #[test]
    fn objects_are_passed_over_and_cuts_are_seen() {
        let text =
            b"opt a  b\tc\r\n-----BEGIN X-----\nr none\n-----END X-----\n\xff\xfe \x00\nlast";
        let mut lines = Lines::of(text);
        let found: Vec<_> =
            lines.by_ref().map(|line| (line.number, line.keyword, line.rest)).collect();
        let wanted: [(usize, &[u8], &[u8]); 3] =
            [(1, b"a", b" b\tc"), (5, b"\xff\xfe", b"\0"), (6, b"last", b"")];
        assert_eq!(found, wanted);
        assert!(!lines.is_whole());
        assert_eq!(words(b" b\t\tc ").collect::<Vec<_>>(), [b"b", b"c"]);
        let mut left = words(b"  abc\tdef");
        assert_eq!((left.of_len(), left.of_len()), (Some(b"abc"), Some(b"def")));
        assert_eq!(left.next(), None);
        // Neither a longer word nor a shorter one at the end, nor one with a space that a decoder
        // would accept.
        assert_eq!(words(b"abcd").of_len::<3>(), None);
        assert_eq!(words(b"ab").of_len::<3>(), None);
        assert_eq!(base64::<20>(b"AAoQ1DAR6kkoo19hBA 5K0QztNw"), None);
        for (text, found) in [
            (&b"-----BEGIN X-----\nAA\n==\r\n-----END X-----\nr\n"[..], Some(&b"AA\n==\r\n"[..])),
            (b"-----BEGIN X-----\n-----END X-----", Some(&b""[..])),
            (b"-----BEGIN X-----\nAA\n", None),
            (b"r\n-----BEGIN X-----\n-----END X-----\n", None),
            (b"", None),
        ] {
            assert_eq!(object(text), found, "{text:?}");
        }
        for (text, is_whole) in [
            (&b"a\n-----BEGIN X-----\nr\n"[..], false),
            (b"a\n-----BEGIN X-----\nr\n-----END X-----", true),
            (b"a\n-----BEGIN X-----\nr\n-----END X----", false),
            (b"a\n-----BEGIN X-----", false),
            (b"a\n", true),
            (b"", true),
        ] {
            let mut lines = Lines::of(text);
            assert_eq!(
                (lines.by_ref().count() <= 1, lines.is_whole()),
                (true, is_whole),
                "{text:?}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn addresses_are_as_the_standard_library_has_them(word in "[0-3]?[0-9]{0,3}(\\.[0-2]?[0-9]{0,2}){2,4}[. x]?") {
            let wanted: Option<Ipv4Addr> = word.parse().ok();
            proptest::prop_assert_eq!(ipv4(word.as_bytes()), wanted, "{:?}", word);
        }
    }

    #[test]
    fn base64_is_as_another_decoder_has_it() {
        let mut state = 1_u64;
        for round in 0..20_000_usize {
            let mut word = [0; 27];
            for byte in &mut word {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let odd = round.is_multiple_of(3) && state >> 60 == 0;
                let place = usize::from(state.to_be_bytes()[3]) % 64;
                let characters =
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
                *byte = if odd { state.to_be_bytes()[2] } else { characters[place] };
            }
            let mut bytes = [0; 20];
            let expected = Base64Unpadded::decode(word, &mut bytes).ok().map(<[u8]>::to_vec);
            assert_eq!(base64::<20>(&word).map(|found| found.to_vec()), expected, "{word:?}");
        }
    }

    #[test]
    fn numbers_are_digits_and_fit() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for odd in [&b""[..], b"18446744073709551616", b"+1", b"-1", b" 1", b"1.0", b"\xd9\xa1"] {
            assert_eq!(number(odd), None, "{odd:?}");
        }
        assert_eq!((port(b"65535"), port(b"65536")), (Some(65_535), None));
        assert_eq!(base64::<20>(b"AAoQ1DAR6kkoo19hBAX5K0QztNw").map(|bytes| bytes[1]), Some(0x0a));
        assert_eq!(base64::<32>(b"AAoQ1DAR6kkoo19hBAX5K0QztNw"), None);
        assert_eq!(base64::<20>(b"AAoQ1DAR6kkoo19hBAX5K0QztNw="), None);
        assert_eq!(key_value(b"a=b=c"), Some((&b"a"[..], &b"b=c"[..])));
        assert!(
            is_nickname(b"seele")
                && !is_nickname(b"")
                && !is_nickname(b"\xffx")
                && !is_nickname(&[b'a'; 20])
        );
    }
}
