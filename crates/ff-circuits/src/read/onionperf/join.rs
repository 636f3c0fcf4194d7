//! Joins downloads with tor's streams: the stream with the download's port that ended at the same
//! time.

use std::collections::HashMap;

use super::format::{Download, TorStream};

/// The largest difference between the ends of a download and of tor's stream, in seconds, as in
/// OnionPerf; the same port is used again later.
const MOST_APART_SECS: f64 = 150.0;

/// The end of a download or of a stream.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    /// The local address and port.
    pub(super) source: Option<&'a str>,
    /// The end in seconds since 1970, if known.
    pub(super) secs: Option<f64>,
}

/// The ends of tor's streams.
pub(super) fn ends_of_streams<'a>(streams: &[&'a TorStream]) -> Vec<End<'a>> {
    let end =
        |stream: &&'a TorStream| End { source: stream.source.as_deref(), secs: stream.unix_ts_end };
    streams.iter().map(end).collect()
}

/// The ends of downloads.
pub(super) fn ends_of<'a>(downloads: &[Download<'a>]) -> Vec<End<'a>> {
    let source = |local: &'a str| local.split_once(':').map(|(_, source)| source);
    let end = |one: &Download<'a>| End { source: one.local.and_then(source), secs: one.ended };
    downloads.iter().map(end).collect()
}

/// A stream of one source.
struct Stream {
    /// The end, in seconds since 1970.
    secs: Option<f64>,
    /// Its index in the list.
    place: usize,
    /// Whether a download uses it.
    is_taken: bool,
}

/// For each download the index of its stream, if it has one. Each stream is used once.
pub(super) fn join(streams: &[End<'_>], downloads: &[End<'_>]) -> Vec<Option<usize>> {
    let ended = |secs: Option<f64>| secs.unwrap_or(f64::MAX);
    let mut by_source = HashMap::<&str, Vec<Stream>>::new();
    for (place, &End { source, secs }) in streams.iter().enumerate() {
        if let Some(source) = source {
            by_source.entry(source).or_default().push(Stream { secs, place, is_taken: false });
        }
    }
    for streams in by_source.values_mut() {
        streams.sort_by(|one, other| ended(one.secs).total_cmp(&ended(other.secs)));
    }
    let mut found = vec![None; downloads.len()];
    for place in by_end(downloads) {
        let End { source, secs } = downloads[place];
        let streams = source.and_then(|source| by_source.get_mut(source));
        found[place] = streams.and_then(|streams| stream_of(secs, streams));
    }
    found
}

/// The indices of downloads in the order of their ends; unknown ends come last.
pub(super) fn by_end(downloads: &[End<'_>]) -> Vec<usize> {
    let ended = |place: &usize| downloads[*place].secs.unwrap_or(f64::MAX);
    let mut order: Vec<usize> = (0..downloads.len()).collect();
    order.sort_by(|one, other| ended(one).total_cmp(&ended(other)));
    order
}

/// The unused stream of a download's port that ended at the same time; without a known end, the
/// only stream.
fn stream_of(ended: Option<f64>, streams: &mut [Stream]) -> Option<usize> {
    if let [only] = streams
        && (only.secs.is_none() || ended.is_none())
    {
        return (!std::mem::replace(&mut only.is_taken, true)).then_some(only.place);
    }
    let ended = ended?;
    let next = streams.partition_point(|stream| stream.secs.is_some_and(|end| end <= ended));
    let apart = |&at: &usize| streams.get(at)?.secs.map(|end| (end - ended).abs());
    let near = [next.checked_sub(1), Some(next)].into_iter().flatten();
    let near = near.filter(|at| apart(at).is_some_and(|apart| apart < MOST_APART_SECS));
    let at = near.filter(|&at| !streams[at].is_taken).min_by(|one, other| {
        apart(one).unwrap_or(f64::MAX).total_cmp(&apart(other).unwrap_or(f64::MAX))
    })?;
    streams[at].is_taken = true;
    Some(streams[at].place)
}
