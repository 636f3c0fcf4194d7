//! A trace as text, for a relay's operator.

use core::fmt;

use ff_proto::units::BytesPerSec;

use super::{Attempt, Number, Trace, utc};
use crate::outcome::DrawRow;
use crate::publish::days::HoldReason;

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "relay      {}", self.fingerprint)?;
        if let Some(nickname) = &self.nickname {
            write!(f, "  {}", nickname.escape_debug())?;
        }
        if let Some(identity) = &self.ed25519_base64 {
            write!(f, "\nidentity   {identity}")?;
        }
        writeln!(f, "\nas of      {}", utc(self.at_unix_secs))?;
        writeln!(f, "attempts   {}", self.attempts.len() + self.attempts_left_out)?;
        self.attempts.iter().try_for_each(|attempt| write_attempt(f, attempt))?;
        if let Some(attempt) = self.standing().or(self.attempts.first()) {
            write_seconds(f, attempt)?;
        }
        match (&self.number, &self.no_number) {
            (Some(number), _) => write_number(f, number, self),
            (None, Some(why)) => writeln!(f, "no number  {} ({})", why.text, why.code),
            (None, None) => Ok(()),
        }
    }
}

/// A rate in bytes a second, and rounded.
fn rate(bytes: u64) -> String {
    format!("{bytes} bytes/s ({})", BytesPerSec::new(bytes))
}

/// An attempt as one line.
fn write_attempt(f: &mut fmt::Formatter<'_>, attempt: &Attempt) -> fmt::Result {
    write!(f, "           {}  {}", utc(attempt.started_unix_secs), attempt.verdict)?;
    if let Some(failure) = &attempt.failure {
        write!(f, ": {} ({})", failure.message.escape_debug(), failure.code())?;
    }
    match attempt.draw {
        DrawRow { counts: false, .. } => f.write_str("; does not count")?,
        DrawRow { bytes_per_sec: None, .. } => f.write_str("; counts, without a value")?,
        DrawRow { bytes_per_sec: Some(bytes), .. } => {
            write!(f, "; counts as {}", BytesPerSec::new(bytes))?;
        }
    }
    f.write_str(match (attempt.stands, attempt.is_of_period) {
        (true, _) => "  <- the lowest of its day, which stands\n",
        (false, true) => "  of the same day\n",
        (false, false) => "\n",
    })
}

/// The seconds of an attempt, and the values computed from them.
fn write_seconds(f: &mut fmt::Formatter<'_>, attempt: &Attempt) -> fmt::Result {
    if attempt.seconds.is_empty() {
        return Ok(());
    }
    let ratio = attempt.ratio_percent;
    writeln!(f, "seconds    of {}, in bytes", utc(attempt.started_unix_secs))?;
    writeln!(f, "           second      measured    background   of it counted         total")?;
    for row in &attempt.seconds {
        writeln!(
            f,
            "           {:>6} {:>13} {:>13} {:>15} {:>13}",
            row.second,
            row.measurement_bytes,
            row.background_reported_bytes,
            row.background_counted_bytes,
            row.total_bytes
        )?;
    }
    let rest = 100 - u16::from(ratio);
    writeln!(
        f,
        "           of background no more is counted than {ratio}/{rest} of what is measured"
    )?;
    if attempt.missing_secs > 0 {
        writeln!(f, "           {} seconds are missing and count as zero", attempt.missing_secs)?;
    }
    let line = |f: &mut fmt::Formatter<'_>, name, bytes: Option<u64>| match bytes {
        Some(bytes) => writeln!(f, "{name:<10} {}", rate(bytes)),
        None => Ok(()),
    };
    line(f, "median", attempt.median_bytes_per_sec)?;
    line(f, "1.05 mean", attempt.most_by_mean_bytes_per_sec)?;
    line(f, "estimate", attempt.estimate_bytes_per_sec)
}

/// Why less than a value counts, and what can change that.
const fn why_held(reason: HoldReason) -> &'static str {
    match reason {
        HoldReason::Rise => {
            "the rise is too great to be believed before a second day in a row confirms it"
        }
        HoldReason::FirstDay => {
            "a new relay has the median number at most, or less because of other relays at its address, \
             until a second day in a row confirms more"
        }
        HoldReason::Arrival => {
            "a relay could choose the time of a measurement soon after it came, which counts for the \
             median number at most; one at another time can count for more"
        }
    }
}

/// The steps from the value to the number.
fn write_number(f: &mut fmt::Formatter<'_>, number: &Number, trace: &Trace) -> fmt::Result {
    writeln!(f, "stands     {}", rate(number.standing_bytes_per_sec))?;
    if let Some(held) = number.held {
        writeln!(
            f,
            "held       at {} kB/s: {}, from {} on",
            held.kilobytes,
            why_held(held.reason),
            utc(held.next_day_unix_secs)
        )?;
    }
    if number.is_of_day_before && number.blank_days == 0 {
        writeln!(
            f,
            "day before {}: a rise as great as this one counts as the lesser of two days in a row",
            rate(number.counted_bytes_per_sec)
        )?;
    }
    if number.blank_days > 0 {
        writeln!(
            f,
            "faded      to {}: {} days since then had no value",
            rate(number.counted_bytes_per_sec),
            number.blank_days
        )?;
    }
    if let Some(share) = number.share {
        writeln!(
            f,
            "together   {} relays of its group stand at {} bytes/s in sum, and have carried {} bytes/s at once: \
             {} is left",
            share.relays,
            share.standing_bytes_per_sec,
            share.together_bytes_per_sec,
            rate(share.bytes_per_sec)
        )?;
    }
    writeln!(f, "rounded    {} kB/s", number.rounded_kilobytes)?;
    match number.bandwidth_avg_bytes_per_sec {
        Some(avg) => writeln!(f, "limit      {} by its operator (bandwidth-avg)", rate(avg))?,
        None => writeln!(f, "limit      no descriptor, so none is known")?,
    }
    if !trace.attempts.is_empty() && !number.is_voted {
        writeln!(
            f,
            "votes      none: the file has too few relays for authorities to vote with it"
        )?;
    }
    writeln!(f, "number     bw={}", number.bw)
}
