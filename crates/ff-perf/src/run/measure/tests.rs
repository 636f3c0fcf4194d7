//! Runs without a network, with a simulated client.

use std::time::Instant;

use clap::Parser as _;
use ff_archives::network::Flags;
use ff_circuits::network::NetworkRelay;
use ff_circuits::paths::pool::Pool;
use ff_circuits::record::{CircuitRecord, Probe};
use tokio::io::DuplexStream;

use super::*;
use crate::cli::downloads::DownloadsCommand;
use crate::cli::{Circuits, Cli, Command};
use crate::client::{Answer, Fault, Progress};
use crate::course::Keeper;
use crate::schedule::Gate;

/// Builds all circuits at once, or none.
pub(in crate::run) struct Fake {
    pub(in crate::run) builds: bool,
}

impl Client for Fake {
    type Circuit = ();
    type Stream = DuplexStream;

    const NAME: ff_circuits::record::Client = ff_circuits::record::Client::Arti;

    async fn build(
        &self,
        path: &[Arc<NetworkRelay>],
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        progress.has_link = true;
        if !self.builds {
            return Err(Fault::relay("destroyed"));
        }
        path.iter().for_each(|_| progress.hop());
        Ok(())
    }

    async fn probe(&self, (): &(), _: Probe, _: std::net::Ipv4Addr) -> Result<Answer, Fault> {
        Ok(Answer { us: 1, reason: "exitpolicy".to_owned() })
    }

    async fn open(&self, (): &(), _: &str, _: u16) -> Result<DuplexStream, Fault> {
        Err(Fault::client("it has no streams"))
    }

    async fn lost((): &(), _: &mut DuplexStream, _: Option<&std::io::Error>) -> Option<Fault> {
        None
    }
}

/// Parses the arguments of `circuits run`.
pub(in crate::run) fn parsed(words: impl IntoIterator<Item = std::ffi::OsString>) -> MeasureArgs {
    let words = std::iter::once("ff-perf".into()).chain(words);
    match Cli::try_parse_from(words).expect("a command").command {
        Command::Circuits(Circuits::Run(args)) => *args,
        other => panic!("{other:?}"),
    }
}

/// Options of a run into a folder, at full speed.
fn args(out: &Path, more: &str) -> MeasureArgs {
    let words = "circuits run --network nowhere --rate 100000 --per-guard 100000 --out";
    let out = std::iter::once(out.as_os_str().to_owned());
    let words = words.split(' ').map(Into::into).chain(out);
    parsed(words.chain(more.split_whitespace().map(Into::into)))
}

/// Three guards, three other relays and two exits, of which the first has this weight and shares a
/// path with no guard.
fn network(weight: f64) -> CircuitNetwork {
    let relay = |i: u8| ff_archives::network::Relay {
        fingerprint: [i; 20],
        flags: Flags { running: true, guard: i < 3, exit: i > 5, ..Flags::default() },
        weight: if i == 6 { weight } else { 1.0 },
        family: match i {
            0..3 => vec![[6; 20]],
            6 => (0..3).map(|guard| [guard; 20]).collect(),
            _ => vec![],
        },
        ..Default::default()
    };
    let relays: Vec<_> = (0..8).map(relay).collect();
    let mut network = CircuitNetwork::default();
    network.pool = Pool::from(ff_archives::network::Network { relays, ..Default::default() });
    network.pool.factors = Some(ff_flow::path::Factors {
        guard: [1.0, 0.0, 0.0, 0.0],
        middle: [0.0, 1.0, 0.0, 0.0],
        exit: [0.0, 0.0, 1.0, 0.0],
    });
    let known = |i: u8| NetworkRelay {
        id: hex::encode_upper([i; 20]),
        nick: format!("relay{i}"),
        rsa: [i; 20],
        ed25519: [i; 32],
        ntor: [i; 32],
        addrs: Vec::new(),
        protocols: String::new(),
        flags: Default::default(),
    };
    network.relays = (0..8).map(known).collect();
    network
}

/// Results of a run with this client.
fn run_by(
    client: Fake,
    args: &MeasureArgs,
    network: CircuitNetwork,
    given: Option<&[[usize; 3]]>,
) -> Came {
    let choice = args.measuring.drawing.rules.choice(true, None);
    let given = given.map(|paths| paths.iter().map(|path| path.to_vec()).collect());
    let dir = PathBuf::from("nowhere");
    let ready =
        Ready { dir, network, choice, given, paths_sha256: None, target: None, _source: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let run = async {
        let signals = Signals::listen().expect("signals");
        Run { args, ready }.run(client, signals).await
    };
    runtime.expect("a runtime").block_on(run).expect("a run")
}

/// Number of lines written.
fn lines(out: &Path) -> u64 {
    let text = fs::read_to_string(out.join(crate::store::LINES)).expect("lines");
    text.lines().count() as u64
}

/// Counts calls of `gate`.
#[derive(Default)]
struct Asked {
    times: u32,
    /// Complete circuits.
    whole: u32,
}

impl Keeper for Asked {
    fn keep(&mut self, circuit: CircuitRecord) -> Result<(), Ended> {
        self.whole += u32::from(circuit.failure.is_none());
        Ok(())
    }

    fn gate(&mut self, _in_flight: usize) -> Result<Gate, Ended> {
        self.times += 1;
        Ok(Gate::Open)
    }

    fn second(&mut self, _in_flight: usize) {}

    async fn called(&mut self) {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_run_of_hours_waits_as_it_did_in_the_first() {
    let args = args(Path::new("nowhere"), "--count 3 --in-flight 1 --rtt 3 --rtt-pause 50");
    let limits = limits(&args.measuring, 1e5, 1.0);
    let client = Arc::new(Fake { builds: true });
    let course = course(&args.measuring, limits, client, &network(1.0), None);
    let plan = PathPlan::given(vec![vec![0, 3, 7]], args.count, Box::new(|_| false));
    let began = Instant::now().checked_sub(Duration::from_secs(7200)).expect("two hours ago");
    let mut state = State::begun_at(limits, course.tasks(plan), began);
    let mut asked = Asked::default();
    course.run(&mut state, &mut asked).await.expect("a run");
    assert_eq!(asked.whole, 3);
    // A few times per circuit, and once a second.
    assert!(asked.times < 50, "{} times", asked.times);
}

#[test]
fn paths_of_a_file_are_used_again_and_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = args(dir.path(), "--count 5");
    let paths = [[0, 3, 7], [1, 4, 7]];
    let came = run_by(Fake { builds: true }, &args, network(1.0), Some(&paths));
    assert_eq!((came.counts.all, came.wanted, lines(dir.path())), (5, 5, 5));
    let text = summary(&args.recording, &came.counts);
    assert!(text.starts_with("built   5\nfailed  0\nfile    "), "{text}");
    came.judged().expect("all there is to be");
}

#[test]
fn too_few_paths_are_no_success_and_what_was_measured_is_kept_and_said() {
    const COUNT: u64 = 100;
    let network = network(1e5);
    // One draw in 100,000 gives a path: one network in 100 seems to have any, and soon it seems to
    // have none left.
    let choice = args(Path::new("nowhere"), "").measuring.drawing.rules.choice(true, None);
    let paths = |seed| {
        let plan = PathPlan::drawn(&network, &choice, seed, COUNT, Box::new(|_| false));
        plan.map_or(0, |plan| plan.count() as u64)
    };
    let mut drawn = (0..10_000).map(|seed| (seed, paths(seed)));
    let (seed, few) = drawn.find(|(_, few)| *few > 0).expect("a few paths");
    assert!(few < COUNT, "{few}");
    let dir = tempfile::tempdir().expect("a directory");
    let options = format!("--seed {seed} --count {COUNT} --json");
    let resumed = format!("{options} --resume");
    // A resumed run draws the same paths, and gets no more.
    for (options, all, wanted) in [(options, few, COUNT), (resumed, 0, COUNT - few)] {
        let args = args(dir.path(), &options);
        let came = run_by(Fake { builds: true }, &args, network.clone(), None);
        assert_eq!((came.counts.all, came.wanted, lines(dir.path())), (all, wanted, few));
        let text: serde_json::Value =
            serde_json::from_str(&summary(&args.recording, &came.counts)).expect("JSON");
        assert_eq!((&text["built"], &text["failed"]), (&all.into(), &0.into()));
        let error = came.judged().expect_err("too few").to_string();
        assert!(error.starts_with(&format!("{all} circuits instead of {wanted}: ")), "{error}");
        assert!(error.contains("too few valid paths") && error.contains("--resume"), "{error}");
    }
}

#[test]
fn what_gives_no_path_at_all_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("paths");
    fs::write(&file, "# none yet\n\n").expect("a file");
    let args = args(&dir.path().join("out"), &format!("--path-file {}", file.display()));
    let error = paths(&args.measuring, &network(1.0)).expect_err("no path").to_string();
    assert!(error.contains(&file.display().to_string()) && error.contains("no path"), "{error}");
    let choice = args.measuring.drawing.rules.choice(true, None);
    let mut network = network(1.0);
    network.consensus = PathBuf::from("a-consensus");
    network.pool.network.relays.truncate(7);
    let plan = plan(&args.measuring, &network, &choice, None, 1, HashSet::new());
    let error = format!("{:#}", plan.err().expect("no path"));
    assert!(error.starts_with("a-consensus: no path of 3 can be drawn"), "{error}");
    assert!(!args.recording.out.exists(), "nothing is left");
}

#[test]
fn a_run_that_failures_end_says_what_it_has() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = args(dir.path(), "--count 1000 --failures 0.2");
    let came = run_by(Fake { builds: false }, &args, network(1.0), Some(&[[0, 3, 7]]));
    let failed = came.counts.failed;
    assert!((30..1000).contains(&failed) && failed == lines(dir.path()), "{failed}");
    let text = summary(&args.recording, &came.counts);
    assert!(text.starts_with(&format!("built   0\nfailed  {failed}\n")), "{text}");
    let error = came.judged().expect_err("too many failures").to_string();
    assert!(error.contains("the run has stopped") && error.contains("relay0"), "{error}");
}

#[test]
fn downloads_share_relays_in_private_networks_only() {
    let url = format!("http://192.0.2.1:80/{}", "0".repeat(32));
    let run = |more: &[&str]| {
        let words = ["ff-perf", "downloads", "run", "--public", "--network", "n", "--out", "o"];
        let words =
            words.into_iter().chain(["--rate", "5", "--to", &url]).chain(more.iter().copied());
        match Cli::try_parse_from(words).expect("a command").command {
            Command::Downloads(DownloadsCommand::Run(args)) => args.circuits().measuring,
            other => panic!("{other:?}"),
        }
    };
    let shared = limits(&run(&["--share-relays"]), 5.0, 1.0);
    assert!(shared.builds_share && shared.downloads_share);
    assert!((shared.per_guard_per_sec - 5.0).abs() < 1e-9, "as fast as --rate");
    let alone = limits(&run(&[]), 5.0, 1.0);
    assert!(!alone.builds_share && !alone.downloads_share);
    let mut network = network(1.0);
    check_public(&run(&["--share-relays"]), &network).expect("a private network");
    network.relays[0].addrs = vec!["192.0.2.1:443".parse().expect("an address")];
    check_public(&run(&[]), &network).expect("one at a time");
    let error = check_public(&run(&["--share-relays"]), &network).expect_err("others' relays");
    assert!(error.to_string().contains("--share-relays"), "{error}");
}
