//! Attempts to evade the limit, and downloads of a scanner that enters as a client, with real tors.
//!
//! All relays have the limit, except in the rows "no limit", which are today's tor. Results are
//! bytes of links per second, divided by the limit. Weights come from a bandwidth file, by which
//! all three authorities vote, so that a relay has the flag Fast or not.

mod cheat;
mod tors;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ff_flow::tortoise::PAYLOAD;
use ff_lab::console::note;
use ff_lab::{DownloadPlan, Ending, Network, Node, RunningDownloads, relay_statuses};

pub(super) use self::cheat::Cheat;
use self::tors::{
    BRIDGE, CONFLUX, GUARDS, LIMIT, NO_LIMIT_GUARD, ONION, RUNNERS, SCANNER, USER, bridge_address,
    start,
};
use super::lab::{Tor, renew_links};
use super::timers::Timers;
use super::users::{Target, bytes_of_stream};

/// Time for a download to reach its rate and use up its link's burst.
const SETTLE: Duration = Duration::from_secs(3);
/// Duration of a download of sbws, which aims at 6 seconds and keeps those of 5 to 10.
const SCAN: Duration = Duration::from_secs(6);
/// Burst of a link to the scanned relay, in bytes: the default for limits below 300 kB/s.
const SCAN_BURST: u64 = 3_000_000;
/// Expected result of one limited link: the limit, within 5 % in ten seconds.
const ONE: [f64; 2] = [0.95, 1.05];
/// The same in a short run, where bytes in flight count more.
const SHORT_ONE: [f64; 2] = [0.85, 1.1];
/// Expected result of a link without a limit.
const FREE: [f64; 2] = [3.0, f64::INFINITY];
/// Expected result of a scan of a relay of 1 MB/s without a limit: 7 MB in 6 seconds with its own
/// burst, less what stock tor's buckets lose.
const SLOW_FREE: [f64; 2] = [8.0, 12.5];
/// Expected result of a scan with a limit, as a part of burst / time + limit.
const SCANNED: [f64; 2] = [0.8, 1.1];
/// A second.
const SECOND: Duration = Duration::from_secs(1);
/// Time without an event of a stream, after which there are no more.
const NO_MORE_EVENTS: Duration = Duration::from_millis(20);
/// Time in which an onion service must become reachable: its descriptor is not available at once.
const ONION_PATIENCE: Duration = Duration::from_secs(90);

/// Results of the attempts, as far as they were made.
pub(super) struct Tried {
    pub(super) cheats: Vec<Cheat>,
    /// Groups of attempts that failed, with the reason.
    pub(super) errors: Vec<String>,
    /// Mean lateness of timers.
    pub(super) late: Duration,
}

/// Makes all attempts with this tor, which has the limit.
///
/// # Errors
/// If the network does not start.
pub(super) fn run(tor: &Path, is_short: bool, ending: &Ending) -> Result<Tried> {
    note("ff-perf: starting a network to evade the limit in");
    let network = start(tor, ending).context("Failed to start the private network")?;
    let time = Duration::from_secs(if is_short { 4 } else { 10 });
    let mut bench = Bench {
        network: &network,
        timers: Timers::new(ending),
        time,
        one: if is_short { SHORT_ONE } else { ONE },
        each_second: RefCell::default(),
        cheats: Vec::new(),
    };
    let errors = bench.run();
    let late = bench.timers.late();
    Ok(Tried { cheats: bench.cheats, errors, late })
}

/// A network and its results.
struct Bench<'a> {
    network: &'a Network,
    timers: Timers<'a>,
    /// Time for which a rate is measured.
    time: Duration,
    /// Expected result of one limited link.
    one: [f64; 2],
    /// The running attempt's rate in each second, divided by the limit.
    each_second: RefCell<Vec<f64>>,
    cheats: Vec<Cheat>,
}

/// A method of the bench that makes a group of attempts.
type Group<T> = fn(&mut T) -> Result<()>;

impl Bench<'_> {
    /// Makes all attempts, and returns the errors: a group that fails costs its own attempts only.
    fn run(&mut self) -> Vec<String> {
        let groups: [(&str, Group<Self>); 8] = [
            ("several links", Self::several_links),
            ("flags", Self::flags),
            ("shares", Self::shares),
            ("copied keys", Self::copied_keys),
            ("an onion service", Self::onion_service),
            ("a bridge", Self::bridge),
            ("no limit", Self::no_limit),
            ("a scanner", Self::scanner),
        ];
        let mut errors = Vec::new();
        for (name, group) in groups {
            let ended = group(self);
            if self.timers.ending.is_asked() {
                break;
            }
            if let Err(error) = ended {
                let error = format!("{name}: {error:#}");
                note(&format!("ff-perf: {error}"));
                errors.push(error);
            }
        }
        errors
    }

    /// Several guards, several circuits, conflux.
    fn several_links(&mut self) -> Result<()> {
        for guards in [1, 2, 5] {
            let expected = self.one.map(|bound| bound * f64::from(guards));
            let name = format!("one client, guards: {guards}");
            let of = |bench: &Self| {
                let first = (0..guards).map(|guard| bench.download(USER, &guard_name(guard), 1));
                bench.rate(&first.collect::<Result<Vec<_>>>()?)
            };
            self.add("T29", name, expected, of)?;
        }
        self.add("T1", "20 circuits over one guard".to_owned(), self.one, |bench| {
            bench.rate(&[bench.download(USER, &guard_name(0), 20)?])
        })?;
        self.add("", "conflux: two legs over two guards".to_owned(), [1.4, 2.2], |bench| {
            let (source, socks) = (bench.network.source()?, bench.node(CONFLUX).socks_addr());
            let target = Target::Address(source.addr());
            Ok(per_limit(bytes_of_stream(socks, &target, SETTLE, bench.time)?, bench.time))
        })
    }

    /// Clients that run a relay, by its flags in the consensus.
    fn flags(&mut self) -> Result<()> {
        // The next relay may lack Stable too, and its link must not be the bottleneck.
        let next = self.node("middle0").or_addr().ip().to_string();
        self.set(0, "FFIngressExemptAddress", &next)?;
        // Seconds decide which relays have Stable: relays of a new network have no other history.
        let mut kinds = BTreeMap::new();
        for (relay, _) in RUNNERS {
            kinds.entry(self.flags_of(relay)?).or_insert(relay);
        }
        for exempt in ["fast", "stable-fast", "listed", "none"] {
            self.set(0, "FFIngressExempt", exempt)?;
            for (&[fast, stable], &relay) in &kinds {
                let is_exempt = match exempt {
                    "fast" => fast,
                    "stable-fast" => fast && stable,
                    "listed" => true,
                    _ => false,
                };
                let with = |has: bool| if has { "with" } else { "without" };
                let name = format!(
                    "a client's relay {} Fast, {} Stable, FFIngressExempt {exempt}",
                    with(fast),
                    with(stable)
                );
                let expected = if is_exempt { FREE } else { self.one };
                self.add("T28", name, expected, |bench| {
                    bench.rate(&[bench.download(relay, &guard_name(0), 1)?])
                })?;
            }
        }
        Ok(())
    }

    /// A limit for exempt relays, by their weight in the consensus.
    fn shares(&mut self) -> Result<()> {
        self.set(0, "FFIngressExempt", "fast")?;
        for (relay, share, what, expected) in [
            ("least", "0", "just enough for Fast (100 kB/s)", FREE),
            ("least", "100", "just enough for Fast (100 kB/s)", self.one),
            ("some", "100", "300 kB/s by a bandwidth file", self.one.map(|bound| 3.0 * bound)),
            ("liar", "100", "a weight of 10 MB/s, as if authorities believed a false one", FREE),
        ] {
            self.set(0, "FFIngressShare", share)?;
            let name = format!("a client's relay with {what}, FFIngressShare {share}");
            self.add("T28", name, expected, |bench| {
                bench.rate(&[bench.download(relay, &guard_name(0), 1)?])
            })?;
        }
        Ok(())
    }

    /// One relay's keys on two hosts.
    fn copied_keys(&mut self) -> Result<()> {
        self.set(0, "FFIngressExempt", "fast")?;
        self.set(0, "FFIngressShare", "0")?;
        let name = "a second host with a relay's keys, at the same time".to_owned();
        self.add("", name, FREE, |bench| {
            let twin = bench.node("twin");
            twin.stop();
            copy_keys(&bench.node("fast").data_dir().join("keys"), &twin.data_dir().join("keys"))?;
            twin.restart()?;
            twin.wait_for_enough_documents()?;
            let original = bench.download("fast", &guard_name(0), 1)?;
            let times = bench.rate(&[bench.download("twin", &guard_name(0), 1)?]);
            drop(original);
            times
        })
    }

    /// A client that offers bytes as an onion service, to a client whose address is exempt
    /// everywhere.
    fn onion_service(&mut self) -> Result<()> {
        let address = self.node(CONFLUX).socks_addr().ip().to_string();
        for node in self.network.authorities().chain(self.network.relays()) {
            node.control()?.setconf("FFIngressExemptAddress", &address)?;
        }
        let name = "an onion service with one guard, to one exempt client".to_owned();
        self.add("", name, [0.7, self.one[1]], |bench| {
            let port = bench.network.source()?.addr();
            let mut control = bench.node(ONION).control()?;
            let added = control.command(&format!("ADD_ONION NEW:ED25519-V3 Port=80,{port}"))?;
            let service = added.value("ServiceID").context("the service has no name")?;
            let target = Target::Onion(format!("{service}.onion"), 80);
            let socks = bench.node(CONFLUX).socks_addr();
            let began = Instant::now();
            loop {
                match bytes_of_stream(socks, &target, SETTLE, bench.time) {
                    Ok(bytes) => return Ok(per_limit(bytes, bench.time)),
                    Err(error) if began.elapsed() > ONION_PATIENCE => return Err(error),
                    Err(_) => bench.timers.sleep(Duration::from_secs(5))?,
                }
            }
        })
    }

    /// A bridge, whose users share its link; and the same if the guard exempts its address.
    fn bridge(&mut self) -> Result<()> {
        let rate = |bench: &Self| bench.rate(&[bench.download(BRIDGE, &guard_name(1), 20)?]);
        self.add("T27", "a bridge with 20 users, together".to_owned(), self.one, rate)?;
        self.set(1, "FFIngressExemptAddress", &bridge_address().to_string())?;
        self.add("T27", "the same, its address exempt".to_owned(), FREE, rate)
    }

    /// A client of today's tor.
    fn no_limit(&mut self) -> Result<()> {
        self.limit(NO_LIMIT_GUARD, None)?;
        self.add("", "one client, one guard, no limit".to_owned(), FREE, |bench| {
            bench.rate(&[bench.download(USER, &guard_name(NO_LIMIT_GUARD), 1)?])
        })
    }

    /// A download as sbws makes them: it enters as a client at the measured relay. The link is new,
    /// so its bucket is full.
    ///
    /// By arithmetic, any relay that passes the burst in this time gives burst / time + limit: a
    /// relay without a rate passes it at once, one of 1 MB/s in 3 MB / (1 MB/s - limit) = 3.3 s. If
    /// the relay of 1 MB/s gives less, its row without a limit shows whether its own rate is the
    /// cause: that row should have 10 times the limit in each second, and more in the first. If
    /// both are low, the cause may be tor's flow control: a client that is read too slowly on a
    /// busy machine sends an XOFF, and then a rate that the exit keeps to.
    ///
    /// sbws 1.5.2 measures less than this: all its downloads from a relay use one stream. It first
    /// looks for a size that takes 6 s, which uses up the burst, and then takes the mean of the
    /// first five downloads that take 5 to 10 s.
    fn scanner(&mut self) -> Result<()> {
        let by_arithmetic = (SCAN_BURST as f64 / SCAN.as_secs_f64() + LIMIT as f64) / LIMIT as f64;
        let scanned = SCANNED.map(|part| part * by_arithmetic);
        for (guard, what, free) in
            [(3, "a relay without a rate", FREE), (4, "a relay of 1 MB/s", SLOW_FREE)]
        {
            let scan = |bench: &Self| bench.scan(&guard_name(guard));
            let name = format!("a scanner's download through {what}");
            self.limit(guard, None)?;
            self.add("", format!("{name}, no limit"), free, scan)?;
            self.limit(guard, Some((LIMIT, SCAN_BURST)))?;
            let name =
                format!("{name}; burst / time + limit is {by_arithmetic:.1} times the limit");
            self.add("", name, scanned, scan)?;
        }
        Ok(())
    }

    /// The rate of a scanner's download through this relay over a new link.
    fn scan(&self, relay: &str) -> Result<f64> {
        renew_links(self.node(SCANNER), &self.timers)?;
        let client = self.node(SCANNER);
        let mut control = client.control()?;
        control.subscribe(&["STREAM"])?;
        let plan = DownloadPlan::through(&[self.node(relay), self.node("exit0")]);
        let times = self.observe(&[self.network.download(client, &plan)?], SCAN)?;
        let mut stops = 0_u32;
        while let Some(event) = control.next_event(NO_MORE_EVENTS)? {
            stops += u32::from(event.words().nth(1) == Some("XOFF_SENT"));
        }
        if stops > 0 {
            note(&format!("ff-perf: in the next download, the client sent {stops} XOFF"));
        }
        Ok(times)
    }

    /// Runs one attempt and records its result; fails only if the end is asked for.
    fn add(
        &mut self,
        id: &'static str,
        cheat: String,
        [low, high]: [f64; 2],
        measure: impl FnOnce(&Self) -> Result<f64>,
    ) -> Result<()> {
        self.each_second.borrow_mut().clear();
        let found = measure(self);
        self.timers.ending.check()?;
        let reason = found.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        let (times_the_limit, each_second) = (found.ok(), self.each_second.take());
        let cheat = Cheat { id, cheat, times_the_limit, low, high, each_second, reason };
        note(&format!("ff-perf: {}", cheat.line()));
        self.cheats.push(cheat);
        Ok(())
    }

    fn node(&self, name: &str) -> &Node {
        self.network.node(name)
    }

    fn set(&self, guard: u32, option: &str, value: &str) -> Result<()> {
        let name = guard_name(guard);
        let set = self.node(&name).control()?.setconf(option, value);
        set.with_context(|| format!("Failed to set {option} of {name}"))
    }

    /// Sets the limit of a guard's links: bytes per second, and burst in bytes.
    fn limit(&self, guard: u32, limit: Option<(u64, u64)>) -> Result<()> {
        let name = guard_name(guard);
        let set = self.node(&name).control()?.command(&Tor::Ours.limit_command(limit));
        set.map(drop).with_context(|| format!("Failed to set the limit of {name}"))
    }

    /// Whether a relay has Fast and Stable in the consensus.
    fn flags_of(&self, relay: &str) -> Result<[bool; 2]> {
        let fingerprint = self.node(relay).rsa_fingerprint();
        let all = relay_statuses(&self.network.consensus()?);
        let found = all.into_iter().find(|status| status.fingerprint == fingerprint);
        let found = found.with_context(|| format!("{relay} is not in the consensus"))?;
        Ok(["Fast", "Stable"].map(|flag| found.has_flag(flag)))
    }

    /// Downloads through a guard, each stream on its own circuit.
    fn download(&self, client: &str, guard: &str, streams: usize) -> Result<RunningDownloads> {
        let path = [guard, "middle0", "exit0"].map(|name| self.node(name));
        let plan = DownloadPlan::through(&path).streams(streams);
        Ok(self.network.download(self.node(client), &plan)?)
    }

    /// Rate of all downloads together behind their bursts, divided by the limit.
    fn rate(&self, downloads: &[RunningDownloads]) -> Result<f64> {
        self.timers.sleep(SETTLE)?;
        self.observe(downloads, self.time)
    }

    /// Rate of all downloads together for a whole number of seconds, divided by the limit.
    fn observe(&self, downloads: &[RunningDownloads], time: Duration) -> Result<f64> {
        let bytes = || downloads.iter().map(RunningDownloads::bytes).sum::<u64>();
        let (first, began) = (bytes(), Instant::now());
        let mut last = first;
        while began.elapsed() < time {
            self.timers.sleep(SECOND)?;
            let now = bytes();
            self.each_second.borrow_mut().push(per_limit(now - last, SECOND));
            last = now;
        }
        let error = downloads.iter().flat_map(RunningDownloads::errors).next();
        error.map_or_else(
            || Ok(per_limit(last - first, began.elapsed())),
            |error| Err(anyhow::anyhow!("a download ended early: {error}")),
        )
    }
}

fn guard_name(guard: u32) -> String {
    debug_assert!(guard < GUARDS);
    format!("guard{guard}")
}

/// Bytes of streams in a time, converted to bytes per second of the link, divided by the limit.
fn per_limit(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / PAYLOAD / time.as_secs_f64() / LIMIT as f64
}

/// Replaces a relay's keys by those of another.
fn copy_keys(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        fs::copy(&path, to.join(name)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_the_limit_gets_it_once() {
        let payload = 10.0 * LIMIT as f64 * PAYLOAD;
        assert!((payload - 930_000.0).abs() < 1e-6);
        assert!((per_limit(930_000, Duration::from_secs(10)) - 1.0).abs() < 1e-9);
    }
}
