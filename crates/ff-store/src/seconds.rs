//! A compact encoding of a measurement's seconds.
//!
//! ```text
//!   1 | count | column x | column sent | column received - sent
//!   column:  unit | least | width | count numbers of `width` bits, and zeros up to the next byte
//! ```
//!
//! `1` is the version. `count`, `unit` and `least` are varints (LEB128), `width` is a byte of 0 to
//! 64, and each number stands for `least + unit · number`, modulo 2^64; a byte's lowest bits come
//! first. Relays report equal bytes in both directions, and measurers count whole cells, so thirty
//! seconds of a relay of 1 Gbit/s take 180 bytes, and of 10 Gbit/s 203.

use ff_proto::aggregate::SecondSample;

/// The version of the encoding.
const VERSION: u8 = 1;
/// The largest number of seconds that are read: many times the longest duration (PROTOCOL.md §4.1).
const MAX_SECONDS: usize = 1 << 16;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadSeconds {
    /// They have another version.
    #[error("seconds in a form that is not known here ({0:?})")]
    Version(Option<u8>),
    /// They are not valid.
    #[error("seconds that cannot be read")]
    Malformed,
}

/// Encodes these seconds; if there are more than 65,536, only the first ones.
pub(super) fn encode(seconds: &[SecondSample]) -> Vec<u8> {
    let seconds = seconds.get(..MAX_SECONDS).unwrap_or(seconds);
    let mut out = vec![VERSION];
    put_varint(&mut out, seconds.len() as u64);
    put_column(&mut out, seconds.iter().map(|second| second.measurement_bytes));
    put_column(&mut out, seconds.iter().map(|second| second.background_sent_bytes));
    let more = |second: &SecondSample| {
        second.background_received_bytes.wrapping_sub(second.background_sent_bytes)
    };
    put_column(&mut out, seconds.iter().map(more));
    out
}

/// Decodes these seconds.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<SecondSample>, BadSeconds> {
    let Some((&VERSION, mut rest)) = bytes.split_first() else {
        return Err(BadSeconds::Version(bytes.first().copied()));
    };
    decode_version_1(&mut rest).filter(|_| rest.is_empty()).ok_or(BadSeconds::Malformed)
}

/// Decodes the bytes after the version.
fn decode_version_1(rest: &mut &[u8]) -> Option<Vec<SecondSample>> {
    let count = usize::try_from(take_varint(rest)?).ok().filter(|&count| count <= MAX_SECONDS)?;
    let [x, sent, more] =
        [take_column(rest, count)?, take_column(rest, count)?, take_column(rest, count)?];
    let seconds = x.into_iter().zip(sent).zip(more);
    Some(
        seconds
            .map(|((measurement_bytes, sent), more)| SecondSample {
                measurement_bytes,
                background_sent_bytes: sent,
                background_received_bytes: sent.wrapping_add(more),
            })
            .collect(),
    )
}

/// Writes a column.
fn put_column(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64> + Clone) {
    let least = numbers.clone().min().unwrap_or(0);
    let unit = numbers.clone().fold(0, |unit, number| gcd(unit, number - least)).max(1);
    let most = numbers.clone().max().map_or(0, |most| (most - least) / unit);
    let width = u64::BITS - most.leading_zeros();
    put_varint(out, unit);
    put_varint(out, least);
    out.push(u8::try_from(width).unwrap_or(0));
    let (mut bits, mut held) = (0_u128, 0);
    for number in numbers {
        bits |= u128::from((number - least) / unit) << held;
        held += width;
        while held >= 8 {
            out.push((bits & 0xFF) as u8);
            bits >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.push((bits & 0xFF) as u8);
    }
}

/// Reads a column of this many numbers.
fn take_column(rest: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    let (unit, least) = (take_varint(rest)?, take_varint(rest)?);
    let width = u32::from(rest.split_off_first().copied().filter(|&width| width <= 64)?);
    let len = (count * width as usize).div_ceil(8);
    let mut bytes = rest.split_off(..len)?.iter();
    let mask = u128::from(u64::MAX) >> (64 - width);
    let (mut bits, mut held) = (0_u128, 0);
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        while held < width {
            bits |= u128::from(*bytes.next()?) << held;
            held += 8;
        }
        let number = u64::try_from(bits & mask).ok()?;
        numbers.push(unit.wrapping_mul(number).wrapping_add(least));
        bits >>= width;
        held -= width;
    }
    Some(numbers)
}

/// Writes a number as a varint: seven bits per byte, the lowest first.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7F {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

/// Reads a varint of at most 64 bits.
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        let bits = u64::from(byte & 0x7F);
        number |= bits << shift;
        if bits << shift >> shift != bits {
            return None;
        }
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The greatest common divisor; if one number is 0, the other.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A second of this many bytes.
    fn second(measurement_bytes: u64, sent: u64, received: u64) -> SecondSample {
        SecondSample {
            measurement_bytes,
            background_sent_bytes: sent,
            background_received_bytes: received,
        }
    }

    /// Any number; small and extreme ones are as frequent as others.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![0..=2000_u64, 0..=1_000_000_000_u64, any::<u64>(), Just(u64::MAX)]
    }

    proptest! {
        #[test]
        fn seconds_are_what_they_were(
            numbers in prop::collection::vec([any_number(), any_number(), any_number()], 0..130),
        ) {
            let seconds: Vec<_> = numbers.iter().map(|&[x, s, r]| second(x, s, r)).collect();
            prop_assert_eq!(decode(&encode(&seconds)), Ok(seconds));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
            let _ = decode(&[&[VERSION], bytes.as_slice()].concat());
        }
    }

    #[test]
    fn thirty_seconds_of_a_fast_relay_take_about_200_bytes() {
        // 1 and 10 Gbit/s with 25 % of background that varies by a fifth, reported in steps of 1 %
        // (PROTOCOL.md 4.6), and a slow first second.
        for (cells, most) in [(243_190_u64, 200), (2_431_900, 210)] {
            let of = |index: u64| {
                let noise = index.wrapping_mul(6_364_136_223_846_793_005) >> 33;
                let x = if index == 0 { cells / 3 } else { cells - noise % (cells / 20) } * 514;
                let step = x / 100 + 1;
                let background = (x / 4 - noise % (x / 20)) / step * step;
                second(x, background, background)
            };
            let seconds: Vec<_> = (0..30).map(of).collect();
            let len = encode(&seconds).len();
            println!("30 seconds of {cells} cells a second: {len} bytes");
            assert!(len <= most);
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(decode(&[]), Err(BadSeconds::Version(None)));
        assert_eq!(decode(&[2, 0]), Err(BadSeconds::Version(Some(2))));
        let good = encode(&[second(514, 1, 2); 3]);
        for len in 1..good.len() {
            assert_eq!(decode(&good[..len]), Err(BadSeconds::Malformed), "{len}");
        }
        assert_eq!(decode(&[good.as_slice(), &[0]].concat()), Err(BadSeconds::Malformed));
        // 2^60 seconds with a width of 0 bits, and a width above 64.
        let many =
            [1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 0, 0, 1, 0, 0, 1, 0, 0];
        assert_eq!(decode(&many), Err(BadSeconds::Malformed));
        assert_eq!(
            decode(&[1, 1, 1, 0, 65, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Err(BadSeconds::Malformed)
        );
    }
}
