//! Daily totals of the network, as in Tor Metrics' `bandwidth.csv`: a day, and the total advertised
//! and used bandwidth in Gbit/s. Comment lines begin with `#`; header lines contain words.

use std::io::{self, BufRead};

use ff_report::skipped::Skips;

use super::lines::{Line, Lines};
use super::{is_word, time, within_span};

/// The greatest bandwidth that is accepted, in Gbit/s.
const MOST_GBIT: f64 = 1e9;

/// The network on one day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// The first second of the day, in seconds since 1970.
    pub unix_secs: u64,
    /// Total advertised bandwidth, in Gbit/s.
    pub advertised: Option<f64>,
    /// Total used bandwidth, in Gbit/s.
    pub used: Option<f64>,
}

/// Reads the days; invalid rows, and rows not later than the one before, are left out.
///
/// # Errors
/// If nothing can be read at all.
pub fn read(name: &str, from: impl BufRead) -> io::Result<(Vec<Day>, Skips)> {
    let (mut days, mut skips): (Vec<Day>, _) = (Vec::new(), Skips::default());
    let mut lines = Lines::new(from)?;
    while let Some((number, line)) = lines.next() {
        let read = match line {
            Line::Whole(text) => day(text.trim_ascii()),
            Line::TooLong => Err("the line is too long".to_owned()),
            Line::Cut(why) => Err(format!("it cannot be read further: {why}")),
        };
        let last = days.last().map_or(0, |day| day.unix_secs);
        match read {
            Ok(None) => {}
            Ok(Some(day)) if day.unix_secs > last => {
                days.push(day);
                skips.read += 1;
            }
            Ok(Some(_)) => {
                skips.add(name, None, Some(number), "the day is not after the one before")
            }
            Err(why) => skips.add(name, None, Some(number), why),
        }
    }
    Ok((days, skips))
}

/// Parses a line; `None` for a comment or a header.
fn day(line: &[u8]) -> Result<Option<Day>, String> {
    let cells: Vec<&[u8]> = line.splitn(5, |&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
    let &[first, ref numbers @ ..] = cells.as_slice() else { return Ok(None) };
    if line.is_empty() || line.starts_with(b"#") || is_word(first) {
        return Ok(None);
    }
    let unix_secs = time(first).ok_or("it does not begin with a day")?;
    let unix_secs = within_span(unix_secs).map_err(|why| format!("its day {why}"))?;
    let &[advertised, used] = numbers else {
        return Err("it does not have three cells".to_owned());
    };
    Ok(Some(Day { unix_secs, advertised: gbit(advertised)?, used: gbit(used)? }))
}

/// Parses a number of Gbit/s; `None` for a blank cell.
fn gbit(text: &[u8]) -> Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| (0.0..=MOST_GBIT).contains(number));
    number.map(Some).ok_or_else(|| "a cell is not a valid number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_come_in_order_and_bad_ones_are_listed() {
        let text = "#\ndate,advbw,bwhist\n2019-01-01,315.25,144.5\n2019-01-01,1,1\n2019-01-03,,7\n\
                    2018-12-31,1,1\nX,1,1\n2019-01-04,-1,1\n2019-01-05,NaN,1\n2019-01-06,1\n\
                    2019-01-07,1,2,3\n2006-12-31,1,2\n2019-01-08,5,6\n2996-01-01,1,1";
        let (days, skips) = read("b.csv", text.as_bytes()).expect("text");
        let at = |day: u64| 1_546_300_800 + (day - 1) * 86_400;
        let expected = [(1, Some(315.25), 144.5), (3, None, 7.0), (8, Some(5.0), 6.0)];
        let expected: Vec<Day> = expected
            .into_iter()
            .map(|(day, advertised, used)| Day { unix_secs: at(day), advertised, used: Some(used) })
            .collect();
        assert_eq!(days, expected);
        let lines: Vec<usize> = skips.all.iter().filter_map(|skipped| skipped.line).collect();
        assert_eq!(lines, [4, 6, 7, 8, 9, 10, 11, 12, 14]);
        assert_eq!(skips.read, 3);
    }
}
