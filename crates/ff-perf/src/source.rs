//! A source of bytes for downloads: a web server that serves only clients that know its token.
//!
//! `GET /TOKEN/BYTES` is answered with that many bytes of a new [`Pattern`], whose seed is in the
//! header. The bytes look random, so that nothing on the way can compress or cache them. Size,
//! number, rate and time of downloads are limited.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use ff_proto::rate::TokenBucket;
use ff_proto::units::{BytesPerSec, MonoTime};
use futures::stream;
use subtle::ConstantTimeEq as _;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::download::SEED_HEADER;
use crate::pattern::{Pattern, Seed};

/// Bytes of a piece, sent at once.
const PIECE: usize = 16_384;

/// Limits of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceLimits {
    /// Largest download in bytes.
    pub download_bytes: u64,
    /// Most downloads at once.
    pub downloads: usize,
    /// Payload of all downloads together in bytes per second; `None` without a limit.
    pub bytes_per_sec: Option<u64>,
    /// Time limit of a download.
    pub time: Duration,
}

/// The secret that a client must know: 32 hexadecimal digits.
#[derive(Clone)]
pub struct Token(String);

/// A running source.
#[derive(Debug)]
pub struct Source {
    token: Token,
    limits: SourceLimits,
    /// Permits for downloads.
    room: Arc<Semaphore>,
    /// Bytes that may be sent now, if the rate is limited. Waiting downloads queue for the lock,
    /// which serves them in turn.
    bucket: Option<Mutex<TokenBucket>>,
    began: Instant,
    /// Payload sent so far, in bytes.
    given_bytes: AtomicU64,
    /// Downloads sent to their last byte.
    whole: AtomicU64,
}

impl Token {
    /// A random token.
    #[must_use]
    pub fn new() -> Self {
        Self(hex::encode(rand::random::<[u8; 16]>()))
    }

    /// Parses a token.
    ///
    /// # Errors
    /// One sentence, if the text is not a token.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let is_one = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_one {
            Ok(Self(text.to_owned()))
        } else {
            Err("it is not 32 hexadecimal digits".to_owned())
        }
    }

    /// Text of the token, for clients that may download.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Source {
    /// Creates a source with these limits.
    #[must_use]
    pub fn new(token: Token, limits: SourceLimits) -> Arc<Self> {
        let bucket = limits.bytes_per_sec.map(|rate| {
            let burst = (PIECE as u64).max(rate / 10);
            Mutex::new(TokenBucket::new(BytesPerSec::new(rate), burst, MonoTime::from_micros(0)))
        });
        Arc::new(Self {
            token,
            limits,
            room: Arc::new(Semaphore::new(limits.downloads)),
            bucket,
            began: Instant::now(),
            given_bytes: AtomicU64::new(0),
            whole: AtomicU64::new(0),
        })
    }

    /// Routes of the web server.
    pub fn router(self: &Arc<Self>) -> Router {
        let nothing = || async { nothing() };
        Router::new()
            .route("/{token}/{bytes}", get(give))
            .fallback(nothing)
            .method_not_allowed_fallback(nothing)
            .with_state(Arc::clone(self))
    }

    /// Downloads sent to their last byte, and all payload sent in bytes.
    #[must_use]
    pub fn given(&self) -> (u64, u64) {
        (self.whole.load(Ordering::Relaxed), self.given_bytes.load(Ordering::Relaxed))
    }

    /// Waits until `bytes` may be sent.
    async fn wait(&self, bytes: u64) {
        let Some(bucket) = &self.bucket else { return };
        let mut bucket = bucket.lock().await;
        loop {
            bucket.fill(MonoTime::from_micros(crate::client::us_since(self.began)));
            let missing = bucket.time_until(bytes);
            if missing.is_zero() {
                break;
            }
            sleep(missing.min(Duration::from_secs(1))).await;
        }
        bucket.take(bytes);
    }
}

/// Answers a request if it has the token.
async fn give(
    State(source): State<Arc<Source>>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Response {
    // A path that is not UTF-8 is unknown too.
    let Ok(Path((token, bytes))) = path else { return nothing() };
    if !source.token.is(&token) {
        return nothing();
    }
    let most = source.limits.download_bytes;
    let Some(bytes) = bytes.parse::<u64>().ok().filter(|bytes| (1..=most).contains(bytes)) else {
        let text = format!("The path is /TOKEN/BYTES, with 1 to {most} bytes.\n");
        return closing(StatusCode::BAD_REQUEST, text);
    };
    let Ok(place) = Arc::clone(&source.room).try_acquire_owned() else {
        let downloads = source.limits.downloads;
        let text = format!("{downloads} downloads are running already; try again later.\n");
        return closing(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let seed = Seed(rand::random());
    let until = Instant::now() + source.limits.time;
    let given = Given { source, pattern: Pattern::new(seed), left: bytes, until, _place: place };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        (header::CACHE_CONTROL, "no-store, no-transform".to_owned()),
        (header::CONNECTION, "close".to_owned()),
        (HeaderName::from_static(SEED_HEADER), seed.to_string()),
    ];
    (headers, Body::from_stream(stream::unfold(given, Given::next))).into_response()
}

/// A running download.
struct Given {
    source: Arc<Source>,
    pattern: Pattern,
    /// Bytes left.
    left: u64,
    /// When it is cut off.
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl Given {
    /// The next piece, or an error, which closes the connection, if the download has taken too
    /// long.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let length = self.left.min(PIECE as u64);
        if length == 0 {
            return None;
        }
        let left = self.until.saturating_duration_since(Instant::now());
        let waited = timeout(left, self.source.wait(length)).await;
        if left.is_zero() || waited.is_err() {
            return Some((Err(io::ErrorKind::TimedOut.into()), self));
        }
        let mut piece = vec![0; usize::try_from(length).unwrap_or(PIECE)];
        self.pattern.fill(&mut piece);
        self.left -= length;
        self.source.given_bytes.fetch_add(length, Ordering::Relaxed);
        if self.left == 0 {
            self.source.whole.fetch_add(1, Ordering::Relaxed);
        }
        Some((Ok(Bytes::from(piece)), self))
    }
}

/// Response to a request without the token, the same for every path.
fn nothing() -> Response {
    closing(StatusCode::NOT_FOUND, "There is nothing here.\n".to_owned())
}

/// A response after which the connection closes.
fn closing(status: StatusCode, text: String) -> Response {
    (status, [(header::CONNECTION, "close")], text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    /// Response of a source to a request for a path.
    async fn answer(source: &Arc<Source>, path: &str) -> Response {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        source.router().oneshot(request).await.expect("an answer")
    }

    /// A source with low limits.
    fn source(bytes_per_sec: Option<u64>) -> (Arc<Source>, String) {
        let token = Token::new();
        let text = token.as_str().to_owned();
        let time = Duration::from_secs(600);
        let limits = SourceLimits { download_bytes: 100_000, downloads: 1, bytes_per_sec, time };
        (Source::new(token, limits), text)
    }

    #[tokio::test]
    async fn a_client_with_the_token_gets_the_bytes_of_the_seed() {
        let (source, token) = source(None);
        let answer = answer(&source, &format!("/{token}/70001")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let text = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
        assert_eq!((text("content-length"), text("connection")), ("70001".into(), "close".into()));
        let seed: Seed = text(SEED_HEADER).parse().expect("a seed");
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("bytes");
        assert_eq!(bytes.len(), 70_001);
        assert_eq!(Pattern::new(seed).matching(&bytes), bytes.len());
        assert_eq!(source.given(), (1, 70_001));
    }

    #[tokio::test]
    async fn without_the_token_or_beyond_the_limits_nothing_is_sent() {
        let (source, token) = source(None);
        for (path, status) in [
            ("/".to_owned(), 404),
            (format!("/{token}"), 404),
            (format!("/{}/5", "0".repeat(32)), 404),
            (format!("/{token}/5/6"), 404),
            ("/%ff/5".to_owned(), 404),
            (format!("/{token}/%ff"), 404),
            (format!("/{token}/0"), 400),
            (format!("/{token}/-1"), 400),
            (format!("/{token}/100001"), 400),
            (format!("/{token}/99999999999999999999999"), 400),
        ] {
            let answer = answer(&source, &path).await;
            assert_eq!(answer.status(), status, "{path}");
            // A connection that stayed open would occupy a place.
            assert_eq!(answer.headers()[header::CONNECTION], "close", "{path}");
        }
        let held = answer(&source, &format!("/{token}/5")).await;
        assert_eq!(answer(&source, &format!("/{token}/5")).await.status(), 503, "one at a time");
        drop(held);
        assert_eq!(answer(&source, &format!("/{token}/5")).await.status(), 200);
        assert_eq!(source.given(), (0, 0), "a header is not payload");
    }

    #[tokio::test]
    async fn what_a_bucket_holds_comes_at_once() {
        let (source, token) = source(Some(10_000));
        let given = answer(&source, &format!("/{token}/100000")).await;
        let mut body = given.into_body().into_data_stream();
        let first = futures::StreamExt::next(&mut body).await.expect("a piece").expect("bytes");
        assert_eq!(first.len(), PIECE);
        let bucket = source.bucket.as_ref().expect("a bucket").lock().await;
        assert!(bucket.available_bytes() < 1000, "it is empty now: {bucket:?}");
    }

    #[tokio::test]
    async fn a_slow_download_is_cut_off_and_frees_its_place() {
        for bytes_per_sec in [None, Some(1)] {
            let token = Token::new();
            let path = format!("/{}/100000", token.as_str());
            let time = Duration::from_millis(50);
            let limits =
                SourceLimits { download_bytes: 100_000, downloads: 1, bytes_per_sec, time };
            let source = Source::new(token, limits);
            let mut body = answer(&source, &path).await.into_body().into_data_stream();
            // Bytes in the buffer are read, and then nothing until it is too late.
            if bytes_per_sec.is_none() {
                sleep(2 * time).await;
            }
            let all = async {
                while let Some(piece) = futures::StreamExt::next(&mut body).await {
                    if piece.is_err() {
                        return true;
                    }
                }
                false
            };
            assert!(all.await, "it is not whole");
            drop(body);
            assert_eq!(answer(&source, &path).await.status(), StatusCode::OK);
        }
    }

    #[tokio::test]
    async fn downloads_share_the_rate_in_turn() {
        /// Pieces of each download.
        const PIECES: usize = 25;
        /// Before others wait, one download may get the 6 pieces that the bucket starts with.
        const APART: usize = 10;
        let token = Token::new();
        let path = format!("/{}/{}", token.as_str(), PIECES * PIECE);
        let limits = SourceLimits {
            download_bytes: 1 << 20,
            downloads: 6,
            bytes_per_sec: Some(1_000_000),
            time: Duration::from_secs(600),
        };
        let source = Source::new(token, limits);
        let mut readers = Vec::new();
        for _ in 0..limits.downloads {
            let mut body = answer(&source, &path).await.into_body().into_data_stream();
            let source = Arc::clone(&source);
            readers.push(tokio::spawn(async move {
                let mut pieces = 0;
                // Until one of them is complete.
                while source.given().0 == 0 {
                    let piece = futures::StreamExt::next(&mut body).await.expect("a piece");
                    pieces += piece.expect("bytes").len() / PIECE;
                }
                pieces
            }));
        }
        for reader in readers {
            let pieces = reader.await.expect("a reader");
            assert!(pieces + APART >= PIECES, "{pieces} of {PIECES} while another had all");
        }
    }

    #[test]
    fn a_token_is_32_digits_and_is_not_shown() {
        let token = Token::new();
        assert_eq!(Token::read(&format!("{}\n", token.as_str())).expect("one").0, token.0);
        assert!(token.is(token.as_str()) && !token.is(""));
        assert_eq!(format!("{token:?}"), "Token(…)");
        for odd in ["", "abc", &"x".repeat(32)] {
            assert!(Token::read(odd).is_err(), "{odd}");
        }
    }
}
