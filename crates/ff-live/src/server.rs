//! Directory servers in the network: who they are, and how they are asked.

use core::fmt;
use std::sync::Arc;

use ff_proto::addresses::is_public;
use futures::io::{AsyncRead, AsyncWrite};
use rand::seq::SliceRandom as _;
use tor_chanmgr::{ChanMgr, ChannelUsage};
use tor_dirclient::send_request;
use tor_dirmgr::{DirMgr, DocId};
use tor_linkspec::{HasAddrs as _, OwnedChanTarget};
use tor_netdir::NetDir;
use tor_netdoc::types::relay_flags::RelayFlag;
use tor_rtcompat::{PreferredRuntime, SleepProvider};

use super::arti::Arti;
use super::ask::{Ask, AskError, Request, Servers};
use super::circuit::open_stream;

/// Directory caches that one refresh may use up.
const MAX_CACHES: usize = 16;

/// A directory server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Its nickname and where it listens.
    name: Arc<str>,
    /// How it is reached.
    target: OwnedChanTarget,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// The servers of a directory: some caches by chance, so that each refresh asks others, and the
/// authorities.
pub(super) fn servers(directory: &NetDir, allow_private_addresses: bool) -> Servers<Server> {
    let mut servers = Servers { caches: Vec::new(), authorities: Vec::new() };
    for relay in directory.relays() {
        let is_authority = relay.rs().flags().contains(RelayFlag::Authority);
        if !is_authority && !relay.low_level_details().is_dir_cache() {
            continue;
        }
        let mut addresses = relay.addrs();
        let Some(first) = addresses.next() else { continue };
        let is_public = core::iter::once(first).chain(addresses).all(|addr| is_public(addr.ip()));
        if !is_public && !allow_private_addresses {
            continue;
        }
        let name = Arc::from(format!("{} ({first})", relay.rs().nickname()));
        let server = Server { name, target: OwnedChanTarget::from_chan_target(&relay) };
        if is_authority {
            servers.authorities.push(server);
        } else {
            servers.caches.push(server);
        }
    }
    servers.caches.shuffle(&mut rand::rng());
    servers.caches.truncate(MAX_CACHES);
    servers.authorities.shuffle(&mut rand::rng());
    servers
}

/// Asks servers over Arti's channels.
pub(super) struct Channels {
    /// Runs what goes on beside.
    pub(super) runtime: PreferredRuntime,
    /// Makes channels.
    pub(super) channels: Arc<ChanMgr<PreferredRuntime>>,
    /// Has documents at hand.
    pub(super) dirs: Arc<DirMgr<PreferredRuntime>>,
    /// The network's parameters.
    pub(super) directory: Arc<NetDir>,
}

impl Channels {
    /// Through this client's, with this directory of its.
    pub(super) fn new(runtime: &PreferredRuntime, arti: &Arti, directory: Arc<NetDir>) -> Self {
        Self {
            runtime: runtime.clone(),
            channels: Arc::clone(&arti.channels),
            dirs: Arc::clone(&arti.dirs),
            directory,
        }
    }
}

impl Ask for Channels {
    type Server = Server;

    async fn ask(&self, server: &Server, request: &Request) -> Result<String, AskError> {
        let channel = self.channels.get_or_launch(&server.target, ChannelUsage::Dir).await;
        let (channel, _) = channel.map_err(|error| AskError::Unreachable(error.to_string()))?;
        let stream = open_stream(&self.runtime, &channel, self.directory.params()).await;
        send(&self.runtime, &mut stream.map_err(AskError::Unreachable)?, request).await
    }

    fn at_hand(&self, request: &Request) -> String {
        let ids: Vec<DocId> = match request {
            Request::Certificates(keys) => keys.iter().map(|key| DocId::AuthCert(*key)).collect(),
            Request::Microdescriptors(digests) => {
                digests.iter().map(|digest| DocId::Microdesc(*digest)).collect()
            }
            Request::Consensus(..) | Request::Descriptors(_) => Vec::new(),
        };
        // A cache of Arti's that cannot be read has nothing for us: it is asked for elsewhere then.
        let texts = self.dirs.texts(ids).unwrap_or_default();
        let mut all = String::new();
        for text in texts.values().filter_map(|text| core::str::from_utf8(text.as_ref()).ok()) {
            all.push_str(text);
        }
        all
    }
}

/// Sends a request on a stream and reads the answer, whose size the request bounds.
pub(super) async fn send<S>(
    runtime: &impl SleepProvider,
    stream: &mut S,
    request: &Request,
) -> Result<String, AskError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let answer = send_request(runtime, &*request.arti(), stream, None).await;
    let answer = answer.map_err(|error| AskError::BadAnswer(reason(&error)))?;
    if answer.status_code() != 200 {
        let (code, message) = (answer.status_code(), answer.status_message().unwrap_or_default());
        return Err(AskError::BadAnswer(format!("HTTP status {code} {message:?}")));
    }
    // Of an answer with many pieces that was cut, those that came whole are good.
    let bytes = answer.into_output_unchecked();
    // What is no UTF-8 makes its own piece another one, and no others.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// What an error of Arti's says, with what lies beneath.
fn reason(error: &tor_dirclient::Error) -> String {
    let mut next: Option<&dyn core::error::Error> = match error {
        tor_dirclient::Error::RequestFailed(failed) => Some(&failed.error),
        other => Some(other),
    };
    let mut text = String::new();
    while let Some(error) = next {
        let separator = if text.is_empty() { "" } else { ": " };
        text.push_str(&format!("{separator}{error}"));
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use tokio::time::timeout;
    use tor_rtcompat::NetStreamProvider as _;

    use super::super::ask::Request;
    use super::super::head::Flavor;
    use super::*;

    /// What a server on loopback makes of a connection that has sent a request.
    type Answers = fn(&mut TcpStream) -> std::io::Result<()>;

    /// How long an answer is waited for: one that comes only has to come.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Asks such a server, with this timeout.
    async fn ask_one(
        request: Request,
        answers: Answers,
        patience: Duration,
    ) -> Option<Result<String, AskError>> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("its address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 4096]).expect("a request");
            // The client goes away when it has had enough.
            drop(answers(&mut stream));
        });
        let runtime = super::super::runtime().expect("a runtime");
        let mut stream = runtime.connect(&addr, &Default::default()).await.expect("a connection");
        let answer = timeout(patience, send(&runtime, &mut stream, &request)).await;
        drop(stream);
        server.join().expect("a server that has ended");
        answer.ok()
    }

    /// A request for two descriptors, whose answer has 16 kB at most.
    fn descriptors() -> Request {
        Request::Descriptors(vec![[1; 20], [2; 20]])
    }

    #[tokio::test]
    async fn an_answer_without_end_is_cut_and_a_slow_one_is_not_waited_for() {
        let endless: Answers = |stream| {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 65536])?;
            }
        };
        let answer = ask_one(descriptors(), endless, PATIENCE).await.expect("it comes");
        let answer = answer.expect("its beginning");
        assert!(answer.len() <= 2 * 8192, "{}", answer.len());
        let request = Request::Consensus(Flavor::Ns, Vec::new());
        let answer = ask_one(request, endless, PATIENCE).await.expect("it comes");
        let error = answer.expect_err("too long");
        assert!(error.to_string().contains("response too long"), "{error}");
        let slow: Answers = |stream| {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
            loop {
                stream.write_all(b"x")?;
                thread::sleep(Duration::from_millis(20));
            }
        };
        let answer = ask_one(descriptors(), slow, Duration::from_secs(1)).await;
        assert_eq!(answer, None, "it was given up");
    }

    #[tokio::test]
    async fn what_is_no_answer_is_said() {
        let cases: [(Answers, &str); 5] = [
            (|_| Ok(()), "truncated HTTP headers"),
            (|stream| stream.write_all(b"SSH-2.0-x\r\n\r\n"), "parse HTTP headers"),
            (|stream| stream.write_all(b"HTTP/1.0 404 Not found\r\n\r\n"), "404 \"Not found\""),
            (|stream| stream.write_all(&[b'x'; 20_000]), "HTTP headers"),
            (
                |stream| stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Encoding: x\r\n\r\ny"),
                "content encoding",
            ),
        ];
        for (answers, part) in cases {
            let answer = ask_one(descriptors(), answers, PATIENCE).await.expect("it comes");
            let error = answer.expect_err(part);
            assert!(error.to_string().contains(part), "{error}, not {part}");
        }
        let odd: Answers = |stream| stream.write_all(b"HTTP/1.0 200 OK\r\n\r\na\xffb");
        let answer = ask_one(descriptors(), odd, PATIENCE).await.expect("it comes");
        assert_eq!(answer, Ok("a\u{fffd}b".to_owned()));
    }
}
