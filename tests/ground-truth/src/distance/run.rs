//! One measurement of one relay behind one link.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use base64ct::{Base64Unpadded, Encoding};
use ff_measurer::{key, measurer_id};
use serde_json::Value;

use super::relay::{Address, Relay};
use super::{Case, Lossy};

/// The exit status of `ff-lab link run` when a run does not count.
const DOES_NOT_COUNT: i32 = 75;
/// How often a run is made again because of that.
const ATTEMPTS: u32 = 5;
/// How late one packet in a hundred may be, in µs: a burst of a measurer takes the emulator some milliseconds,
/// and is there all the same.
const MAX_LATE_US: f64 = 10_000.0;
/// What the links' buffers hold, in ms at their rate, which is not limited.
const QUEUE_MS: u32 = 500;

/// What all runs need.
pub(super) struct Bench {
    /// The tor.
    tor: PathBuf,
    /// Where `ff-lab` and `ff-bwauth` are.
    programs: PathBuf,
    /// Measurers' rate as a multiple of the relay's.
    multiple: f64,
    /// Where relays are.
    _address: Address,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The estimate by the relay's rate; `None` where there is none.
    pub(super) ratio: Option<f64>,
    /// The verdict's name.
    pub(super) verdict: String,
    /// Links that opened.
    pub(super) links: u64,
    /// What came back in each second by the relay's rate, also in those that do not count.
    pub(super) seconds: Vec<f64>,
    /// How many of them do not count.
    pub(super) uncounted: usize,
    /// CPU time of the measurers, in seconds.
    pub(super) cpu_secs: f64,
    /// Part of the segments that TCP saw lost, there and back.
    pub(super) losses: (f64, f64),
}

impl Run {
    /// The first second in which the relay was full: 0.95 of its rate.
    pub(super) fn full_after(&self) -> Option<usize> {
        self.seconds.iter().position(|&second| second >= 0.95)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.ratio.map_or("none".to_owned(), |ratio| format!("{ratio:.3}"));
        let full =
            self.full_after().map_or("never".to_owned(), |second| format!("in second {second}"));
        let (out, back) = (self.losses.0 * 100.0, self.losses.1 * 100.0);
        write!(
            f,
            "{ratio} {}, {} links, full {full}, {:.2} CPU s, {out:.3} % and {back:.3} % lost",
            self.verdict, self.links, self.cpu_secs
        )
    }
}

impl Bench {
    /// What runs need, with this tor.
    pub(super) fn new(tor: &Path, multiple: f64) -> Result<Self> {
        let tor = tor.canonicalize().with_context(|| {
            format!("there is no {}; crates/ff-relay-ext/tor/build-tor makes it", tor.display())
        })?;
        let own = std::env::current_exe().context("Failed to find this program")?;
        let programs = own.parent().context("this program is nowhere")?.to_owned();
        for name in ["ff-lab", "ff-bwauth"] {
            if !programs.join(name).is_file() {
                bail!(
                    "there is no {name} beside this program: cargo build --release --workspace --bins"
                );
            }
        }
        Ok(Self { tor, programs, multiple, _address: Address::new()? })
    }

    /// Measures once; again if the emulator was late.
    pub(super) fn run(&self, case: &Case) -> Result<Run> {
        for _ in 0..ATTEMPTS {
            if let Some(run) = self.attempt(case)? {
                return Ok(run);
            }
            eprintln!("    again: the emulator was late");
        }
        bail!("the emulator was late {ATTEMPTS} times: is this machine busy?")
    }

    /// Measures once; nothing if that does not count.
    fn attempt(&self, case: &Case) -> Result<Option<Run>> {
        let dir = tempfile::tempdir().context("Failed to make a directory")?;
        let key_path = dir.path().join("key");
        let key = key::load_or_make(&key_path)?;
        let coordinator = Base64Unpadded::encode_string(&measurer_id(&key).0);
        let rate = u64::from(case.mbit) * 125_000;
        let relay = Relay::start(&self.tor, &dir.path().join("tor"), rate, &coordinator)?;
        let losses = dir.path().join("loss.toml");
        fs::write(&losses, loss_profile(case)).context("Failed to write a profile")?;
        let profile = case.profile.as_ref().map_or(losses, PathBuf::from);
        let link = dir.path().join("link.json");
        let mut command = Command::new(self.programs.join("ff-lab"));
        command
            .args([
                "link",
                "run",
                "--delay-ms",
                &format!("{}", f64::from(case.round_trip_ms) / 2.0),
            ])
            .args(["--congestion-control", &case.congestion_control])
            .arg("--profile")
            .arg(&profile)
            .arg("--json")
            .arg(&link)
            .arg("--")
            .arg(self.programs.join("ff-bwauth"))
            .args(["measure", "--json", "--target", &relay.address.to_string()])
            .args(["--ed-identity", &relay.ed_identity, "--duration", &case.seconds.to_string()])
            .args(["--rate", &format!("{:.0}kbit", f64::from(case.mbit) * 1e3 * self.multiple)])
            .arg("--key")
            .arg(&key_path)
            .arg("--out")
            .arg(dir.path().join("out"));
        if case.links > 0 {
            command.args(["--sockets", &case.links.to_string()]);
        }
        let output = command.stderr(Stdio::piped()).output().context("Failed to run ff-lab")?;
        if output.status.code() == Some(DOES_NOT_COUNT) && !is_good_enough(&link)? {
            return Ok(None);
        }
        let outcome: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!("ff-bwauth said: {}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(Some(read(&outcome, rate)))
    }
}

/// Whether the emulator was no later than these figures bear, although `ff-lab` holds itself to more.
fn is_good_enough(link: &Path) -> Result<bool> {
    let text = fs::read_to_string(link).context("ff-lab has left no JSON")?;
    let link: Value = serde_json::from_str(&text).context("ff-lab has left no JSON")?;
    let late = link["lateness"]["p99_us"].as_f64().unwrap_or(f64::INFINITY);
    Ok(late <= MAX_LATE_US)
}

/// A link that loses so much.
fn loss_profile(case: &Case) -> String {
    let part = |is_lossy| if is_lossy { case.loss_percent / 100.0 } else { 0.0 };
    let direction = |name: &str, is_lossy| {
        format!(
            "[{name}]\nrate = \"unlimited\"\nqueue_ms = {QUEUE_MS}\nloss = {}\n",
            part(is_lossy)
        )
    };
    "description = \"losses\"\n".to_owned()
        + &direction("up", case.lossy != Lossy::Back)
        + &direction("down", case.lossy != Lossy::Out)
}

/// What `ff-bwauth measure --json` says of a relay with this rate.
#[expect(clippy::cast_precision_loss, reason = "bytes of a measurement are below 2^53")]
fn read(outcome: &Value, rate: u64) -> Run {
    let part = |bytes: &Value| bytes.as_f64().unwrap_or(0.0) / rate as f64;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let settling: Vec<f64> = list(&outcome["settling_bytes"]).iter().map(part).collect();
    let uncounted = settling.len();
    let counted = list(&outcome["seconds"]);
    let counted = counted.iter().map(|second| part(&second["measurement_bytes"]));
    let path = &outcome["paths"][0];
    let loss = |name: &str| path[name].as_f64().unwrap_or(f64::NAN);
    Run {
        ratio: outcome["estimate_bytes_per_sec"].as_f64().map(|estimate| estimate / rate as f64),
        verdict: match outcome["failure"]["code"].as_str() {
            Some(code) => code.to_owned(),
            None => outcome["verdict"].as_str().unwrap_or("none").to_owned(),
        },
        links: outcome["sockets"]["opened"].as_u64().unwrap_or(0),
        seconds: settling.into_iter().chain(counted).collect(),
        uncounted,
        cpu_secs: outcome["cpu_seconds"]["measurers"].as_f64().unwrap_or(f64::NAN),
        losses: (loss("loss_out"), loss("loss_back")),
    }
}
