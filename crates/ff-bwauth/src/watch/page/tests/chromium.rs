//! Headless Chromium, spoken to over a pipe by its own protocol (DevTools).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long it may take for anything.
const DEADLINE: Duration = Duration::from_secs(60);

/// A browser with one page. It ends when it is dropped.
pub(super) struct Chromium {
    /// The process.
    child: Child,
    /// Where it is told what to do.
    input: ChildStdin,
    /// What it says, a message each.
    output: Receiver<Value>,
    /// The number of the last command.
    number: u64,
    /// The page.
    session: String,
    /// Events that nobody has waited for yet.
    events: Vec<Value>,
    /// What went to the console, and what else went wrong in the page.
    console: Vec<String>,
    /// Its files.
    _profile: TempDir,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its own children end with it; what it was doing is of no use any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Chromium {
    /// Starts it.
    pub(super) fn start() -> Self {
        let profile = TempDir::new().expect("a directory");
        // The pipe's ends are the file descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 >&2",
                "sh",
                "--headless=new",
                "--remote-debugging-pipe",
            ])
            // Tests run as root and in containers, where Chromium's own sandbox cannot be.
            .args([
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Debian's package chromium");
        let (sender, output) = channel();
        let stdout = child.stdout.take().expect("its output");
        std::thread::spawn(move || {
            for message in BufReader::new(stdout).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("JSON");
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take().expect("its input");
        let (session, events, console) = (String::new(), Vec::new(), Vec::new());
        let mut this =
            Self { child, input, output, number: 0, session, events, console, _profile: profile };
        let page = this.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        this.session = this.call("Target.attachToTarget", attach)["sessionId"]
            .as_str()
            .expect("a page")
            .to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            this.call(&format!("{domain}.enable"), json!({}));
        }
        this
    }

    /// Opens an address and waits until it is loaded.
    pub(super) fn open(&mut self, url: &str) {
        self.console.clear();
        self.events.clear();
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for("Page.loadEventFired");
    }

    /// Whether scripts run.
    pub(super) fn set_scripts(&mut self, are_on: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !are_on }));
    }

    /// The colours and the width that pages are made for.
    pub(super) fn set_screen(&mut self, scheme: &str, width: u32, is_phone: bool) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// The document as it is now.
    pub(super) fn dom(&mut self) -> String {
        let document = self.call("DOM.getDocument", json!({}));
        let node = json!({ "nodeId": document["root"]["nodeId"] });
        self.call("DOM.getOuterHTML", node)["outerHTML"].as_str().expect("a text").to_owned()
    }

    /// What an expression comes to in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let mut answer = self
            .call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        answer["result"]["value"].take()
    }

    /// Waits until a text stands in the document; whether it came in this time.
    pub(super) fn waits_for(&mut self, text: &str, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.dom().contains(text) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    /// A picture of the whole page.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        let png = self.call(
            "Page.captureScreenshot",
            json!({ "format": "png", "captureBeyondViewport": true }),
        );
        Base64::decode_vec(png["data"].as_str().expect("a text")).expect("base64")
    }

    /// What went to the console since the page was opened, and what else went wrong.
    pub(super) fn console(&mut self) -> &[String] {
        // What is on its way comes before an answer.
        self.call("Runtime.getIsolateId", json!({}));
        &self.console
    }

    /// Tells it to do something; the answer.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("written");
        loop {
            let mut message = self.output.recv_timeout(DEADLINE).expect("it answers");
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.note(message);
        }
    }

    /// Waits for an event.
    fn wait_for(&mut self, method: &str) {
        while !self.events.iter().any(|event| event["method"] == method) {
            let message = self.output.recv_timeout(DEADLINE).expect("it goes on");
            self.note(message);
        }
    }

    /// Takes note of an event.
    fn note(&mut self, event: Value) {
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.console.push(event["params"].to_string());
            }
            _ => self.events.push(event),
        }
    }
}
