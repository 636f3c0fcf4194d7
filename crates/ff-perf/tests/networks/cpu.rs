//! CPU time of downloads: by Arti in this process through a given path, compared with a loop that
//! only reads the same stream; and by a tor with ff-perf or curl.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ff_circuits::network::{CircuitNetwork, NetworkRelay};
use ff_lab::Network;
use ff_perf::client::arti::Arti;
use ff_perf::client::tor::{Takeover, Tor};
use ff_perf::client::{Client, Progress};
use ff_perf::target::StreamTarget;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::downloads::Source;

/// Bytes of a download.
const BYTES: u64 = 64 << 20;
/// Counted downloads, after one that is not counted because it opens links.
const ROUNDS: u32 = 4;
/// Bytes that a download reads at once.
const BUFFER: usize = 16_384;
/// Clock ticks per second, the unit of times in `/proc/PID/stat` (proc(5)).
const TICKS: f64 = 100.0;

/// CPU time of this process.
fn own() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("a time")
}

/// The sum of two adjacent times in `/proc/PID/stat`; `place` is the number of fields between the
/// process's name and the first time.
fn times(pid: &str, place: usize) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, rest) = text.rsplit_once(')').expect("a name");
    let ticks = rest.split_whitespace().skip(place).take(2);
    let ticks: f64 = ticks.map(|word| word.parse::<f64>().expect("a number")).sum();
    Duration::from_secs_f64(ticks / TICKS)
}

/// CPU time of a process.
fn of_process(pid: u32) -> Duration {
    times(&pid.to_string(), 11)
}

/// CPU time of this process's children that have ended.
fn of_children() -> Duration {
    times("self", 13)
}

/// The target of downloads, and their path.
struct Fetch {
    target: StreamTarget,
    path: Vec<Arc<NetworkRelay>>,
}

impl Fetch {
    /// Downloads as ff-perf does.
    async fn whole<C: Client>(&self, client: &C, circuit: &C::Circuit) {
        let (mut line, mut buffer) = (self.target.asked(BYTES), vec![0; BUFFER]);
        let came = self.target.download(client, circuit, BYTES, &mut buffer, &mut line);
        came.await.expect("a download");
        assert!(line.is_checked && line.bytes == BYTES, "{line:?}");
    }

    /// Reads the same stream in a bare loop.
    async fn bare<C: Client>(&self, client: &C, circuit: &C::Circuit) {
        let StreamTarget { host, port, path, .. } = &self.target;
        let mut stream = client.open(circuit, host, *port).await.expect("a stream");
        let path = path.as_deref().expect("a source");
        let request = format!("GET {path}/{BYTES} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
        let (mut buffer, mut all) = (vec![0; BUFFER], 0);
        while all < BYTES {
            let length = stream.read(&mut buffer).await.expect("bytes");
            assert!(length > 0, "it ends after {all} bytes");
            all += length as u64;
        }
    }

    /// CPU time per gigabyte, in seconds, of a bare loop and of downloads; `cpu` returns the time
    /// used so far.
    async fn secs_per_gb<C: Client>(&self, client: C, cpu: impl Fn() -> Duration) -> [f64; 2] {
        let mut spent = [Duration::ZERO; 2];
        for round in 0..=ROUNDS {
            for (kind, spent) in spent.iter_mut().enumerate() {
                let built = client.build(&self.path, &mut Progress::new()).await;
                let circuit = built.expect("a circuit");
                let before = cpu();
                match kind {
                    0 => self.bare(&client, &circuit).await,
                    _ => self.whole(&client, &circuit).await,
                }
                if round > 0 {
                    *spent += cpu().saturating_sub(before);
                }
            }
        }
        spent.map(|time| per_gb(time, ROUNDS))
    }
}

/// CPU time per gigabyte, in seconds, from the total time of some downloads.
fn per_gb(time: Duration, downloads: u32) -> f64 {
    time.as_secs_f64() * 1e9 / (BYTES as f64 * f64::from(downloads))
}

/// CPU time per gigabyte, in seconds, of curl and the tor with the SocksPort that it uses; `None`
/// if curl is not installed.
fn by_curl(network: &Network, url: &str) -> Option<f64> {
    let client = network.node("client0");
    let mut control = client.control().expect("a control connection");
    let listeners = control.getinfo("net/listeners/socks").expect("a SocksPort");
    let socks = listeners.split(' ').next().expect("an address").trim_matches('"').to_owned();
    let pid = client.pid().expect("a process");
    let mut spent = Duration::ZERO;
    for round in 0..=ROUNDS {
        let before = of_process(pid) + of_children();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--output", "/dev/null", "--socks5-hostname", &socks]);
        let status = curl.arg(format!("{url}/{BYTES}")).stdout(Stdio::null()).status().ok()?;
        assert!(status.success(), "curl: {status}");
        if round > 0 {
            spent += (of_process(pid) + of_children()).saturating_sub(before);
        }
    }
    Some(per_gb(spent, ROUNDS))
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn a_download_costs_little_more_than_reading() {
    let builder = Network::builder().middles(2).exits(1).clients(1);
    let network = builder.client_torrc("ConfluxEnabled 0").start().expect("a network");
    let source = Source::start("");
    let now = UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let view = CircuitNetwork::read(network.dir(), now).expect("its documents");
    let relay = |name: &str| {
        let at = view.find(network.node(name).rsa_fingerprint()).expect("it is in the consensus");
        Arc::new(view.relays[at].clone())
    };
    let target = source.url.parse::<StreamTarget>().and_then(StreamTarget::secret);
    let path = ["middle0", "middle1", "exit0"].map(relay).to_vec();
    let fetch = Fetch { target: target.expect("a URL"), path };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let [bare, whole] = runtime.block_on(async {
        let arti = Arti::new(&view).expect("Arti");
        fetch.secs_per_gb(arti, own).await
    });
    let ratio = whole / bare;
    println!(
        "figure: CPU of a download by Arti / of a bare read loop on its streams | ..1.05 | {ratio:.3} | {whole:.1} and {bare:.1} s per GB"
    );
    let client = network.node("client0");
    let pid = client.pid().expect("a process");
    let Takeover { tor, ending, .. } = Tor::take_over(client.data_dir()).expect("a tor");
    let [bare, whole] = runtime.block_on(fetch.secs_per_gb(tor, || own() + of_process(pid)));
    ending.wait().expect("its options back");
    println!(
        "figure: CPU of a download by tor and ff-perf, s per GB | - | {whole:.1} | a bare read loop {bare:.1}"
    );
    let curl = by_curl(&network, &source.url);
    let curl = curl.map_or_else(|| "no curl".to_owned(), |secs| format!("{secs:.1}"));
    println!("figure: CPU of a download by tor and curl, s per GB | - | {curl} | -");
    let _ = source.end();
    assert!(ratio <= 1.05, "{ratio}");
}
