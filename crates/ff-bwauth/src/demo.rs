//! `ff-bwauth demo`: a relay, clients and measurers in this process.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ed25519_dalek::SigningKey;
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_measurer::measurer_id;
use ff_proto::units::BytesPerSec;
use ff_relay_ext::arti::background::Background;
use ff_relay_ext::options::{self, Options};
use serde::Serialize;

use crate::cli::Demo;
use crate::host::RelayHost;
use crate::measure::{self, Plan, Progress};
use crate::outcome::Outcome;
use crate::team;

/// How long clients run before the measurement, and are watched after it.
const CLIENT_SECONDS: u8 = 2;

/// The clients' traffic around the measurement, as the clients see it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientTraffic {
    /// What they send, in bytes per second; the relay sends as much back.
    pub offered_bytes_per_sec: u64,
    /// What came back in the seconds before the measurement.
    pub before_bytes: Vec<u64>,
    /// What came back in the seconds after it.
    pub after_bytes: Vec<u64>,
}

/// Runs the demo.
///
/// # Errors
/// When the relay or its clients cannot be started. A measurement that fails is an outcome.
pub async fn run(
    demo: &Demo,
    mut watch: impl FnMut(Progress<'_>),
) -> Result<(Outcome, Option<ClientTraffic>)> {
    let key = SigningKey::from_bytes(&rand::random());
    watch(Progress::Step("starting the relay"));
    let cores = team::cores();
    let (relay_core, measurer_cores) = match cores.split_first() {
        Some((first, rest)) if !rest.is_empty() => (Some(*first), rest.to_vec()),
        _ => (None, cores),
    };
    let relay = RelayHost::start(policy(&key, demo)?, demo.limit.0, relay_core)?;
    let mut clients = Clients::start(demo.background.0, &relay, &mut watch).await?;

    let plan = Plan {
        target: TargetAddr { addr: relay.addr(), ed_identity: relay.keys().ed_identity() },
        address_text: relay.addr().to_string(),
        key,
        params: team::params(&demo.common),
        team: team::share_out(&demo.common, demo.measurers, &measurer_cores),
        limit: demo.limit.0,
        is_local: true,
        link: LinkOptions::default(),
    };
    let cpu_before = relay.cpu_time();
    let mut outcome = measure::measure(&plan, &mut watch).await;
    outcome.cpu.target = Some((relay.cpu_time() - cpu_before).as_secs_f64());
    outcome.target.nickname = Some("ffdemo".to_owned());
    if let Some(clients) = &mut clients {
        watch(Progress::Step("watching the clients for two seconds"));
        clients.traffic.after_bytes = clients.watch().await;
    }
    Ok((outcome, clients.map(|clients| clients.traffic)))
}

/// The relay's policy: this coordinator, this ratio.
fn policy(key: &SigningKey, demo: &Demo) -> Result<ff_proto::session::target::Policy> {
    let mut options = Options::allowing(vec![measurer_id(key)]);
    let percent = demo.common.ratio.percent().to_string();
    options.set(options::BACKGROUND_PERCENT, &percent).context("Failed to set the ratio")?;
    let duration = demo.common.duration.max(10).to_string();
    options.set(options::MAX_DURATION, &duration).context("Failed to set the duration")?;
    Ok(options.resolve(&BTreeMap::new()))
}

/// Clients that load the relay.
struct Clients {
    /// The traffic.
    background: Background,
    /// What was seen of it.
    traffic: ClientTraffic,
}

impl Clients {
    /// Starts them, if there are to be any, and watches them for a while.
    async fn start(
        rate: Option<BytesPerSec>,
        relay: &RelayHost,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<Option<Self>> {
        let Some(rate) = rate else { return Ok(None) };
        watch(Progress::Step("starting clients"));
        let (addr, identity) = (relay.addr(), relay.keys().ed_identity());
        let start = move || Background::start(addr, identity, rate.get());
        let background = tokio::task::spawn_blocking(start)
            .await
            .context("The clients' thread ended")?
            .context("Failed to start the clients")?;
        let offered_bytes_per_sec = rate.get();
        let traffic = ClientTraffic { offered_bytes_per_sec, ..ClientTraffic::default() };
        let mut clients = Self { background, traffic };
        clients.traffic.before_bytes = clients.watch().await;
        Ok(Some(clients))
    }

    /// Bytes that come back in each of the next seconds.
    async fn watch(&self) -> Vec<u64> {
        let mut seconds = Vec::new();
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.tick().await;
        let mut before = self.background.echoed_bytes();
        for _ in 0..CLIENT_SECONDS {
            ticks.tick().await;
            let now = self.background.echoed_bytes();
            seconds.push(now - before);
            before = now;
        }
        seconds
    }
}
