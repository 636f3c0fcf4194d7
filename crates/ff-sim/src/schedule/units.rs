//! Parses rates and teams as on a command line: `608G`, `998M`, `1G,1G,1G`, in bits per second.

use ff_plan::period::Measurer;
use ff_proto::units::{BytesPerSec, ParseRateError};

/// The greatest number of measurers in a team.
pub const MOST_MEASURERS: usize = 10_000;

/// Why a text is not a team.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTeamError {
    /// A rate is invalid.
    #[error(transparent)]
    Rate(#[from] ParseRateError),
    /// There are too many measurers.
    #[error("a team has no more than {MOST_MEASURERS} measurers")]
    TooMany,
}

/// Parses `608G`, `998M` or `64k`: thousands, millions and thousand millions of bits per second.
/// Rates with units, such as `1.5Gbit` and `31250kB`, are parsed as everywhere else.
///
/// # Errors
/// If the text is not a rate.
pub fn bits_per_sec(text: &str) -> Result<BytesPerSec, ParseRateError> {
    let text = text.trim();
    let is_short = text.ends_with(['k', 'K', 'M', 'G']);
    if is_short { format!("{text}bit").parse() } else { text.parse() }
}

/// Parses a team: its measurers' rates, separated by commas.
///
/// # Errors
/// If a rate is invalid, or there are too many.
pub fn team(text: &str) -> Result<Vec<Measurer>, ParseTeamError> {
    let mut measurers = Vec::new();
    for (index, rate) in text.split(',').enumerate() {
        if index >= MOST_MEASURERS {
            return Err(ParseTeamError::TooMany);
        }
        let capacity = bits_per_sec(rate)?;
        measurers.push(Measurer { name: format!("measurer {index}"), capacity });
    }
    Ok(measurers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_enough_for_bits() {
        for (text, bytes) in [
            ("1G", 125_000_000),
            ("608G", 76_000_000_000),
            ("998M", 124_750_000),
            (" 1.5G ", 187_500_000),
            ("100k", 12_500),
            ("100K", 12_500),
            ("2.5Gbit/s", 312_500_000),
            ("31250kB", 31_250_000),
        ] {
            assert_eq!(bits_per_sec(text), Ok(BytesPerSec::new(bytes)), "{text}");
        }
        for text in ["", "G", "1", "-1G", "1T", "NaNG", "infG", "1e9G", "1GG", "0G"] {
            assert!(bits_per_sec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_team_is_a_list_of_rates() {
        let found = team("1G, 500M,2Gbit").expect("a team");
        let rates: Vec<_> = found.iter().map(|measurer| measurer.capacity.mbit()).collect();
        assert_eq!(format!("{rates:?}"), "[1000.0, 500.0, 2000.0]");
        assert!(team("").is_err() && team("1G,,1G").is_err() && team("1G;1G").is_err());
        assert_eq!(team(&"1G,".repeat(MOST_MEASURERS + 1)), Err(ParseTeamError::TooMany));
    }
}
