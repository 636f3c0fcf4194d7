//! The command `check`.

mod inputs;
mod outcome;
mod probing;
mod report;
mod turns;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use ff_circuits::check::plan::Gaps;
use ff_circuits::check::{Probe, judge};
use ff_circuits::network::{self, CircuitNetwork};
use ff_lab::SourceServer;

use super::client::{Chosen, Job, check_internet, say, with_client};
use crate::cli::check::CheckArgs;
use crate::client::Client;
use crate::schedule::{PER_GUARD, interval};
use crate::signals::Signals;
use crate::store::{CircuitRunOptions, Store};
use crate::target::StreamTarget;
use inputs::Told;
use probing::{Drawer, Probing, any_arrived};

/// Default mean of seconds between downloads: in private networks, and on the Internet.
const GAPS_SECS: [f64; 2] = [1.0, 60.0];
/// Least pause between downloads on the Internet.
const PUBLIC_LEAST_GAP_SECS: f64 = 10.0;
/// Least ratio of the mean pause to the least pause; otherwise the next download's time would be
/// predictable.
const MEAN_OF_LEAST: f64 = 2.0;
/// Most downloads at once on the Internet.
const PUBLIC_AT_ONCE: u8 = 4;

/// Downloads through relays and judges them, by the downloads so far if they ended early.
///
/// # Errors
/// If something cannot be read or written, the downloads ended early, or none arrived.
pub(super) fn run(args: &CheckArgs) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let dir = network::directory(&args.network);
    let network = CircuitNetwork::read(&dir, now)?;
    let is_public = check_internet(&args.network, &network, args.public)?;
    let gaps = gaps(args.gap, is_public)?;
    if is_public && args.at_once > PUBLIC_AT_ONCE {
        bail!("--at-once {}: on the Internet at most {PUBLIC_AT_ONCE} (ETHICS.md)", args.at_once);
    }
    if args.target.as_ref().is_some_and(StreamTarget::is_onion) {
        bail!("check needs a --target that exits reach: no exit leads to an onion service");
    }
    if is_public && args.target.is_none() {
        bail!("check needs a --target on the Internet: the URL of a server of your own");
    }
    let told = Told::read(args, &network)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    // Must live as long as the downloads.
    let source = if args.target.is_none() { Some(SourceServer::start()?) } else { None };
    let Some(target) = args.target.clone().or_else(|| source.as_ref().map(StreamTarget::of_source))
    else {
        bail!("no target: give --target");
    };
    let drawer = Drawer::new(&network, &told.checked, target.port, seed)?;
    let job = Download { args, network: &network, told: &told, target, gaps, drawer };
    let (kind, state) = (args.client, None);
    let chosen = Chosen { kind, as_client: false, state, torrc: &[], dir: &dir, network: &network };
    let (probes, ended) = with_client(chosen, job)?;
    if !any_arrived(&probes) {
        return ended.map(|()| ExitCode::SUCCESS);
    }
    let known: Vec<_> = told.checked.iter().filter_map(|&relay| told.of(relay)).collect();
    let findings = judge(&known, &probes, args.most);
    let code = report::print(args, &network, &told, &findings, seed, ended.is_err())?;
    ended.map(|()| code)
}

/// Times between downloads. In a private network the least is the one for circuits at the same
/// guard.
fn gaps(mean_secs: Option<f64>, is_public: bool) -> Result<Gaps> {
    let gap_secs = mean_secs.unwrap_or(GAPS_SECS[usize::from(is_public)]);
    let public = Duration::from_secs_f64(PUBLIC_LEAST_GAP_SECS);
    let least = if is_public { public } else { interval(PER_GUARD) };
    let least_mean_secs = least.as_secs_f64() * MEAN_OF_LEAST;
    if is_public && gap_secs < least_mean_secs {
        bail!("--gap {gap_secs}: on the Internet at least {least_mean_secs} s (ETHICS.md)");
    }
    if gap_secs < least_mean_secs {
        say(&format!(
            "--gap {gap_secs}: downloads start at least {} s apart, so relays may predict their starts",
            least.as_secs_f64()
        ));
    }
    Ok(Gaps { mean: Duration::from_secs_f64(gap_secs), least })
}

struct Download<'a> {
    args: &'a CheckArgs,
    network: &'a CircuitNetwork,
    /// Relays to check, and known facts.
    told: &'a Told,
    target: StreamTarget,
    gaps: Gaps,
    drawer: Drawer,
}

impl Job for Download<'_> {
    /// Results of the downloads, and why they ended early, if they did.
    type Done = (Vec<Probe>, Result<()>);

    async fn run<C: Client>(self, client: C, signals: Signals) -> Result<Self::Done> {
        let Self { args, network, told, target, gaps, drawer } = self;
        let options = CircuitRunOptions {
            client: args.client.into(),
            seed: drawer.seed(),
            path_file: None,
            rules: Some("tor".to_owned()),
            arms_sha256: Vec::new(),
            rtt: 0,
            latency: None,
            rtt_pause_ms: 0,
            ttfb: 0,
            download_bytes: 0,
            download_share: 1.0,
            download_mix: None,
            download_secs: Some(args.download_time),
            setting: None,
            pace: None,
        };
        let mut store = Store::open(&args.out, &options, false)?.store;
        let probing = Probing::new(args, client, network, told, target, gaps);
        let mut probes = Vec::new();
        let ended = probing.run(drawer, &mut store, signals, &mut probes).await;
        store.finish()?;
        Ok((probes, ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_download_comes_soon_after_the_one_before() {
        for (mean, is_public, expected) in [
            (None, true, Some((60.0, 10.0))),
            (Some(20.0), true, Some((20.0, 10.0))),
            (Some(19.9), true, None),
            (None, false, Some((1.0, 0.5))),
            (Some(0.01), false, Some((0.01, 0.5))),
        ] {
            let gaps = gaps(mean, is_public).ok();
            let secs = gaps.map(|gaps| (gaps.mean.as_secs_f64(), gaps.least.as_secs_f64()));
            assert_eq!(secs, expected, "{mean:?} {is_public}");
        }
    }
}
