//! `ff-perf source` with clients that do not know the token.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than anything takes here.
const HANGS: Duration = Duration::from_secs(120);

struct Source {
    running: Child,
    at: SocketAddr,
    token: String,
}

impl Source {
    /// Starts a source with these options.
    fn start(words: &str) -> Self {
        let mut command = Command::new("sh");
        let script = format!("{words} exec \"$0\" source --rate 200kB");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_ff-perf")]);
        let mut running = command.stdout(Stdio::piped()).spawn().expect("a shell");
        let mut told = BufReader::new(running.stdout.take().expect("its output"));
        let mut url = String::new();
        told.read_line(&mut url).expect("its URL");
        let (at, token) = url.trim_start_matches("http://").trim().split_once('/').expect("a URL");
        Self { running, at: at.parse().expect("an address"), token: token.to_owned() }
    }

    /// Connects and sends these bytes.
    fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).expect("connected");
        stream.set_read_timeout(Some(HANGS)).expect("a timeout");
        stream.write_all(bytes.as_bytes()).expect("sent");
        stream
    }

    /// Starts a download of this many bytes.
    fn ask(&self, bytes: usize) -> TcpStream {
        self.send(&format!("GET /{}/{bytes} HTTP/1.0\r\n\r\n", self.token))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// Bytes of payload received.
fn payload(mut stream: TcpStream) -> usize {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("a head");
    answer.len() - head - 4
}

#[test]
fn whoever_knows_no_token_ends_no_download() {
    let source = Source::start("");
    let download = source.ask(100_000);
    // A connection whose request was not read yet may be closed in favour of others.
    download.peek(&mut [0]).expect("an answer that begins");
    let mut others = Vec::new();
    for path in ["/%ff/5", "/x/5", "*", "/%2e%2e/%00"] {
        for _ in 0..70 {
            others.push(source.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")));
        }
    }
    assert_eq!(payload(download), 100_000);
}

#[test]
fn silent_clients_that_take_all_file_descriptors_do_not_keep_others_out() {
    let source = Source::start("ulimit -n 20;");
    let silent: Vec<TcpStream> = (0..60).map(|_| source.send("GET /")).collect();
    assert_eq!(payload(source.ask(5)), 5);
    drop(silent);
}
