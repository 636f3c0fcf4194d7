//! A reader of bandwidth files that follows tor's `bwauth.c` rule by rule, but returns an error
//! where tor logs a warning: our files must cause none.

use std::collections::HashMap;

use ff_dir::bandwidth::{Reading, Severity};

/// tor's `MAX_MEASUREMENT_AGE`.
const MAX_AGE_SECS: u64 = 3 * 24 * 60 * 60;
/// tor's `MAX_BW_FILE_HEADER_COUNT_IN_VOTE`: more headers do not reach the vote.
const MAX_HEADERS: usize = 50;

/// An authority's data from a file.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The first line.
    pub(crate) timestamp: u64,
    /// The headers that go into the vote.
    pub(crate) headers: HashMap<String, String>,
    /// The votes in kilobytes per second, by fingerprint.
    pub(crate) votes: HashMap<String, u32>,
    /// Keys and values of all relay lines, including those without a vote.
    pub(crate) lines: HashMap<String, HashMap<String, String>>,
}

/// `dirserv_read_measured_bandwidths`.
pub(crate) fn read(text: &str, now: u64) -> Result<Read, String> {
    let mut rest = text;
    let mut read = Read { timestamp: timestamp(next_line(&mut rest)?, now)?, ..Read::default() };
    let mut is_after_headers = false;
    while !rest.is_empty() {
        let line = next_line(&mut rest)?;
        if line == "=====" && !is_after_headers {
            is_after_headers = true;
        } else if is_after_headers {
            read_relay(line, &mut read)?;
        } else {
            let (key, value) = key_value(line)?;
            if value.contains(' ') || read.headers.len() + 1 >= MAX_HEADERS {
                return Err(format!("header does not reach the vote: {line:?}"));
            }
            if read.headers.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("header twice: {line:?}"));
            }
        }
    }
    if !is_after_headers {
        return Err("no terminator".to_owned());
    }
    // `ff-bwauth v3bw check` must find the same; it also reports what authorities accept
    // nevertheless.
    let reading = Reading::of(text.as_bytes(), now);
    if reading.worst() > Some(Severity::Against) {
        return Err(format!("{:?}", reading.findings));
    }
    Ok(read)
}

/// A line without its terminator, which is required (`tor_getline` and the check after it).
fn next_line<'a>(rest: &mut &'a str) -> Result<&'a str, String> {
    let (line, after) = rest.split_once('\n').ok_or("Incomplete line in bandwidth file")?;
    *rest = after;
    if line.is_empty() || !line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(format!("strange line {line:?}"));
    }
    Ok(line)
}

/// The timestamp in the first line; an old one is refused.
fn timestamp(line: &str, now: u64) -> Result<u64, String> {
    let time: u64 = line.parse().map_err(|_| "Non-integer time in bandwidth file")?;
    if now.saturating_sub(time) > MAX_AGE_SECS {
        return Err("Bandwidth measurement file stale".to_owned());
    }
    Ok(time)
}

/// `measured_bw_line_parse` and `measured_bw_line_apply`.
fn read_relay(line: &str, read: &mut Read) -> Result<(), String> {
    let mut keys = HashMap::new();
    for word in line.split(' ') {
        let (key, value) = key_value(word)?;
        if keys.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("Double {key}= in bandwidth file line: {line:?}"));
        }
    }
    let node_id = keys.get("node_id").and_then(|id| id.strip_prefix('$'));
    let node_id = node_id.ok_or("Incomplete line in bandwidth file")?.to_owned();
    if node_id.len() != 40 || !node_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("Invalid node_id in bandwidth file line: {line:?}"));
    }
    let bw = keys.get("bw").and_then(|bw| bw.parse::<u32>().ok()).filter(|bw| *bw > 0);
    let bw = bw.ok_or_else(|| format!("Invalid bandwidth in bandwidth file line: {line:?}"))?;
    if keys.get("vote").is_none_or(|vote| vote != "0") {
        read.votes.insert(node_id.clone(), bw);
    }
    match read.lines.insert(node_id, keys) {
        None => Ok(()),
        Some(_) => Err(format!("relay twice: {line:?}")),
    }
}

/// `string_is_key_value`: neither side of the first `=` is empty.
fn key_value(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .ok_or_else(|| format!("{word:?} is no key and value"))
}
