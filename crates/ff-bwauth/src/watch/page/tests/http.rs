//! HTTP requests of all kinds.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::served::Served;
use crate::watch::made_up::{HOSTILE, fingerprint};
use crate::watch::page::connection::Deadlines;

/// Timeout of a wait, to detect a hang.
const HANGS: Duration = Duration::from_secs(120);
/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(3600);

/// Sends these bytes and reads the answer to its end.
pub(super) async fn exchange(addr: SocketAddr, bytes: &[u8]) -> String {
    let stream = TcpStream::connect(addr).await.expect("connected");
    exchange_over(stream, bytes).await.expect("an answer")
}

/// The same over a connection that may be closed early.
async fn exchange_over(mut stream: TcpStream, bytes: &[u8]) -> io::Result<String> {
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    timeout(HANGS, stream.read_to_end(&mut answer)).await.expect("it does not hang")?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A request for a path.
fn request_for(addr: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n")
}

/// Requests a path.
pub(super) async fn get(addr: SocketAddr, path: &str) -> String {
    exchange(addr, request_for(addr, path).as_bytes()).await
}

/// Requests a path until it succeeds: on a slow machine a deadline may end a good request too, or
/// all readers may be in use.
async fn get_at_last(addr: SocketAddr, path: &str) {
    let asking = async {
        loop {
            let stream = TcpStream::connect(addr).await.expect("connected");
            let answer = exchange_over(stream, request_for(addr, path).as_bytes()).await;
            match answer.as_deref().unwrap_or_default() {
                answer if answer.starts_with("HTTP/1.1 200 ") => return,
                answer => {
                    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 "), "{answer}");
                }
            }
        }
    };
    timeout(HANGS, asking).await.expect("it is answered");
}

/// The paths of all pages.
pub(super) fn paths() -> Vec<String> {
    let relay = format!("/relay/{}", hex::encode_upper(fingerprint(0)));
    let sorted = "/relays?find=relay1&sort=age&order=desc&page=1";
    let pages = ["/", "/team", "/capacities", "/failures", "/relays", sorted, &relay];
    pages.map(str::to_owned).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_answers_with_its_headers_and_without_foreign_markup() {
    let served = Served::new(40).await;
    let others =
        ["/status.json", "/metrics", "/style.css", "/live.js", "/icon.svg"].map(str::to_owned);
    for path in paths().into_iter().chain(others) {
        let answer = get(served.addr, &path).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        for line in [
            "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'; ",
            "x-content-type-options: nosniff\r\n",
            "referrer-policy: no-referrer\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
        ] {
            assert!(head.contains(line), "{path} lacks {line}: {head}");
        }
        assert!(!head.contains("set-cookie"), "{head}");
        if head.contains("text/html") {
            for markup in [
                "<script>document",
                "<img",
                "onerror=alert(1)>",
                " style=",
                "javascript:",
                "\u{202e}",
            ] {
                assert!(!body.contains(markup), "{path} has {markup} in it");
            }
            assert!(body.contains("<html lang=\"en\">") && body.contains("<h1>"), "{path}");
        }
    }
    let overview = get(served.addr, "/").await;
    assert!(overview.contains("&lt;script&gt;document.title="), "the text itself is to be read");
    let failures = get(served.addr, "/failures").await;
    assert!(
        failures.contains("connection_refused")
            && failures.contains("Nothing listens at the relay's port.")
    );
    drop(served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_are_a_table_that_links_sort_and_a_form_searches() {
    let served = Served::new(40).await;
    let all = get(served.addr, "/relays").await;
    assert_eq!(all.matches("<th class=\"who\" scope=\"row\">").count(), 40, "{all}");
    // The greatest number first: 1000 + 39 · 11; the day before it was 1000 + 39 · 10.
    let first = all.split("<tbody>").nth(1).expect("a body");
    let (at, first_row) = (hex::encode_upper(fingerprint(39)), first.split("</tr>").next());
    let first_row = first_row.expect("a row");
    for words in [at.as_str(), ">relay39</a>", "1\u{202f}429", "+2.8 %", "5\u{202f}000"] {
        assert!(first_row.contains(words), "{words}: {first_row}");
    }
    for column in ["nickname", "bw", "verdict", "age", "change", "weight"] {
        let link = format!("href=\"/relays?find=&amp;sort={column}&amp;order=");
        assert_eq!(all.matches(&link).count(), 1, "{column}");
    }
    assert!(all.contains("aria-sort=\"descending\"") && all.contains("order=asc"), "{all}");
    let least = get(served.addr, "/relays?sort=bw&order=asc").await;
    let first = least.split("<tbody>").nth(1).and_then(|rows| rows.split("</tr>").next());
    assert!(first.is_some_and(|row| row.contains(&hex::encode_upper(fingerprint(0)))), "{least}");
    let found = get(served.addr, "/relays?find=RELAY3&sort=age").await;
    assert!(found.contains("11 of 40 relays match"), "3, and 30 to 39: {found}");
    let name = hex::encode(&fingerprint(7)[..6]);
    let found = get(served.addr, &format!("/relays?find=${name}")).await;
    assert!(found.contains("1 of 40 relays match") && found.contains(">relay7</a>"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_get_without_a_body() {
    let served = Served::new(10).await;
    for path in paths() {
        let head =
            format!("HEAD {path} HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n");
        let answer = exchange(served.addr, head.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_for_this_page_is_refused_with_a_sentence() {
    let served = Served::new(1).await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(600));
    let longer =
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(200));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:9231\r\n\r\n", "421"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("DELETE /relays HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "413"),
        (&long, "414"),
        (&longer, "431"),
        (&many, "431"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", "400"),
        ("GET /relay/zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "400"),
        (
            "GET /relay/FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            "404",
        ),
        ("GET /%3Cscript%3E HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "404"),
        (
            "GET /relays?find=%FF%00%3Cb%3E HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            "200",
        ),
        (
            "GET /relays?find=a&find=%27%20OR%201=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            "200",
        ),
    ] {
        let answer = exchange(served.addr, request.as_bytes()).await;
        let start: String = request.chars().take(80).collect();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} "))
                || answer.starts_with(&format!("HTTP/1.0 {status} ")),
            "{start:?}: {answer}"
        );
        assert!(!answer.contains("<script>") && !answer.contains("<b>"), "{start}");
    }
}

/// Connects with a small receive buffer.
async fn connect_narrow(addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("set");
    socket.connect(addr).await.expect("connected")
}

/// Connections whose request's head never ends.
async fn slow(addr: SocketAddr) -> Vec<TcpStream> {
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(addr).await.expect("connected");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.expect("written");
        slow.push(stream);
    }
    slow
}

/// Connections that request again and again and read no answer.
async fn stalled(addr: SocketAddr) -> Vec<TcpStream> {
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_narrow(addr).await;
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
        stream.write_all(request.as_bytes()).await.expect("written");
        stalled.push(stream);
    }
    stalled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_delays_no_other() {
    // None of them is ever closed by a deadline.
    let served = Served::with(60, Deadlines { head: NEVER, stall: NEVER }).await;
    let held = (slow(served.addr).await, stalled(served.addr).await);
    get_at_last(served.addr, "/team").await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_is_cut_off() {
    let soon = Duration::from_millis(400);
    let served = Served::with(60, Deadlines { head: soon, stall: NEVER }).await;
    for mut stream in slow(served.addr).await {
        let mut rest = Vec::new();
        let end = timeout(HANGS, stream.read_to_end(&mut rest)).await;
        end.expect("it is cut off").ok();
    }
    let served = Served::with(60, Deadlines { head: NEVER, stall: soon }).await;
    for mut stream in stalled(served.addr).await {
        // The connection is closed while data remains to be written.
        let written = timeout(HANGS, async {
            while stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        written.await.expect("it is cut off");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_for_nothing_over_many_connections_keeps_nobody_out() {
    let served = Served::new(1).await;
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(served.addr).await.expect("connected");
        if number % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost:").await.expect("written");
        }
        silent.push(stream);
    }
    let answer = get(served.addr, "/team").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_pages_come_as_events_when_they_change() {
    let served = Served::new(10).await;
    // The page must not warn that its status is old.
    let mut status = (**served.status.borrow().as_ref().expect("a status")).clone();
    status.now_unix_secs += NEVER.as_secs();
    served.status.send_replace(Some(Arc::new(status.clone())));
    let mut stream = TcpStream::connect(served.addr).await.expect("connected");
    let request = "GET /events?parts=live,team,nothing HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut text = String::new();
    read_until(&mut stream, &mut text, "event: team\ndata: ").await;
    assert!(text.contains("text/event-stream") && text.contains("event: live\ndata: "), "{text}");
    assert!(text.contains("12 of 30") && !text.contains("event: map"), "{text}");
    assert!(!text.contains("<script>"), "{HOSTILE}");

    status.running[0].seconds.truncate(1);
    served.status.send_replace(Some(Arc::new(status)));
    read_until(&mut stream, &mut text, "1 of 30").await;
    // The team has not changed.
    assert_eq!(text.matches("event: team\n").count(), 1);
}

/// Reads until a text has arrived.
async fn read_until(stream: &mut TcpStream, text: &mut String, end: &str) {
    let mut buffer = vec![0; 64 << 10];
    while !text.contains(end) {
        let read = timeout(HANGS, stream.read(&mut buffer)).await;
        let count = read.expect("it does not hang").expect("read");
        assert!(count > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_events_are_so_many_at_most_and_places_come_back() {
    let served = Served::new(1).await;
    let ask = async || {
        let mut stream = TcpStream::connect(served.addr).await.expect("connected");
        stream
            .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .expect("written");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("read");
        (stream, String::from_utf8_lossy(&head).into_owned())
    };
    let mut streams = Vec::new();
    for _ in 0..super::super::site::MAX_STREAMS {
        let (stream, head) = ask().await;
        assert_eq!(head, "HTTP/1.1 200");
        streams.push(stream);
    }
    assert_eq!(ask().await.1, "HTTP/1.1 503");
    streams.clear();
    let deadline = Instant::now() + HANGS;
    while ask().await.1 != "HTTP/1.1 200" {
        assert!(Instant::now() < deadline, "no place came back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_come_in_the_format_that_is_asked_for() {
    let served = Served::new(10).await;
    let text = "content-type: text/plain; version=0.0.4; charset=utf-8\r\n";
    let openmetrics =
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    for (accept, kind) in [
        ("", text),
        ("Accept: */*\r\n", text),
        ("Accept: text/plain;version=0.0.4\r\n", text),
        ("Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n", openmetrics),
    ] {
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: {}\r\n{accept}Connection: close\r\n\r\n",
            served.addr
        );
        let answer = exchange(served.addr, request.as_bytes()).await;
        assert!(answer.contains(kind) && answer.contains("vary: accept\r\n"), "{answer}");
        assert!(answer.contains("\nflashflow_measurements_total 4321.0\n"), "{answer}");
        assert_eq!(answer.contains("# EOF"), kind == openmetrics, "{answer}");
        assert_eq!(
            answer.contains("# TYPE flashflow_measurements_total counter\n"),
            kind == text,
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_store_or_a_status_pages_say_so() {
    let served = Served::new(0).await;
    served.status.send_replace(None);
    for (path, status, words) in [
        ("/", "200", "The coordinator is starting"),
        ("/capacities", "500", "store.sqlite"),
        ("/failures", "500", "store.sqlite"),
        ("/relays", "500", "store.sqlite"),
        ("/status.json", "503", "starting"),
        ("/metrics", "200", "flashflow_build_info{version="),
    ] {
        let answer = get(served.addr, path).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(words),
            "{path}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_overview_begins_with_what_an_authority_asks_first() {
    let served = Served::new(40).await;
    // The status must not become old during the test.
    served.status.send_modify(|status| {
        if let Some(status) = status {
            Arc::make_mut(status).now_unix_secs += NEVER.as_secs();
        }
    });
    let answer = get(served.addr, "/").await;
    for words in [
        "2 problems need attention",
        "Jq0bV1m2y9Yw0XcVJ3o1b2A3Vk6w1zQ7cGmQXzS0kJd",
        "for the authority moria1",
        "does not respond: it did not answer",
        "(since ",
        "40 of 40 relays (100.0 %): authorities vote with it",
        "3.1 % of the weight moved",
    ] {
        assert!(answer.contains(words), "{words} is not in\n{answer}");
    }
    served.status.send_modify(|status| {
        if let Some(status) = status {
            Arc::make_mut(status).problems.clear();
        }
    });
    let answer = get(served.addr, "/").await;
    assert!(answer.contains("good: no action needed"), "{answer}");
    assert!(!answer.contains("aria-label=\"Problems\""), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_hangs_is_said_to() {
    let served = Served::new(1).await;
    let mut status = (**served.status.borrow().as_ref().expect("a status")).clone();
    status.now_unix_secs -= 4 * 86_400 + 7 * 3600 + 1800;
    served.status.send_replace(Some(Arc::new(status)));
    let answer = get(served.addr, "/").await;
    assert!(
        answer.contains("The coordinator does not respond.") && answer.contains(" (4 d 7 h ago)."),
        "{answer}"
    );
}
