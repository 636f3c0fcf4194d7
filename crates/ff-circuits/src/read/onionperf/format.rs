//! The parts of analysis files that are read, and the data of a download in all versions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::values::{Few, Filters, Scalar, few};
use crate::record::SIZES;

/// The largest number of records of a kind: a day of OnionPerf has about 1,000. Each takes about
/// 100 bytes of memory, even if it is shorter in the file.
const MOST_RECORDS: usize = 4_000_000;

/// An analysis file.
#[derive(Deserialize)]
pub(super) struct Analysis {
    /// `onionperf`.
    #[serde(rename = "type")]
    pub(super) kind: Option<Scalar>,
    /// Its version: text, or a number in old files.
    pub(super) version: Option<Scalar>,
    /// The measurements of each host.
    pub(super) data: Option<Records>,
    /// The filters of `onionperf filter`.
    #[serde(default)]
    pub(super) filters: Filters,
}

/// Records by name, each of which is parsed separately, so that an invalid one does not affect
/// others.
#[derive(Default)]
pub(super) struct Records {
    /// By name; of records with the same name the last, which OnionPerf itself reads.
    pub(super) by_name: BTreeMap<String, Box<RawValue>>,
    /// The names of records that later ones replace.
    pub(super) replaced: Vec<String>,
}

/// A part of a host's record that is parsed separately too.
pub(super) type Part = Option<Box<RawValue>>;

/// The measurements of a host.
#[derive(Default, Deserialize)]
pub(super) struct Host {
    pub(super) tor: Part,
    /// The records of the downloads' generator: [`Tgen`].
    pub(super) tgen: Part,
}

#[derive(Default, Deserialize)]
pub(super) struct Tor {
    /// Circuits by number.
    pub(super) circuits: Part,
    /// Streams by number.
    pub(super) streams: Part,
}

#[derive(Deserialize)]
pub(super) struct TorCircuit {
    /// The time to build it, in seconds.
    pub(super) buildtime_seconds: Option<f64>,
    /// Its events with their times.
    #[serde(default, deserialize_with = "few")]
    pub(super) elapsed_seconds: Option<Vec<(String, f64)>>,
    /// Why it failed, according to this tor.
    pub(super) failure_reason_local: Option<String>,
    /// Relays with their nicknames, and the time when each was reached.
    #[serde(default, deserialize_with = "few")]
    pub(super) path: Option<Vec<(String, f64)>>,
    /// When it began.
    pub(super) unix_ts_start: Option<f64>,
    /// The guards of tor at that time.
    #[serde(default, deserialize_with = "few")]
    pub(super) current_guards: Option<Vec<Guard>>,
    /// Whether `onionperf filter` has marked it.
    #[serde(default)]
    pub(super) filtered_out: bool,
}

/// A guard of tor.
#[derive(Deserialize)]
pub(super) struct Guard {
    pub(super) fingerprint: String,
    pub(super) country: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct TorStream {
    #[serde(default, deserialize_with = "text_or_number")]
    pub(super) circuit_id: Option<String>,
    /// The local address and port.
    pub(super) source: Option<String>,
    /// When it ended.
    pub(super) unix_ts_end: Option<f64>,
    /// Why it failed, according to this tor.
    pub(super) failure_reason_local: Option<String>,
    /// Why it failed, according to the exit.
    pub(super) failure_reason_remote: Option<String>,
}

/// Downloads.
#[derive(Default, Deserialize)]
pub(super) struct Tgen {
    /// From version 3.0 on.
    pub(super) streams: Part,
    /// Up to version 2.0.
    pub(super) transfers: Part,
}

impl<'de> Deserialize<'de> for Records {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordsVisitor)
    }
}

/// Reads [`Records`].
struct RecordsVisitor;

impl<'de> Visitor<'de> for RecordsVisitor {
    type Value = Records;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Records, A::Error> {
        let mut records = Records::default();
        while let Some((name, record)) = map.next_entry::<String, Box<RawValue>>()? {
            if records.by_name.len() + records.replaced.len() == MOST_RECORDS {
                return Err(A::Error::custom(format!("it has more than {MOST_RECORDS} records")));
            }
            match records.by_name.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(record);
                }
                Entry::Occupied(mut place) => {
                    records.replaced.push(place.key().clone());
                    place.insert(record);
                }
            }
        }
        Ok(records)
    }
}

/// Values by name.
type Values = Few<Scalar>;
/// Times in seconds by name.
type Marks = Few<f64>;

/// A download.
#[derive(Deserialize)]
pub(super) struct Transfer {
    byte_info: Option<Values>,
    /// Times in µs since its beginning.
    time_info: Option<Values>,
    /// Its path through proxies.
    transport_info: Option<Values>,
    /// Its settings, and its end.
    stream_info: Option<Values>,
    /// The times when some sizes and tenths had arrived.
    elapsed_seconds: Option<Elapsed>,
    /// When it began.
    unix_ts_start: Option<f64>,
    /// When it ended.
    unix_ts_end: Option<f64>,
    /// Whether all of it arrived.
    #[serde(default)]
    is_success: bool,
}

/// Times in seconds since a download's beginning.
#[derive(Deserialize)]
struct Elapsed {
    /// By bytes.
    payload_bytes_recv: Option<Marks>,
    /// By fraction.
    payload_progress_recv: Option<Marks>,
}

/// A download of versions 1.0 and 2.0.
#[derive(Deserialize)]
pub(super) struct OldTransfer {
    /// Times in seconds since its beginning; 0 for steps that it did not reach.
    elapsed_seconds: Option<OldElapsed>,
    /// The local end.
    endpoint_local: Option<Scalar>,
    /// The remote end.
    endpoint_remote: Option<Scalar>,
    /// The error.
    error_code: Option<Scalar>,
    /// Its size.
    filesize_bytes: Option<Scalar>,
    /// Received bytes, including headers.
    total_bytes_read: Option<Scalar>,
    /// When it began.
    unix_ts_start: Option<f64>,
    /// When it ended.
    unix_ts_end: Option<f64>,
    /// Whether all of it arrived.
    #[serde(default)]
    is_success: bool,
}

/// Times in seconds since the beginning of a download of versions 1.0 and 2.0.
#[derive(Deserialize)]
struct OldElapsed {
    /// The request for the stream to tor.
    proxy_request: Option<Scalar>,
    /// tor's answer.
    proxy_response: Option<Scalar>,
    /// The request to the target.
    command: Option<Scalar>,
    /// The target's answer.
    response: Option<Scalar>,
    /// The first byte of payload.
    first_byte: Option<Scalar>,
    /// The last byte of payload.
    last_byte: Option<Scalar>,
    /// By bytes.
    payload_bytes: Option<Values>,
    /// By fraction.
    payload_progress: Option<Values>,
}

/// A download of any version. Times are in µs since its beginning; none for steps that it did not
/// reach.
pub(super) struct Download<'a> {
    /// The local end: `localhost:127.0.0.1:36176`, a name, and then tor's source address.
    pub(super) local: Option<&'a str>,
    /// The remote end: a name, an address and a port.
    pub(super) remote: Option<&'a str>,
    /// TGen's name of its failure, if it failed.
    pub(super) error: Option<&'a str>,
    /// When it began, in seconds since 1970.
    pub(super) began: Option<f64>,
    /// When it ended, in seconds since 1970.
    pub(super) ended: Option<f64>,
    /// Whether all of it arrived.
    pub(super) is_whole: bool,
    /// The requested bytes of payload.
    pub(super) asked_bytes: Option<u64>,
    /// The bytes of payload that arrived.
    pub(super) bytes: Option<u64>,
    /// The request for the stream to tor.
    pub(super) asked_us: Option<u64>,
    /// tor's message that it was connected.
    pub(super) connected_us: Option<u64>,
    /// The sending of the request.
    pub(super) request_us: Option<u64>,
    /// The arrival of the answer.
    pub(super) answer_us: Option<u64>,
    /// The arrival of the first byte of payload.
    pub(super) first_us: Option<u64>,
    /// The arrival of the last byte of payload.
    pub(super) last_us: Option<u64>,
    /// The arrival of each of [`SIZES`].
    pub(super) sizes_us: Vec<u64>,
    /// The arrival of 0, 10, 20, … 100 %.
    pub(super) tenths_us: Vec<u64>,
}

impl Transfer {
    /// Its data.
    pub(super) fn download(&self) -> Download<'_> {
        let of = |from: &Option<Values>, key: &str| from.as_ref()?.get(key)?.number().map(whole);
        let at = |key: &str| of(&self.time_info, key);
        let marks = self.elapsed_seconds.as_ref();
        let sizes = marks.and_then(|marks| marks.payload_bytes_recv.as_ref());
        let tenths = marks.and_then(|marks| marks.payload_progress_recv.as_ref());
        Download {
            local: text(self.transport_info.as_ref(), "local"),
            remote: text(self.transport_info.as_ref(), "remote"),
            error: text(self.stream_info.as_ref(), "error").filter(|error| *error != "NONE"),
            began: self.unix_ts_start,
            ended: self.unix_ts_end,
            is_whole: self.is_success,
            asked_bytes: of(&self.stream_info, "recvsize"),
            bytes: of(&self.byte_info, "payload-bytes-recv"),
            asked_us: at("usecs-to-proxy-request"),
            connected_us: at("usecs-to-proxy-response"),
            request_us: at("usecs-to-command"),
            answer_us: at("usecs-to-response"),
            first_us: at("usecs-to-first-byte-recv"),
            last_us: at("usecs-to-last-byte-recv"),
            sizes_us: sizes_us(|key| sizes?.get(key).copied()),
            tenths_us: tenths_us(|key| tenths?.get(key).copied()),
        }
    }
}

impl OldTransfer {
    /// Its data.
    pub(super) fn download(&self) -> Download<'_> {
        let elapsed = self.elapsed_seconds.as_ref();
        let at = |of: fn(&OldElapsed) -> &Option<Scalar>| {
            of(elapsed?).as_ref()?.number().filter(|secs| *secs > 0.0).map(us)
        };
        let mark = |marks: Option<&Values>, key: &str| marks?.get(key)?.number();
        let sizes = elapsed.and_then(|elapsed| elapsed.payload_bytes.as_ref());
        let tenths = elapsed.and_then(|elapsed| elapsed.payload_progress.as_ref());
        let asked = self.filesize_bytes.as_ref().and_then(Scalar::number).map(whole);
        let read = self.total_bytes_read.as_ref().and_then(Scalar::number).map(whole);
        // For a download that was cut off, only the size with headers is known.
        let cut = read.zip(asked).map(|(read, asked)| read.min(asked));
        Download {
            local: self.endpoint_local.as_ref().and_then(Scalar::text),
            remote: self.endpoint_remote.as_ref().and_then(Scalar::text),
            error: self.error_code.as_ref().and_then(Scalar::text).filter(|code| *code != "NONE"),
            began: self.unix_ts_start,
            ended: self.unix_ts_end,
            is_whole: self.is_success,
            asked_bytes: asked,
            bytes: if self.is_success { asked } else { cut },
            asked_us: at(|elapsed| &elapsed.proxy_request),
            connected_us: at(|elapsed| &elapsed.proxy_response),
            request_us: at(|elapsed| &elapsed.command),
            answer_us: at(|elapsed| &elapsed.response),
            first_us: at(|elapsed| &elapsed.first_byte),
            last_us: at(|elapsed| &elapsed.last_byte),
            sizes_us: sizes_us(|key| mark(sizes, key)),
            tenths_us: tenths_us(|key| mark(tenths, key)),
        }
    }
}

impl Download<'_> {
    /// Time to first byte from the request for the stream in ms, and throughput from the first byte
    /// to the last in Mbit/s, if it is whole.
    pub(super) fn times(&self) -> (Option<f64>, Option<f64>) {
        let apart = |from: Option<u64>, to: Option<u64>| {
            to?.checked_sub(from?).filter(|us| *us > 0 && self.is_whole)
        };
        let ttfb = apart(self.asked_us, self.first_us).map(|us| us as f64 / 1e3);
        let taken = apart(self.first_us, self.last_us);
        let rate = self.bytes.zip(taken).map(|(bytes, us)| bytes as f64 * 8.0 / us as f64);
        (ttfb, rate.filter(|rate| *rate > 0.0))
    }
}

/// The times of [`SIZES`] up to the first unknown one.
fn sizes_us(secs: impl Fn(&str) -> Option<f64>) -> Vec<u64> {
    let times = SIZES.iter().map_while(|size| secs(&size.to_string()).filter(|secs| *secs >= 0.0));
    times.map(us).collect()
}

/// The times of 0, 10, 20, … 100 % up to the first unknown one.
fn tenths_us(secs: impl Fn(&str) -> Option<f64>) -> Vec<u64> {
    let name = |tenth: u32| format!("{}.{}", tenth / 10, tenth % 10);
    let times = (0..=10).map_while(|tenth| secs(&name(tenth)).filter(|secs| *secs >= 0.0));
    times.map(us).collect()
}

/// A text among values.
fn text<'a>(values: Option<&'a Values>, key: &str) -> Option<&'a str> {
    values?.get(key)?.text()
}

/// Converts seconds to µs.
fn us(secs: f64) -> u64 {
    whole(secs * 1e6)
}

/// The nearest integer; a number out of range becomes the nearest bound.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
pub(crate) fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The fingerprint in `$FINGERPRINT~nickname`.
pub(crate) fn fingerprint(relay: &str) -> &str {
    let relay = relay.strip_prefix('$').unwrap_or(relay);
    relay.split(['~', '=']).next().unwrap_or(relay)
}

/// Reads text, or a number as text.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Scalar::deserialize(deserializer)? {
        Scalar::Text(text) => Some(text),
        // Tables write integers with a fraction of zero if one of their column is missing.
        Scalar::Number(number) => {
            let whole = number.as_f64().filter(|one| !number.is_u64() && one.fract() == 0.0);
            Some(whole.map_or_else(|| number.to_string(), |one| format!("{one:.0}")))
        }
        Scalar::Other => None,
    })
}
