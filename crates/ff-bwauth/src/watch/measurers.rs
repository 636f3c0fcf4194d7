//! The capacities of a coordinator's measurers, configured and measured, as shown by `ff-bwauth
//! measurers`.

use std::fmt;

use ff_base::utc::Utc;
use ff_plan::period::carried::Carried;
use ff_proto::units::BytesPerSec;
use ff_store::MeasurerRow;
use serde::Serialize;

use super::status::MeasuredStatus;
use super::text::{ago, plain, rate};

/// A measurer of the config with its row in the store.
#[derive(Clone, Debug, Serialize)]
pub struct MeasurerShown {
    /// Its name in the config.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its identity, in base64.
    pub identity: String,
    /// The configured capacity of its network.
    pub stated_bytes_per_sec: u64,
    /// a_i: its usable capacity.
    pub capacity_bytes_per_sec: u64,
    /// What limits the usable capacity.
    pub bounded_by: Bound,
    /// The measured capacity of its network, if it was measured.
    pub measured: Option<MeasuredStatus>,
    /// Whether it had another address when it was measured.
    pub has_moved: bool,
    /// Why the last exchange did not measure it, if so.
    pub not_measured: Option<String>,
}

/// What limits a measurer's usable capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The measured capacity of its network.
    Measured,
    /// The configured capacity, which its network carries.
    Stated,
    /// The configured capacity, of which the other measurers could test only a part.
    StatedInPartTried,
    /// The configured capacity, which has not been measured.
    StatedAlone,
}

impl Bound {
    /// The limit for this measured and this configured capacity.
    fn of(measured: Option<&Carried>, stated: BytesPerSec) -> Self {
        match measured {
            None => Self::StatedAlone,
            Some(carried) if Carried::capacity(Some(carried), stated) < stated => Self::Measured,
            Some(carried) if carried.tested < stated => Self::StatedInPartTried,
            Some(_) => Self::Stated,
        }
    }

    /// The limit in words.
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
    /// The measurer of the config with its row in the store, if it has one.
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

    /// Writes some lines about the measurer.
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

    /// A measurer with a configured capacity of 100 Mbit/s, measured and tested at these rates.
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
