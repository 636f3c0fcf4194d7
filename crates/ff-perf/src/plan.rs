//! Traffic of downloads over months, and precision of their medians, computed from sizes and
//! intervals alone.

use std::fmt::Write as _;

use ff_circuits::interval::median_place;
use ff_circuits::traffic::{self, WIRE, Wire};
use serde::Serialize;

use crate::mix::Mix;
use crate::sizes::size_text;

/// Version of the document.
const SCHEMA: u32 = 1;
/// Seconds per day.
const DAY_SECS: u64 = 86_400;
/// Days of a planned month.
const DAYS: u64 = 30;
/// Round trips over the client's link before the first byte: TCP, TLS 1.3, the link's cells, three
/// hops, stream, request.
const ROUND_TRIPS: f64 = 8.0;

/// Settings of a plan.
#[derive(Clone, Debug)]
pub struct PlanSettings {
    /// Sizes with their weights.
    pub mix: Mix,
    /// Seconds from the start of one download to the start of the next, for each target.
    pub every_secs: u64,
    /// Number of targets.
    pub targets: u64,
    /// Budget of a month in bytes; `None` without a limit.
    pub data_bytes: Option<u64>,
    /// Directory documents per day, in bytes.
    pub directory_bytes: u64,
    /// The client's link, to compute times.
    pub link: Option<PlanLink>,
}

/// A client's link.
#[derive(Clone, Debug, Serialize)]
pub struct PlanLink {
    /// Name of its profile.
    pub name: String,
    /// Rate towards the client, in bytes of IP packets per second; `None` without a limit.
    pub bytes_per_sec: Option<u64>,
    /// Round trip over the link, in seconds.
    pub rtt_secs: f64,
}

/// A plan. Bytes are those of both directions on the client's link.
#[derive(Clone, Debug, Serialize)]
pub struct DownloadPlan {
    /// Version of this document.
    pub schema: u32,
    /// Sizes with their weights.
    pub mix: String,
    /// Seconds from the start of one download to the start of the next, for each target.
    pub every_secs: u64,
    /// Number of targets.
    pub targets: u64,
    /// Days of the planned month.
    pub days_a_month: u64,
    /// Downloads of all targets per month.
    pub downloads_a_month: u64,
    /// Downloads by size.
    pub sizes: Vec<PlanSize>,
    /// Traffic of a day.
    pub day: PlanBytes,
    /// Traffic of a month.
    pub month: PlanBytes,
    /// Comparison with the budget, if there is one.
    pub data: Option<PlanData>,
    /// The client's link, if given.
    pub link: Option<PlanLink>,
    /// Least share of the time that downloads take, for all targets one after the other; `None`
    /// without a link.
    pub busy: Option<f64>,
}

/// Downloads of one size.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Share of all downloads.
    pub of_downloads: f64,
    /// Share of the payload.
    pub of_payload: f64,
    /// Downloads per month for each target.
    pub downloads_a_month: u64,
    /// Percentiles between which the 95 % interval of their median lies; `None` for fewer than six
    /// downloads.
    pub median_percentiles: Option<[f64; 2]>,
    /// Least time of one in seconds: the link's round trips before the first byte, and the bytes at
    /// its rate; `None` without a link.
    pub least_secs: Option<f64>,
}

/// Bytes of a period.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct PlanBytes {
    /// Downloads.
    #[serde(flatten)]
    pub downloads: Wire,
    /// Directory documents.
    pub directory: u64,
    /// Sum.
    pub all: u64,
}

/// A month compared with the budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanData {
    /// Budget in bytes.
    pub bytes: u64,
    /// Share of it that a month needs.
    pub taken: f64,
    /// Downloads of all targets that fit, in the order of the mix: all, or those before the first
    /// that does not fit.
    pub downloads_a_month: u64,
}

impl DownloadPlan {
    /// Computes the plan of these settings.
    #[must_use]
    pub fn of(settings: &PlanSettings) -> Self {
        let PlanSettings { mix, every_secs, targets, directory_bytes, .. } = settings;
        let a_month = DAYS * DAY_SECS / every_secs.max(&1);
        let sizes = mix.sizes().iter().map(|size| settings.size(*size, a_month)).collect();
        let directory = directory_bytes.saturating_mul(DAYS);
        let month = bytes(settings.downloads(a_month).times(*targets), directory);
        let day = part(&month, DAYS);
        Self {
            schema: SCHEMA,
            mix: mix.to_string(),
            every_secs: *every_secs,
            targets: *targets,
            days_a_month: DAYS,
            downloads_a_month: a_month * targets,
            sizes,
            day,
            month,
            data: settings.data_bytes.map(|data| settings.data(data, a_month, &month)),
            link: settings.link.clone(),
            busy: settings.busy(),
        }
    }

    /// The plan as text.
    #[must_use]
    pub fn text(&self) -> String {
        let gb = |bytes: u64| format!("{:.2}", bytes as f64 / 1e9);
        let mut text = format!(
            "{} downloads a month of {} days: {} every {} s for each of {} targets\n\n",
            self.downloads_a_month, self.days_a_month, self.mix, self.every_secs, self.targets
        );
        text.push_str("     size  of downloads  of payload  a month     median, 95% CI   min. s\n");
        for size in &self.sizes {
            let places = size.median_percentiles.map_or_else(
                || "too few".to_owned(),
                |[low, high]| format!("p{low:.1} to p{high:.1}"),
            );
            let secs = size.least_secs.map_or_else(|| "-".to_owned(), |secs| format!("{secs:.2}"));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:>9} {:>12.1}% {:>10.1}% {:>8} {:>18} {:>8}",
                size_text(size.bytes),
                size.of_downloads * 100.0,
                size.of_payload * 100.0,
                size.downloads_a_month,
                places,
                secs
            );
        }
        text.push_str("\nGB        payload   cells  TLS, TCP  directory     all\n");
        for (name, bytes) in [("a day", &self.day), ("a month", &self.month)] {
            let Wire { payload, cells, tls_tcp } = bytes.downloads;
            let _ = writeln!(
                text,
                "{name:<8} {:>8} {:>7} {:>9} {:>10} {:>7}",
                gb(payload),
                gb(cells),
                gb(tls_tcp),
                gb(bytes.directory),
                gb(bytes.all)
            );
        }
        self.notes(&mut text);
        text
    }

    /// Adds lines on the budget and the link.
    fn notes(&self, text: &mut String) {
        if let Some(data) = &self.data {
            let _ = writeln!(
                text,
                "\nA month takes {:.1}% of {:.2} GB: {} of {} downloads fit.",
                data.taken * 100.0,
                data.bytes as f64 / 1e9,
                data.downloads_a_month,
                self.downloads_a_month
            );
        }
        if let (Some(link), Some(busy)) = (&self.link, self.busy) {
            let too_much = if busy > 1.0 {
                ", which is more than there is: downloads will begin late"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "\nOver {} downloads take at least {:.1}% of the time{too_much}.",
                link.name,
                busy * 100.0
            );
        }
    }
}

impl PlanSettings {
    /// Downloads of one size and weight, given the downloads per month.
    fn size(&self, (size, weight): (u64, u32), a_month: u64) -> PlanSize {
        let (round, round_bytes) = (self.mix.round().max(1), self.mix.round_bytes().max(1));
        let weight = u64::from(weight);
        let number = a_month * weight / round;
        let place = usize::try_from(number).ok().and_then(median_place);
        PlanSize {
            bytes: size,
            of_downloads: weight as f64 / round as f64,
            of_payload: (size * weight) as f64 / round_bytes as f64,
            downloads_a_month: number,
            median_percentiles: place.map(|place| {
                let low = 100.0 * place as f64 / (number + 1) as f64;
                [low, 100.0 - low]
            }),
            least_secs: self.link.as_ref().map(|link| link.least_secs(size)),
        }
    }

    /// Traffic of this many downloads: whole rounds, and the same share of another.
    fn downloads(&self, number: u64) -> Wire {
        let round = self.round();
        let length = self.mix.round().max(1);
        let rest = number % length;
        let of_rest = |bytes: u64| bytes.saturating_mul(rest) / length;
        let Wire { payload, cells, tls_tcp } = round;
        let rest =
            Wire { payload: of_rest(payload), cells: of_rest(cells), tls_tcp: of_rest(tls_tcp) };
        round.times(number / length).and(&rest)
    }

    /// Traffic of a round of downloads.
    fn round(&self) -> Wire {
        let of =
            |(size, weight): &(u64, u32)| traffic::of_download(*size).times(u64::from(*weight));
        self.mix.sizes().iter().map(of).fold(Wire::default(), |sum, one| sum.and(&one))
    }

    /// A month compared with the budget.
    fn data(&self, data: u64, a_month: u64, month: &PlanBytes) -> PlanData {
        let wanted = a_month * self.targets;
        let room = data.saturating_sub(month.directory);
        let round = self.round().all().max(1);
        let fit = room / round * self.mix.round();
        // The incomplete round counts in proportion.
        let rest = u128::from(room % round) * u128::from(self.mix.round()) / u128::from(round);
        let fit = fit.saturating_add(u64::try_from(rest).unwrap_or(0));
        PlanData {
            bytes: data,
            taken: month.all as f64 / data.max(1) as f64,
            downloads_a_month: if month.all <= data { wanted } else { fit.min(wanted) },
        }
    }

    /// Least share of the time that downloads take.
    fn busy(&self) -> Option<f64> {
        let link = self.link.as_ref()?;
        let secs = |(size, weight): &(u64, u32)| link.least_secs(*size) * f64::from(*weight);
        let round: f64 = self.mix.sizes().iter().map(secs).sum();
        let mean = round / self.mix.round().max(1) as f64;
        Some(mean * self.targets as f64 / self.every_secs.max(1) as f64)
    }
}

impl PlanLink {
    /// Least time of a download of `size` bytes over the link, in seconds.
    fn least_secs(&self, size: u64) -> f64 {
        let carried =
            self.bytes_per_sec.map_or(0.0, |rate| size as f64 * WIRE / rate.max(1) as f64);
        ROUND_TRIPS * self.rtt_secs + carried
    }
}

fn bytes(downloads: Wire, directory: u64) -> PlanBytes {
    PlanBytes { downloads, directory, all: downloads.all().saturating_add(directory) }
}

/// The bytes divided by `parts`.
fn part(whole: &PlanBytes, parts: u64) -> PlanBytes {
    let Wire { payload, cells, tls_tcp } = whole.downloads;
    let [payload, cells, tls_tcp] = [payload, cells, tls_tcp].map(|bytes| bytes / parts);
    bytes(Wire { payload, cells, tls_tcp }, whole.directory / parts)
}

#[cfg(test)]
mod tests;
