//! Writes lines as OnionPerf's analysis files, version 3.1: a file for each day of UTC, and an
//! index.
//!
//! A download belongs to the day on which it began, and its circuit is in the same file, whenever
//! it ended. Readers join the two by the local port of the download and by ends that are less than
//! 150 s apart. Lines have no port, so each download of a file gets its own loopback address and
//! port.
//!
//! Steps of a SOCKS proxy that did not take place are `-1`; the request for the stream is the
//! proxy's request, at 0. Data that OnionPerf's format does not have are only in the lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use ff_base::utc::{DAY_SECS, Utc};
use ff_report::input::pack;
use ff_report::markup::Escaped;
use ff_report::output::{OutputError, write_whole};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::ErrorWords;
use crate::record::{CircuitRecord, Download, PathRelay, SIZES};

/// The number of ports of an address, without 0.
const PORTS: u64 = 65_535;
/// The longest name of a host, in bytes, which limits the length of a file's row in the index.
const MOST_HOST: usize = 64;
/// The suffix of a file's name.
const END: &str = ".onionperf.analysis.json.xz";
/// The index of a folder.
pub const INDEX: &str = "index.xml";
/// xz's preset. For OnionPerf's op-hk5 of 2021-01-01, 2.2 MB, preset 2 gives 153 kB in 0.10 s of
/// CPU time; OnionPerf's preset 6 gives 132 kB in 0.44 s.
pub const PRESET: u32 = 2;

/// The host that made the downloads.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    /// Its name: up to 64 letters, digits and `-`.
    pub host: &'a str,
    /// Its public address; `unknown` without one.
    pub address: Option<&'a str>,
}

/// An analysis file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayFile {
    /// Its name: `YYYY-MM-DD.HOST.onionperf.analysis.json.xz`.
    pub name: String,
    /// The file's content.
    pub bytes: Vec<u8>,
}

/// Why files cannot be made or written.
#[derive(Debug, thiserror::Error)]
pub enum DayError {
    /// A host's name that the format does not allow.
    #[error(
        "{0:?} is not a valid host name in OnionPerf's files: use up to 64 letters, digits and -"
    )]
    Host(String),
    /// A time out of range.
    #[error("download {0} did not begin between the years 1970 and 9999: delete its line")]
    Time(u64),
    /// Compressing or listing failed.
    #[error("cannot create OnionPerf's files")]
    Make(#[from] io::Error),
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] OutputError),
}

/// The files of these lines, in the order of their days; lines without a download are left out.
///
/// # Errors
/// [`DayError`] for a host's name or a time.
pub fn files<'a>(
    lines: impl IntoIterator<Item = &'a CircuitRecord>,
    maker: Maker<'_>,
) -> Result<Vec<DayFile>, DayError> {
    let mut days = BTreeMap::<u64, Vec<&CircuitRecord>>::new();
    for line in lines.into_iter().filter(|line| line.download.is_some()) {
        days.entry(day_of(line).ok_or(DayError::Time(line.number))?).or_default().push(line);
    }
    days.into_iter().map(|(day, lines)| file(day, &lines, maker)).collect()
}

/// The file of these lines for a day of UTC, counted since 1970; lines without a download are left
/// out.
///
/// # Errors
/// [`DayError`] for a host's name.
pub fn file(day: u64, lines: &[&CircuitRecord], maker: Maker<'_>) -> Result<DayFile, DayError> {
    if !is_host(maker.host) {
        return Err(DayError::Host(maker.host.to_owned()));
    }
    let bytes = pack(&analysis(lines, maker).map_err(io::Error::from)?, PRESET)?;
    Ok(DayFile { name: file_name(day, maker.host), bytes })
}

/// Whether the format allows this name of a host.
#[must_use]
pub fn is_host(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MOST_HOST).contains(&name.len()) && name.bytes().all(is_good)
}

/// The name of the file of a day of UTC, counted since 1970.
#[must_use]
pub fn file_name(day: u64, host: &str) -> String {
    let begin = day.saturating_mul(DAY_SECS).min(Utc::LAST_UNIX_SECS);
    let begin = Utc::from_unix_secs(begin).map_or_else(|_| String::new(), Utc::file_stamp);
    // Only the day.
    format!("{}.{host}{END}", begin.get(..10).unwrap_or_default())
}

/// The day and the host in the name of a file; none if it has another form.
#[must_use]
pub fn read_name(name: &str) -> Option<(u64, &str)> {
    let (day, host) = name.strip_suffix(END)?.split_once('.')?;
    let day = Utc::from_file_stamp(&format!("{day}-00-00-00"))?.unix_secs() / DAY_SECS;
    (file_name(day, host) == name).then_some((day, host))
}

/// Writes files to a folder, each atomically, and then the index of all its files.
///
/// # Errors
/// [`DayError::Write`] names the file.
pub fn write(dir: &Path, files: &[DayFile]) -> Result<(), DayError> {
    for file in files {
        write_whole(dir, &file.name, &file.bytes)?;
    }
    write_whole(dir, INDEX, index(dir)?.as_bytes())?;
    Ok(())
}

/// The index of the analysis files in a folder, in OnionPerf's format.
///
/// # Errors
/// When the folder or the time of a file cannot be read.
pub fn index(dir: &Path) -> io::Result<String> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Neither folders with such names, nor broken links.
        let about = std::fs::metadata(entry.path()).ok().filter(std::fs::Metadata::is_file);
        if let Some(about) = about.filter(|_| name.ends_with(END)) {
            files.insert(name, about);
        }
    }
    let mut xml = "<?xml version='1.0' encoding='UTF-8'?>\n<files>\n".to_owned();
    for (name, about) in files {
        let since = about.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        // A file with a later time would otherwise make the index fail.
        let secs = since.as_secs().min(Utc::LAST_UNIX_SECS);
        let time = Utc::from_unix_secs(secs).map_err(io::Error::other)?.to_string();
        let minute = time.get(..16).unwrap_or(&time).replace('T', " ");
        // Writing to a string cannot fail.
        let _ = writeln!(
            xml,
            "  <file name=\"{}\" size=\"{}\" last_modified=\"{minute}\"/>",
            Escaped(&name),
            about.len()
        );
    }
    xml.push_str("</files>\n");
    Ok(xml)
}

/// The day of UTC, counted since 1970, on which a download began, or its circuit if it was not
/// requested; none before 1970 and after 9999, which no file can have.
#[must_use]
pub fn day_of(line: &CircuitRecord) -> Option<u64> {
    let began = u64::try_from(line.asked_unix_us()).ok()? / 1_000_000;
    (began <= Utc::LAST_UNIX_SECS).then_some(began / DAY_SECS)
}

/// The end of a download, in µs since 1970: its last byte, or when it was given up.
fn ended_unix_us(line: &CircuitRecord) -> i64 {
    let last = line.download.as_ref().and_then(|download| download.us);
    let signed = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
    match last {
        Some(us) => line.asked_unix_us().saturating_add(signed(us)),
        None => began_unix_us(line).saturating_add(signed(line.ended_us)),
    }
}

/// The beginning of a circuit, in µs since 1970.
fn began_unix_us(line: &CircuitRecord) -> i64 {
    crate::record::unix_us(line.began_unix_secs)
}

/// Converts microseconds to seconds.
fn secs(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The same for times since 1970.
fn unix_secs(us: i64) -> f64 {
    us as f64 / 1e6
}

/// Records by name, as JSON text: as values they take more memory.
type Records = BTreeMap<String, Box<RawValue>>;

/// The content of a file.
#[derive(Serialize)]
struct Analysis<'a> {
    /// The hosts by name.
    data: BTreeMap<&'a str, Host<'a>>,
    /// The type of the document.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The version of the format.
    version: &'static str,
}

/// A host's measurements.
#[derive(Serialize)]
struct Host<'a> {
    /// Its public address.
    measurement_ip: &'a str,
    /// TGen's records.
    tgen: BTreeMap<&'static str, Records>,
    /// tor's records.
    tor: BTreeMap<&'static str, Records>,
}

/// A file's content.
fn analysis(lines: &[&CircuitRecord], maker: Maker<'_>) -> serde_json::Result<Vec<u8>> {
    let (mut circuits, mut tor, mut tgen) = (Records::new(), Records::new(), Records::new());
    let numbered = lines.iter().zip(1_u64..);
    for (line, number, download) in
        numbered.filter_map(|(line, number)| Some((*line, number, line.download.as_ref()?)))
    {
        let one = Written { line, download, number, words: ErrorWords::of(line) };
        if !line.path.is_empty() {
            circuits.insert(number.to_string(), to_raw_value(&one.circuit())?);
        }
        tor.insert(number.to_string(), to_raw_value(&one.tor_stream())?);
        tgen.insert(one.id(), to_raw_value(&one.tgen_stream(maker.host))?);
    }
    let host = Host {
        measurement_ip: maker.address.unwrap_or("unknown"),
        tgen: BTreeMap::from([("streams", tgen)]),
        tor: BTreeMap::from([("circuits", circuits), ("streams", tor)]),
    };
    let data = BTreeMap::from([(maker.host, host)]);
    serde_json::to_vec(&Analysis { data, kind: "onionperf", version: "3.1" })
}

/// A download to write.
struct Written<'a> {
    /// Its line.
    line: &'a CircuitRecord,
    download: &'a Download,
    /// Its number in the file, which is also that of its circuit, its stream and its port.
    number: u64,
    /// Its error, if it failed.
    words: Option<ErrorWords>,
}

impl Written<'_> {
    /// Its local address and port.
    fn source(&self) -> String {
        // If there are more downloads than ports, the next ones have the next loopback address.
        let before = self.number.saturating_sub(1);
        let address = u32::try_from(before / PORTS).unwrap_or(0);
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST).saturating_add(address));
        format!("{address}:{}", before % PORTS + 1)
    }

    /// The host name and port of its target.
    fn target(&self) -> (&str, &str) {
        let source = self.download.source.as_str();
        let (_, rest) = source.split_once("://").unwrap_or(("", source));
        match rest.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() => (host, port),
            _ if rest.is_empty() => ("unknown", "0"),
            _ => (rest, "80"),
        }
    }

    /// The target with an address, in TGen's form.
    fn remote(&self) -> String {
        let (host, port) = self.target();
        let is_address = host.parse::<IpAddr>().is_ok();
        format!("{host}:{}:{port}", if is_address { host } else { "0.0.0.0" })
    }

    /// Its name in TGen.
    fn id(&self) -> String {
        format!("{}:0:localhost:{}:{}", self.number, self.source(), self.remote())
    }

    /// The time from its request to its end, in µs.
    fn lasted_us(&self) -> u64 {
        let apart = ended_unix_us(self.line).saturating_sub(self.line.asked_unix_us());
        u64::try_from(apart).unwrap_or(0)
    }

    /// Its circuit's record, as made from tor's events.
    fn circuit(&self) -> Value {
        let line = self.line;
        let purpose = if self.download.is_from_onion() { "HS_CLIENT_REND" } else { "GENERAL" };
        let event = |name: &str, us: u64| json!([format!("{purpose}:{name}"), secs(us)]);
        let mut events = vec![event("LAUNCHED", 0)];
        events.extend(line.hops_us.iter().map(|us| event("EXTENDED", *us)));
        let build_us = line.build_us();
        events.extend(build_us.map(|us| event("BUILT", us)));
        events.push(event(if line.was_built() { "CLOSED" } else { "FAILED" }, line.ended_us));
        let began = began_unix_us(line);
        let ended = began.saturating_add(i64::try_from(line.ended_us).unwrap_or(i64::MAX));
        let mut circuit = json!({
            "circuit_id": self.number,
            "elapsed_seconds": events,
            "unix_ts_start": unix_secs(began),
            "unix_ts_end": unix_secs(ended),
            "path": self.path(),
        });
        match (build_us, &self.words) {
            (Some(us), _) => circuit["buildtime_seconds"] = secs(us).into(),
            (None, Some(words)) if !line.was_built() => {
                circuit["failure_reason_local"] = words.local.as_deref().unwrap_or("MISC").into();
            }
            (None, _) => {}
        }
        circuit
    }

    /// The relays of its circuit with the times at which they were reached, in seconds; OnionPerf's
    /// `viz` ends with an error if a download's circuit has none. They are empty if one has no valid
    /// fingerprint.
    ///
    /// The format has no relays without times. A client that chooses its own paths does not tell
    /// them; then all relays have the time by which the last one was reached, from which readers
    /// see that it is not that of a hop.
    fn path(&self) -> Vec<Value> {
        let line = self.line;
        let connected = self.download.at_us.zip(self.download.connected_us);
        let reached = connected.map_or(line.ended_us, |(asked, after)| asked.saturating_add(after));
        let times = line.hops_us.iter().copied();
        let times: Vec<u64> =
            if line.as_client { vec![reached; line.path.len()] } else { times.collect() };
        let hops = line.path.iter().zip(times);
        let hops = hops.map(|(relay, us)| Some(json!([long_name(relay)?, secs(us)])));
        hops.collect::<Option<_>>().unwrap_or_default()
    }

    /// Its stream's record, as made from tor's events.
    fn tor_stream(&self) -> Value {
        let (host, port) = self.target();
        let lasted_us = self.lasted_us();
        let event = |name: &str, us: u64| json!([format!("USER:{name}"), secs(us)]);
        let connected_us = self.download.connected_us;
        let is_failed = self.words.as_ref().is_some_and(|words| words.tgen == "PROXY");
        let mut events = vec![event("NEW", 0), event("SENTCONNECT", 0)];
        events.extend(connected_us.map(|us| event("SUCCEEDED", us)));
        events.push(event(if is_failed { "FAILED" } else { "CLOSED" }, lasted_us));
        let id = (!self.line.path.is_empty()).then(|| self.number.to_string());
        let mut stream = json!({
            "circuit_id": id,
            "elapsed_seconds": events,
            "source": self.source(),
            "stream_id": self.number,
            "target": format!("{host}:{port}"),
            "unix_ts_start": unix_secs(self.line.asked_unix_us()),
            "unix_ts_end": unix_secs(ended_unix_us(self.line)),
        });
        let words = self.words.as_ref();
        if let Some(local) = words.and_then(|words| words.local.as_deref()) {
            stream["failure_reason_local"] = local.into();
        }
        if let Some(remote) = words.and_then(|words| words.remote.as_deref()) {
            stream["failure_reason_remote"] = remote.into();
        }
        stream
    }

    /// Its record, as made from TGen's log.
    fn tgen_stream(&self, host: &str) -> Value {
        let (download, is_whole) = (self.download, self.words.is_none());
        let error = self.words.as_ref().map_or("NONE", |words| words.tgen.as_str());
        let asked = download.asked_bytes.unwrap_or(download.bytes);
        let percent = 100.0 * download.bytes as f64 / asked.max(1) as f64;
        let mut stream = json!({
            "byte_info": {
                "payload-bytes-recv": download.bytes.to_string(),
                "payload-bytes-send": "0",
                "payload-progress-recv": format!("{percent:.2}%"),
                "payload-progress-send": "100.00%",
                "total-bytes-recv": download.bytes.to_string(),
                "total-bytes-send": "0",
            },
            "is_complete": true,
            "is_error": !is_whole,
            "is_success": is_whole,
            "stream_id": self.id(),
            "stream_info": {
                "error": error,
                "id": self.number.to_string(),
                "name": host,
                "peername": if download.answer_us.is_some() { self.target().0 } else { "(null)" },
                "recvsize": asked.to_string(),
                "recvstate": self.receive_state(),
                "sendsize": "0",
                "sendstate": self.send_state(),
                "vertexid": "stream",
            },
            "time_info": self.time_info(),
            "transport_info": {
                "error": if error == "PROXY" { "STATUS" } else { "NONE" },
                "fd": "0",
                "local": format!("localhost:{}", self.source()),
                "proxy": "localhost:127.0.0.1:0",
                "remote": self.remote(),
                "state": if error == "PROXY" { "ERROR" } else { "SUCCESS_OPEN" },
            },
            "unix_ts_start": unix_secs(self.line.asked_unix_us()),
            "unix_ts_end": unix_secs(ended_unix_us(self.line)),
        });
        if is_whole {
            stream["elapsed_seconds"] = self.elapsed();
        }
        stream
    }

    /// The progress of receiving.
    const fn receive_state(&self) -> &'static str {
        let download = self.download;
        match (download.us, download.first_byte_us, download.answer_us) {
            (Some(_), _, _) => "RECV_SUCCESS",
            (None, Some(_), _) => "RECV_PAYLOAD",
            (None, None, Some(_)) => "RECV_HEADER",
            (None, None, None) => "RECV_NONE",
        }
    }

    /// The progress of sending.
    const fn send_state(&self) -> &'static str {
        match (self.download.us, self.download.request_us) {
            (Some(_), _) => "SEND_SUCCESS",
            (None, Some(_)) => "SEND_RESPONSE",
            (None, None) => "SEND_COMMAND",
        }
    }

    /// The times of the steps.
    fn time_info(&self) -> Value {
        let download = self.download;
        let step = |us: Option<u64>| us.map_or("-1".to_owned(), |us| us.to_string());
        let created = self.line.began_us.saturating_add(download.at_us.unwrap_or(0));
        json!({
            "created-ts": created.to_string(),
            "now-ts": created.saturating_add(self.lasted_us()).to_string(),
            "usecs-to-checksum-recv": step(download.us.filter(|_| download.is_checked)),
            "usecs-to-checksum-send": "-1",
            "usecs-to-command": step(download.request_us),
            "usecs-to-first-byte-recv": step(download.first_byte_us),
            "usecs-to-first-byte-send": "-1",
            "usecs-to-last-byte-recv": step(download.us),
            "usecs-to-last-byte-send": "-1",
            "usecs-to-proxy-choice": "-1",
            "usecs-to-proxy-init": "-1",
            "usecs-to-proxy-request": "0",
            "usecs-to-proxy-response": step(download.connected_us),
            "usecs-to-response": step(download.answer_us),
            "usecs-to-socket-connect": "-1",
            "usecs-to-socket-create": "-1",
        })
    }

    /// The times at which each size and tenth had arrived.
    fn elapsed(&self) -> Value {
        let download = self.download;
        let sizes = SIZES.iter().zip(&download.sizes_us);
        let sizes: Map<String, Value> =
            sizes.map(|(size, us)| (size.to_string(), Value::from(secs(*us)))).collect();
        let name = |tenth: usize| format!("{}.{}", tenth / 10, tenth % 10);
        let tenths = download.tenths_us.iter().take(11).enumerate();
        let tenths: Map<String, Value> =
            tenths.map(|(tenth, us)| (name(tenth), Value::from(secs(*us)))).collect();
        json!({
            "payload_bytes_recv": sizes,
            "payload_bytes_send": {},
            "payload_progress_recv": tenths,
            "payload_progress_send": {},
        })
    }
}

/// `$FINGERPRINT~nickname`; none if the relay has no fingerprint.
fn long_name(relay: &PathRelay) -> Option<String> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    if relay.id.len() != 40 || !relay.id.bytes().all(is_digit) {
        return None;
    }
    // dir-spec 2.1.1: a nickname has 1 to 19 letters and digits.
    let is_name = (1..=19).contains(&relay.nick.len())
        && relay.nick.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some(format!("${}~{}", relay.id, if is_name { relay.nick.as_str() } else { "Unnamed" }))
}

#[cfg(test)]
mod tests;
