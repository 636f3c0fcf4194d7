//! `demo --network`: a whole network on this host, with the same coordinators as in a deployment.
//!
//! ```text
//!   relays of Arti's crates, each at an address of its own ──▶ consensus, descriptors: files
//!                 ▲ ▲ ▲                                              │
//!      three measurers, gRPC ◀── two coordinators, each a Daemon ◀───┘
//! ```
//!
//! There are no directory authorities: this module writes the consensus that coordinators read,
//! with the published numbers as weights, like a real consensus.

mod documents;
mod relays;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ed25519_dalek::SigningKey;
use ff_base::utc::now_unix_secs;
use ff_measurer::console::{note, print};
use ff_measurer::service::admission::AdmissionLimits;
use ff_measurer::service::server::{Coordinator, Service, Settings};
use ff_measurer::{Host, key, measurer_id};
use ff_proto::ids::Ed25519Id;
use ff_store::{Seconds, Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::documents::Documents;
use self::relays::Relay;
use crate::cli::DemoArgs;
use crate::config::Config;
use crate::daemon::status::Status;
use crate::daemon::{self, Action, Daemon, Handle};

/// The number of measurers of each coordinator.
const TEAMS: [usize; 2] = [2, 1];
/// The configured capacity of each measurer.
const CAPACITY: &str = "400Mbit";
/// Seconds of a slot in addition to the measurement.
const SLOT_MARGIN_SECS: u32 = 3;
/// Interval between two bandwidth files, in seconds.
const PUBLISH_SECS: u64 = 10;
/// The address of a coordinator's page before the system has chosen a port.
const ANY_PORT: &str = "127.0.0.1:0";
/// How long to wait for the file with the last result: it may be refused, and a busy machine writes
/// it late.
const LAST_FILE: Duration = Duration::from_secs(3 * PUBLISH_SECS);

/// A coordinator of the network.
struct Member {
    /// The directory of its files.
    dir: PathBuf,
    /// The handle of its daemon.
    handle: Handle,
}

/// Runs the network until Ctrl-C, or with `--once` for one period.
pub(crate) fn run(options: &DemoArgs) -> Result<ExitCode> {
    let dir = &options.out;
    fs::create_dir_all(dir)
        .with_context(|| format!("Failed to make the directory {}", dir.display()))?;
    let runtime = daemon::runtime()?;
    let result = runtime.block_on(Network::start(options, dir));
    let network = result?;
    let code = runtime.block_on(network.watch(options));
    runtime.shutdown_timeout(Duration::from_secs(2));
    code
}

/// All running parts.
struct Network {
    /// The relays.
    relays: Vec<Relay>,
    /// Their documents.
    documents: Documents,
    /// The coordinators.
    members: Vec<Member>,
    /// Measurers and daemons.
    tasks: JoinSet<Result<()>>,
}

impl Network {
    /// Starts everything.
    async fn start(options: &DemoArgs, dir: &Path) -> Result<Self> {
        let keys: Vec<SigningKey> =
            TEAMS.iter().map(|_| SigningKey::from_bytes(&rand::random())).collect();
        let ids: Vec<Ed25519Id> = keys.iter().map(measurer_id).collect();
        let relays = relays::start(options, &ids)?;
        let documents = Documents::new(dir, &relays)?;
        documents.write(&[])?;
        let secret = rand::random::<[u8; 32]>();
        let mut network = Self { relays, documents, members: Vec::new(), tasks: JoinSet::new() };
        for (number, (key, &count)) in keys.iter().zip(&TEAMS).enumerate() {
            let dir = dir.join(format!("bwauth-{}", number + 1));
            let others = (0..TEAMS.len()).filter(|&other| other != number);
            let others = others.map(|other| (ids[other], TEAMS[other])).collect::<Vec<_>>();
            let mut measurers = Vec::new();
            for _ in 0..count {
                measurers.push(network.start_measurer(ids[number]).await?);
            }
            prepare(&dir, key, &secret)?;
            let text = config(options, &network.documents, &measurers, &others);
            let path = dir.join("bwauth.toml");
            write(&path, &text)?;
            let config = Config::load(&path)?;
            let (daemon, handle) = Daemon::new(&config)?;
            let (addr, page) = daemon::page(&config, &handle).await?;
            if let Some(addr) = addr {
                // `status` and `doctor` take the page's address from the config.
                write(&path, &text.replace(ANY_PORT, &addr.to_string()))?;
                note(&format!(
                    "bwauth-{}: http://{addr}/, or ff-bwauth status --config {}",
                    number + 1,
                    path.display()
                ));
            }
            network.tasks.spawn(async move {
                page.await;
                Ok(())
            });
            network.tasks.spawn(daemon.run_until_told());
            network.members.push(Member { dir, handle });
        }
        Ok(network)
    }

    /// Starts a measurer for this coordinator; returns its address and its key.
    async fn start_measurer(&mut self, coordinator: Ed25519Id) -> Result<(SocketAddr, Ed25519Id)> {
        let key = SigningKey::from_bytes(&rand::random());
        let id = measurer_id(&key);
        let settings = Settings {
            coordinators: vec![Coordinator { name: "demo".to_owned(), id: coordinator }],
            limits: AdmissionLimits { private_targets: true, ..AdmissionLimits::default() },
        };
        let service = Service::new(Host::new(key, Vec::new()), settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("Failed to listen")?;
        let addr = listener.local_addr().context("Failed to listen")?;
        self.tasks.spawn(service.serve(listener));
        Ok((addr, id))
    }

    /// Shows the progress, and ends on request or after a period.
    async fn watch(mut self, options: &DemoArgs) -> Result<ExitCode> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        let (mut first, mut over, mut shown) = (None, None, String::new());
        let mut of_whole: Vec<Option<Arc<Status>>> = vec![None; self.members.len()];
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = tokio::signal::ctrl_c() => break,
                Some(ended) = self.tasks.join_next() => {
                    ended.context("A part of the demo ended")??;
                    anyhow::bail!("a part of the demo ended");
                }
            }
            let statuses = self.statuses();
            show(&statuses, &mut shown);
            let number = statuses.iter().flatten().filter_map(|one| one.period.as_ref());
            let number = number.map(|period| period.number).max();
            // The demo started within a period, so that one is not whole.
            first = first.or(number);
            for (kept, status) in of_whole.iter_mut().zip(statuses) {
                let period = status.as_ref().and_then(|status| status.period.as_ref());
                if period.map(|period| period.number) == first.map(|first| first + 1) {
                    *kept = status;
                }
            }
            self.take_over()?;
            let is_over = number.zip(first).is_some_and(|(now, first)| now > first + 1);
            if options.once && (is_over || of_whole.iter().all(is_done)) {
                let (since, unix_secs) =
                    over.get_or_insert_with(|| (Instant::now(), now_unix_secs()));
                let has_published = |status: &Option<Arc<Status>>| {
                    published_unix_secs(status).is_some_and(|written| written > *unix_secs)
                };
                if self.statuses().iter().all(has_published) || since.elapsed() > LAST_FILE {
                    break;
                }
            }
        }
        let whole = first.map(|first| first + 1);
        let statuses = if options.once { of_whole } else { self.statuses() };
        self.end(options, whole, statuses).await
    }

    /// The coordinators' statuses.
    fn statuses(&self) -> Vec<Option<Arc<Status>>> {
        self.members.iter().map(|member| member.handle.status.borrow().clone()).collect()
    }

    /// Writes a new consensus with the numbers that the coordinators have published.
    fn take_over(&self) -> Result<()> {
        let files = self.members.iter().map(|member| member.dir.join("v3bw/latest.v3bw"));
        self.documents.write(&files.collect::<Vec<_>>())
    }

    /// Ends everything and prints the results; with `--once` the statuses are the whole period's
    /// last.
    async fn end(
        mut self,
        options: &DemoArgs,
        period: Option<u64>,
        statuses: Vec<Option<Arc<Status>>>,
    ) -> Result<ExitCode> {
        for member in &self.members {
            // The daemon may have ended already.
            let _ = member.handle.actions.send(Action::End);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        let results = self.results(period)?;
        let all = results.iter().all(|relay| relay.attempts > 0);
        if options.json {
            let status: Vec<&Status> = statuses.iter().flatten().map(AsRef::as_ref).collect();
            let json = serde_json::json!({ "period": period, "relays": results, "status": status });
            print(&format!("{json}\n"))?;
        } else {
            print(&table(&results))?;
        }
        Ok(if all || !options.once { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The result of each relay in a period, by each coordinator.
    fn results(&self, period: Option<u64>) -> Result<Vec<RelayResult>> {
        let mut results = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            let store = Store::open_read_only(&member.dir.join("state/store.sqlite"))?;
            for relay in &self.relays {
                let mut result = RelayResult {
                    nickname: relay.nickname.clone(),
                    coordinator: number + 1,
                    attempts: 0,
                    limit_bytes_per_sec: relay.limit.get(),
                    estimate_bytes_per_sec: None,
                    verdict: None,
                };
                let name = relay.host.keys().rsa_identity();
                store.attempts::<StoreError>(0..u64::MAX, Seconds::Without, |attempt| {
                    let is_of_period = attempt.slot.map(|(period, _)| period) == period;
                    if is_of_period && attempt.fingerprint == name.as_bytes() {
                        result.attempts += 1;
                        result.estimate_bytes_per_sec =
                            attempt.outcome.estimate.map(|one| one.get());
                        result.verdict = Some(attempt.outcome.verdict_name());
                    }
                    Ok(())
                })?;
                results.push(result);
            }
        }
        Ok(results)
    }
}

/// Whether a coordinator has nothing left to measure in the period of this status.
fn is_done(status: &Option<Arc<Status>>) -> bool {
    let Some(status) = status else { return false };
    status.period.as_ref().is_some_and(|period| {
        let coverage = &period.coverage;
        coverage.relays > 0 && coverage.done >= coverage.planned && status.running.is_empty()
    })
}

/// When a coordinator wrote its last bandwidth file, in seconds since 1970.
fn published_unix_secs(status: &Option<Arc<Status>>) -> Option<u64> {
    status.as_ref()?.published.as_ref()?.unix_secs
}

/// Writes a config.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("Failed to write {}", path.display()))
}

/// Prints the coordinators' state if it has changed.
fn show(statuses: &[Option<Arc<Status>>], shown: &mut String) {
    let one = |(number, status): (usize, &Option<Arc<Status>>)| {
        let number = number + 1;
        let Some(status) = status else { return format!("bwauth-{number}: starting") };
        let Some(period) = &status.period else {
            return format!("bwauth-{number}: waiting for a consensus");
        };
        let coverage = &period.coverage;
        format!(
            "bwauth-{number}: period {} slot {}/{}, {} of {} relays done, {} being measured",
            period.number,
            period.now_slot.min(period.slots),
            period.slots,
            coverage.relays_done,
            coverage.relays,
            status.running.len()
        )
    };
    let text = statuses.iter().enumerate().map(one).collect::<Vec<_>>().join("; ");
    if text != *shown {
        note(&text);
        *shown = text;
    }
}

/// A coordinator's result for a relay.
#[derive(serde::Serialize)]
struct RelayResult {
    /// The relay.
    nickname: String,
    /// The coordinator, from 1.
    coordinator: usize,
    /// Number of measurements in the period.
    attempts: u64,
    /// The relay's rate limit.
    limit_bytes_per_sec: u64,
    /// The last estimate.
    estimate_bytes_per_sec: Option<u64>,
    /// The last verdict.
    verdict: Option<&'static str>,
}

/// The results as a table.
fn table(results: &[RelayResult]) -> String {
    let mbit = |bytes: u64| {
        let tenths = bytes * 8 / 100_000;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let mut text = String::from("relay     coordinator  estimate     limit  Mbit/s, verdict\n");
    for result in results {
        let RelayResult { nickname, coordinator, limit_bytes_per_sec, .. } = result;
        let estimate = result.estimate_bytes_per_sec.map_or("-".to_owned(), mbit);
        let limit = mbit(*limit_bytes_per_sec);
        let verdict = result.verdict.unwrap_or("not measured");
        text.push_str(&format!(
            "{nickname:<9} {coordinator:>11} {estimate:>9} {limit:>9}  {verdict}\n"
        ));
    }
    text
}

/// Makes a coordinator's directory with its key and the secret.
fn prepare(dir: &Path, key: &SigningKey, secret: &[u8; 32]) -> Result<()> {
    use ff_base::files::{Readers, write_atomically};
    std::fs::create_dir_all(dir.join("state"))
        .with_context(|| format!("Failed to make {}", dir.display()))?;
    let text = key::secret_text(key);
    write_atomically(&dir.join("coordinator.key"), text.as_bytes(), Readers::Owner)?;
    write_atomically(&dir.join("schedule.secret"), secret, Readers::Owner)?;
    Ok(())
}

/// A coordinator's config.
fn config(
    options: &DemoArgs,
    documents: &Documents,
    measurers: &[(SocketAddr, Ed25519Id)],
    others: &[(Ed25519Id, usize)],
) -> String {
    let DemoArgs { period_secs, duration, .. } = options;
    let slot_secs = u32::from(*duration) + SLOT_MARGIN_SECS;
    let (consensus, descriptors) = documents.paths();
    let mut text = format!(
        "key = \"coordinator.key\"\nstate_dir = \"state\"\npublish_dir = \"v3bw\"\n\
         [watch]\nlisten = \"{ANY_PORT}\"\n[network]\nconsensus = {consensus:?}\ndescriptors = [{descriptors:?}]\n\
         [period]\nsecret = \"schedule.secret\"\nlength_secs = {period_secs}\nmeasure_secs = {duration}\n\
         slot_secs = {slot_secs}\nconsensus_lead_secs = 5\nrefresh_secs = 2\n\
         [exchange]\nby_itself = false\n[publish]\nevery_secs = {PUBLISH_SECS}\nmax_total_factor = 100.0\n\
         max_relay_factor = 100.0\n"
    );
    for (number, (addr, id)) in measurers.iter().enumerate() {
        let identity = key::identity_text(id);
        text.push_str(&format!(
            "[[measurer]]\nname = \"m{}\"\naddress = \"{addr}\"\nidentity = \"{identity}\"\n\
             capacity = \"{CAPACITY}\"\n",
            number + 1
        ));
    }
    for (number, (id, count)) in others.iter().enumerate() {
        let identity = key::identity_text(id);
        let team = vec![CAPACITY; *count];
        text.push_str(&format!(
            "[[coordinator]]\nname = \"other-{}\"\nidentity = \"{identity}\"\nteam = {team:?}\n",
            number + 1
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_estimates_and_known_limits() {
        let one = RelayResult {
            nickname: "demo2".to_owned(),
            coordinator: 1,
            attempts: 1,
            limit_bytes_per_sec: 1_000_000,
            estimate_bytes_per_sec: Some(987_500),
            verdict: Some("conclusive"),
        };
        let none = RelayResult { estimate_bytes_per_sec: None, verdict: None, ..one };
        assert_eq!(
            table(&[none]),
            "relay     coordinator  estimate     limit  Mbit/s, verdict\n\
             demo2               1         -       8.0  not measured\n"
        );
    }
}
