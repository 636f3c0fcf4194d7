//! What a coordinator's measurers carry, as they are stated and measured: what `ff-bwauth
//! measurers` shows.

use std::fmt;

use ff_base::utc::Utc;
use ff_plan::period::carried::Carried;
use ff_proto::units::BytesPerSec;
use ff_store::MeasurerRow;
use serde::Serialize;

use super::page::text::{ago, plain, rate};
use super::status::MeasuredStatus;

/// A measurer of a config, with what the store knows of it.
#[derive(Clone, Debug, Serialize)]
pub struct MeasurerShown {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Its identity, in base64.
    pub identity: String,
    /// What its operator says that it carries.
    pub stated_bytes_per_sec: u64,
    /// a_i: what it counts for.
    pub capacity_bytes_per_sec: u64,
    /// What that is bounded by.
    pub bounded_by: Bound,
    /// What its network was measured to carry, if it was.
    pub measured: Option<MeasuredStatus>,
    /// Whether it was at another address then.
    pub has_moved: bool,
    /// Why it was not measured when that was last tried.
    pub not_measured: Option<String>,
}

/// What bounds what a measurer counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// What its network was measured to carry.
    Measured,
    /// What is stated, and its network carries it.
    Stated,
    /// What is stated, and only a part of it could be tried: the others have no more for it.
    StatedInPartTried,
    /// What is stated, and it has not been measured.
    StatedAlone,
}

impl Bound {
    /// Of a measurer that was measured so and states so much.
    fn of(measured: Option<&Carried>, stated: BytesPerSec) -> Self {
        match measured {
            None => Self::StatedAlone,
            Some(carried) if Carried::capacity(Some(carried), stated) < stated => Self::Measured,
            Some(carried) if carried.tested < stated => Self::StatedInPartTried,
            Some(_) => Self::Stated,
        }
    }

    /// For people.
    fn text(self) -> &'static str {
        match self {
            Self::Measured => {
                "the measured capacity; lower the configured one, here and in other coordinators' configs"
            }
            Self::Stated => "the configured capacity, which its network carries",
            Self::StatedInPartTried => {
                "the configured capacity; the other measurers have no more to test it with, or its operator allows no more"
            }
            Self::StatedAlone => "the configured capacity; it has not been measured",
        }
    }
}

impl MeasurerShown {
    /// A measurer of the config, of which the store has this row.
    #[must_use]
    pub fn new(
        (name, address, identity): (&str, &str, String),
        stated: BytesPerSec,
        row: Option<&MeasurerRow>,
    ) -> Self {
        let measured = row.and_then(|row| row.measured.as_ref());
        let carried = measured.map(|measured| &measured.carried);
        Self {
            name: name.to_owned(),
            address: address.to_owned(),
            identity,
            stated_bytes_per_sec: stated.get(),
            capacity_bytes_per_sec: Carried::capacity(carried, stated).get(),
            bounded_by: Bound::of(carried, stated),
            measured: measured.map(MeasuredStatus::from),
            has_moved: measured.is_some_and(|measured| measured.address != address),
            not_measured: row.and_then(|row| row.not_measured.clone()),
        }
    }

    /// Some lines about it.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn write(&self, f: &mut dyn fmt::Write, now_unix_secs: u64) -> fmt::Result {
        let (name, address) = (plain(&self.name), plain(&self.address));
        writeln!(f, "{name}  {address}  {}", self.identity)?;
        let counts = rate(self.capacity_bytes_per_sec);
        writeln!(f, "    used       {counts}: {}", self.bounded_by.text())?;
        writeln!(f, "    configured {}", rate(self.stated_bytes_per_sec))?;
        if let Some(measured) = &self.measured {
            writeln!(
                f,
                "    measured   {} (sent {}, received {}, {:.1} % lost, tested with {})",
                rate(measured.bytes_per_sec),
                rate(measured.sent_bytes_per_sec),
                rate(measured.received_bytes_per_sec),
                f64::from(measured.loss_permille) / 10.0,
                rate(measured.tested_bytes_per_sec),
            )?;
            let at = Utc::from_unix_secs(measured.unix_secs);
            let at = at.map_or_else(|_| "-".to_owned(), |at| at.to_string().replace('T', " "));
            let moved = if self.has_moved { ", at another address" } else { "" };
            writeln!(
                f,
                "    when       {at} UTC, {}{moved}",
                ago(now_unix_secs, measured.unix_secs)
            )?;
        }
        match &self.not_measured {
            Some(reason) => writeln!(f, "    last time  not measured: {}", plain(reason)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_store::Measured;

    use super::*;

    /// What is shown of a measurer of which 100 Mbit/s are stated, measured so and tested with so
    /// much.
    fn shown(measured: Option<(u64, u64)>) -> (MeasurerShown, String) {
        let [stated, sent, received] = [100, 90, 80].map(BytesPerSec::from_mbit);
        let measured = measured.map(|(rate, tested)| Measured {
            carried: Carried {
                rate: BytesPerSec::from_mbit(rate),
                sent,
                received,
                tested: BytesPerSec::from_mbit(tested),
                loss_permille: 17,
            },
            address: "192.0.2.1:9230".to_owned(),
            unix_secs: 1_800_000_000,
        });
        let row = MeasurerRow {
            identity: [1; 32],
            name: "m1".to_owned(),
            stated: Some(stated),
            not_measured: measured.is_none().then(|| "it did not\u{202e} answer".to_owned()),
            measured,
            disputes: 0,
        };
        let who = ("m1", "192.0.2.2:9230", "AAAA".to_owned());
        let shown = MeasurerShown::new(who, stated, Some(&row));
        let mut text = String::new();
        shown.write(&mut text, 1_800_000_060).expect("text grows");
        (shown, text)
    }

    #[test]
    fn it_is_said_what_bounds_a_measurer() {
        for (measured, bound, mbit) in [
            (None, Bound::StatedAlone, 100),
            (Some((60, 100)), Bound::Measured, 60),
            (Some((97, 100)), Bound::Stated, 100),
            (Some((49, 50)), Bound::StatedInPartTried, 100),
            (Some((30, 50)), Bound::Measured, 30),
        ] {
            let (shown, text) = shown(measured);
            assert_eq!(shown.bounded_by, bound);
            assert_eq!(shown.capacity_bytes_per_sec, BytesPerSec::from_mbit(mbit).get());
            assert!(
                text.contains(&format!("used       {mbit}.00 Mbit/s: {}", bound.text())),
                "{text}"
            );
        }
        let (_, text) = shown(Some((60, 100)));
        for part in ["1.7 % lost", "2027-01-15 08:00:00 UTC", "at another address"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let (_, text) = shown(None);
        assert!(text.contains("not measured: it did not") && !text.contains('\u{202e}'), "{text}");
    }
}
