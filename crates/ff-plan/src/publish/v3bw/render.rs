//! Renders a bandwidth file as text.
//!
//! bandwidth-file-spec fixes only the first two lines; the others are ordered for human readers. A
//! relay's line has at most [`MAX_LINE`] characters: keys that explain the number come first, and
//! the last ones are left out if the line is full. sbws's counts that equal others
//! (`relay_recent_measurement_failure_count` is `error_misc`) are not written.

use core::fmt;

use base64ct::{Base64Unpadded, Encoding};
use ff_base::utc::Utc;
use ff_dir::bandwidth::MAX_LINE;
use ff_proto::units::BytesPerSec;

use super::{
    BandwidthFile, Header, MIN_PERCENT_ELIGIBLE, MeasurementFacts, RelayCounts, RelayLine,
    SOFTWARE, UnmeasuredLine,
};

/// Version of bandwidth-file-spec.
const FORMAT_VERSION: &str = "1.5.0";
/// bandwidth-file-spec §2.2: the line between header and relays. tor looks for exactly this.
const TERMINATOR: &str = "=====";
/// The key for the number of measurements begun.
const ATTEMPTS: &str = "relay_recent_measurement_attempt_count";

impl fmt::Display for BandwidthFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.header;
        if let Some((earliest, latest)) = self.span() {
            // bandwidth-file-spec §2.2: the time of the newest result is first, alone on its line.
            writeln!(f, "{}", latest.unix_secs())?;
            writeln!(f, "version={FORMAT_VERSION}")?;
            writeln!(f, "software={SOFTWARE}")?;
            writeln!(f, "software_version={}", header.software_version)?;
            writeln!(f, "file_created={}", header.file_created.hour())?;
            if let Some(started) = header.generator.started {
                writeln!(f, "generator_started={}", started.hour())?;
            }
            writeln!(f, "earliest_bandwidth={earliest}")?;
            writeln!(f, "latest_bandwidth={latest}")?;
        }
        for (key, count) in self.counts().into_iter().chain(header.recent_lines()) {
            if let Some(count) = count {
                writeln!(f, "{key}={count}")?;
            }
        }
        for (key, value) in header.optional_texts() {
            if let Some(value) = value {
                writeln!(f, "{key}={value}")?;
            }
        }
        writeln!(f, "{TERMINATOR}")?;
        let suffix = if self.is_under_minimum() { " under_min_report=1 vote=0" } else { "" };
        self.relays.iter().try_for_each(|relay| writeln!(f, "{}", relay.line(suffix)))?;
        self.unmeasured.iter().try_for_each(|relay| writeln!(f, "{relay}"))
    }
}

impl fmt::Display for RelayLine {
    /// The line without a line end or `vote=0`, as authorities vote with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(""))
    }
}

impl fmt::Display for UnmeasuredLine {
    /// The line without its end. bandwidth-file-spec §2.4.2: "MUST set bw=1 for unmeasured relays".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let master_key = Base64Unpadded::encode_string(&self.ed_identity);
        write!(f, "node_id=${} bw=1", hex::encode_upper(self.rsa_fingerprint))?;
        write!(f, " master_key_ed25519={master_key}")?;
        if let Some(nickname) = &self.nickname {
            write!(f, " nick={nickname}")?;
        }
        write!(f, " time={}{}", self.tried_at.hour(), self.counts)?;
        write!(f, " ff_reason={} unmeasured=1 vote=0", self.reason)
    }
}

impl fmt::Display for RelayCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // sbws's other kinds of errors do not exist here; all of ours are "misc".
        write!(f, " success={} error_misc={}", self.successes, self.failures)?;
        write!(f, " {ATTEMPTS}={}", self.attempts)
    }
}

impl BandwidthFile {
    /// The hours of the oldest and the newest result.
    fn span(&self) -> Option<(Utc, Utc)> {
        let times = || self.relays.iter().map(|relay| relay.measured_at.hour());
        Some((times().min()?, times().max()?))
    }

    /// The header lines that count relays.
    fn counts(&self) -> [(&'static str, Option<u64>); 5] {
        // Rounded down, so that 60 is never in a file that is below the minimum.
        let percent = (self.eligible() * 100).checked_div(self.header.consensus_relays);
        [
            ("number_eligible_relays", Some(self.eligible())),
            ("minimum_number_eligible_relays", Some(self.minimum_eligible())),
            ("minimum_percent_eligible_relays", Some(MIN_PERCENT_ELIGIBLE)),
            ("number_consensus_relays", Some(self.header.consensus_relays)),
            ("percent_eligible_relays", Some(percent.unwrap_or(0))),
        ]
    }
}

impl Header {
    /// The lines about the last days.
    fn recent_lines(&self) -> [(&'static str, Option<u64>); 10] {
        let recent = &self.recent;
        [
            ("recent_consensus_count", recent.consensus),
            ("recent_priority_list_count", recent.priority_list),
            ("recent_priority_relay_count", recent.priority_relay),
            ("recent_measurement_attempt_count", recent.measurement_attempt),
            ("recent_measurement_failure_count", recent.measurement_failure),
            ("recent_measurements_excluded_error_count", recent.excluded_error),
            ("recent_measurements_excluded_old_count", recent.excluded_old),
            // sbws's two other reasons do not exist here: one result is enough, however close it is
            // to others.
            ("recent_measurements_excluded_near_count", Some(0)),
            ("recent_measurements_excluded_few_count", Some(0)),
            ("time_to_report_half_network", self.time_to_report_half_network_secs),
        ]
    }
}

impl RelayLine {
    /// The line without its end: the required keys, as many of the others as fit, the most
    /// important first, then `suffix`.
    fn line(&self, suffix: &str) -> String {
        let mut line = self.required();
        let most = MAX_LINE.saturating_sub(suffix.len());
        for word in self.optional() {
            if line.len() + " ".len() + word.len() <= most {
                line.push(' ');
                line.push_str(&word);
            }
        }
        line + suffix
    }

    /// The number that authorities vote for, the relay, and the time.
    fn required(&self) -> String {
        let master_key = Base64Unpadded::encode_string(&self.ed_identity);
        let nick = self.nickname.as_ref().map(|name| format!(" nick={name}")).unwrap_or_default();
        format!(
            "node_id=${} bw={} master_key_ed25519={master_key}{nick} time={}",
            self.node_id(),
            self.bw_kilobytes(),
            self.measured_at.hour()
        )
    }

    /// All other keys with values, the most important first: those that explain `bw`, then those
    /// from the network's documents, then those of the measurement.
    fn optional(&self) -> Vec<String> {
        let mut words = vec![
            format!("bw_mean={}", self.mean.get()),
            format!("bw_median={}", self.estimate.get()),
        ];
        if let Some(share) = self.share {
            words.push(format!("ff_group_relays={}", share.relays));
            words.push(format!("ff_group_bw={}", share.together_bytes_per_sec));
            words.push(format!("ff_share_bw={}", share.bytes_per_sec));
        }
        words
            .extend(self.held.map(|held| format!("ff_held_from_bw={}", held.instead_of_kilobytes)));
        if self.blank_days > 0 {
            words.push(format!("ff_days_without_value={}", self.blank_days));
            words.push(format!("ff_faded_bw={}", self.number.get()));
        }
        words.push(format!("success={}", self.counts.successes));
        words.push(format!("error_misc={}", self.counts.failures));
        words.extend(self.directory_words());
        words.extend(self.measurement_words());
        words
    }

    /// Keys from the network's documents, and the round trip.
    fn directory_words(&self) -> Vec<String> {
        let directory = &self.directory;
        let bytes = |rate: Option<BytesPerSec>| rate.map(BytesPerSec::get);
        let mut words = numbers([
            ("desc_bw_avg", bytes(directory.bandwidth_avg)),
            ("desc_bw_bur", bytes(directory.bandwidth_burst)),
            ("desc_bw_obs_last", bytes(directory.bandwidth_observed)),
            ("consensus_bandwidth", bytes(directory.consensus_bandwidth)),
            ("rtt", self.round_trip_ms),
        ]);
        words.extend(directory.consensus_is_unmeasured.map(|is_unmeasured| {
            let word = if is_unmeasured { "True" } else { "False" };
            format!("consensus_bandwidth_is_unmeasured={word}")
        }));
        words
    }

    /// Keys of the measurement and its attempts.
    fn measurement_words(&self) -> Vec<String> {
        let MeasurementFacts { verdict, duration_secs, ratio, crypto, cells_checked, sockets } =
            self.measurement;
        let mut words = vec![format!("ff_verdict={verdict}")];
        words.extend(crypto.map(|crypto| format!("ff_crypto={}", crypto.name())));
        words.push(format!("ff_duration_secs={duration_secs}"));
        words.push(format!("ff_ratio={ratio}"));
        words.extend(numbers([
            ("ff_sockets", Some(sockets)),
            (ATTEMPTS, Some(self.counts.attempts)),
            ("relay_in_recent_consensus_count", self.directory.in_recent_consensuses),
            ("relay_recent_priority_list_count", self.directory.in_recent_schedules),
            ("ff_cells_checked", Some(cells_checked)),
        ]));
        words
    }
}

/// Keys with the numbers that are known.
fn numbers<const N: usize>(numbers: [(&str, Option<u64>); N]) -> Vec<String> {
    let word = |(key, number): (&str, Option<u64>)| Some(format!("{key}={}", number?));
    numbers.into_iter().filter_map(word).collect()
}
