//! Reads Torperf's files (`.tpf`, 2009 to 2020), which OnionPerf wrote as well: a line of
//! `KEY=VALUE`s for each download.
//!
//! Times are in seconds since 1970, with two decimals; 0 for steps that a download did not reach.
//! For a failed download a file only has whether it timed out.

use std::collections::HashMap;

use super::downloads::{DownloadRecord, DownloadRecords, failure_of, line_of};
use super::{ReadError, is_time, onionperf};
use crate::record::{CircuitRecord, Download, Failure, PathRelay, SIZES, unix_us};

/// The beginning of the line with the file's type.
const TYPE: &str = "@type ";

/// Adds the downloads of a file.
///
/// # Errors
/// [`ReadError::Content`] names the file, if it is of another version or has no download at all.
pub fn read(file: &str, bytes: &[u8], into: &mut DownloadRecords) -> Result<(), ReadError> {
    let fail = |reason: String| ReadError::Content { file: file.to_owned(), reason };
    let text = String::from_utf8_lossy(bytes);
    let (from, mut why) = (into.all.len(), "it is empty".to_owned());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if let Some(kind) = line.strip_prefix(TYPE) {
            if !kind.starts_with("torperf 1.") {
                let line = index + 1;
                return Err(fail(format!("line {line}: its type is {kind:?}, not torperf 1.x")));
            }
            continue;
        }
        let values = Values::of(line);
        let number = into.all.len() as u64;
        match values.circuit(number) {
            Ok(circuit) => {
                let host = into.host(values.text("SOURCE").unwrap_or("unknown"));
                let id = format!("{}:{}", values.text("SOURCE").unwrap_or_default(), index + 1);
                into.all.push(DownloadRecord { host, id, guards: None, circuit });
            }
            Err(reason) => {
                why = format!("line {}: {reason}", index + 1);
                into.damaged.add(|| format!("{file}, {why}"));
            }
        }
    }
    if into.all.len() == from {
        return Err(fail(format!("it has no download of Torperf: {why}")));
    }
    Ok(())
}

/// The values of a line.
struct Values<'a>(HashMap<&'a str, &'a str>);

impl<'a> Values<'a> {
    /// The values of this line.
    fn of(line: &'a str) -> Self {
        Self(line.split_ascii_whitespace().filter_map(|pair| pair.split_once('=')).collect())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    fn number(&self, key: &str) -> Result<f64, String> {
        let text = self.text(key).ok_or_else(|| format!("{key} is missing"))?;
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| format!("{key} is {text:?}, which is not a number of at least 0"))
    }

    /// A number that may be missing; none if it is 0.
    fn optional(&self, key: &str) -> Result<Option<f64>, String> {
        let is_there = self.text(key).is_some();
        Ok(if is_there { Some(self.number(key)?).filter(|value| *value > 0.0) } else { None })
    }

    /// A time in µs since the download's beginning; none if the download did not reach that step.
    fn since(&self, start_us: i64, key: &str) -> Result<Option<u64>, String> {
        let us = |secs: f64| u64::try_from(unix_us(secs).saturating_sub(start_us)).unwrap_or(0);
        Ok(self.optional(key)?.map(us))
    }

    /// The times of these keys up to the first missing one.
    fn marks(&self, start_us: i64, keys: impl Iterator<Item = String>) -> Result<Vec<u64>, String> {
        keys.map_while(|key| self.since(start_us, &key).transpose()).collect()
    }

    /// The line.
    fn circuit(&self, number: u64) -> Result<CircuitRecord, String> {
        let start = self.number("START")?;
        if !is_time(start) {
            return Err(format!("START is {start}, which is after the year 9999"));
        }
        let launch = self.optional("LAUNCH")?.filter(|secs| is_time(*secs));
        let (start_us, began_unix_secs) = (unix_us(start), launch.unwrap_or(start));
        let apart = start_us.saturating_sub(unix_us(began_unix_secs));
        let (at, before) = (u64::try_from(apart).ok(), u64::try_from(-apart).ok());
        let download = Download {
            at_us: at,
            before_us: before.filter(|us| *us > 0),
            ..self.download(start_us)?
        };
        let ended = download.us.or(download.tenths_us.last().copied()).or(download.first_byte_us);
        let failure = download.us.is_none().then(|| self.failure(&download));
        Ok(CircuitRecord {
            path: self.path(),
            hops_us: self.hops_us()?,
            failure,
            ended_us: at.unwrap_or(0).saturating_add(ended.unwrap_or(0)),
            ..line_of(number, began_unix_secs, download)
        })
    }

    fn download(&self, start_us: i64) -> Result<Download, String> {
        let [asked, read] = [self.number("FILESIZE")?, self.optional("READBYTES")?.unwrap_or(0.0)]
            .map(onionperf::whole);
        let at = |key: &str| self.since(start_us, key);
        let is_whole = self.text("DIDTIMEOUT") != Some("1") && read >= asked;
        let percent = |tenth: u32| format!("DATAPERC{}", 10 * tenth);
        let tenths_us = self.marks(start_us, (0..=10).map(percent))?;
        Ok(Download {
            // The bytes read include the header.
            bytes: read.min(asked),
            asked_bytes: Some(asked),
            source: self.text("ENDPOINTREMOTE").map(onionperf::target_of).unwrap_or_default(),
            connected_us: at("RESPONSE")?,
            request_us: at("DATAREQUEST")?,
            answer_us: at("DATARESPONSE")?,
            first_byte_us: tenths_us.first().copied().or(at("DATARESPONSE")?),
            sizes_us: self.marks(start_us, SIZES.iter().map(|size| format!("PARTIAL{size}")))?,
            tenths_us,
            us: at("DATACOMPLETE")?.filter(|_| is_whole),
            ..Download::default()
        })
    }

    /// Why it is not whole, with OnionPerf's names.
    fn failure(&self, download: &Download) -> Failure {
        let is_timeout = self.text("DIDTIMEOUT") == Some("1");
        let reason = if is_timeout { "TGEN/TIMEOUT" } else { "TGEN/READ" };
        failure_of(download.first_byte_us.is_some(), reason.to_owned())
    }

    /// The relays of its circuit.
    fn path(&self) -> Vec<PathRelay> {
        let relay =
            |id: &str| PathRelay { id: id.trim_start_matches('$').to_owned(), nick: String::new() };
        self.text("PATH").into_iter().flat_map(|path| path.split(',')).map(relay).collect()
    }

    /// The times when each hop of its circuit was built.
    fn hops_us(&self) -> Result<Vec<u64>, String> {
        let times = self.text("BUILDTIMES").into_iter().flat_map(|times| times.split(','));
        let us = |secs: &str| {
            let secs = secs.parse::<f64>().ok().filter(|secs| secs.is_finite() && *secs >= 0.0);
            secs.map(|secs| onionperf::whole(secs * 1e6))
        };
        let all: Option<Vec<u64>> = times.map(us).collect();
        all.ok_or_else(|| "BUILDTIMES are not numbers of at least 0".to_owned())
    }
}
