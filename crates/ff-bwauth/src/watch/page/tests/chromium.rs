//! Headless Chromium, controlled over a pipe by the DevTools protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Timeout of a wait, to detect a hang.
const DEADLINE: Duration = Duration::from_secs(120);

/// A browser with one page. It ends when it is dropped.
pub(super) struct Chromium {
    child: Child,
    /// Commands to the browser.
    input: ChildStdin,
    /// Messages of the browser.
    output: Receiver<Value>,
    /// The number of the last command.
    number: u64,
    /// The session of the page.
    session: String,
    /// Events that no caller has waited for yet.
    events: Vec<Value>,
    /// Console messages and errors of the page.
    console: Vec<String>,
    _profile: TempDir,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its child processes end with it; their work is not needed now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Chromium {
    /// Starts the browser.
    pub(super) fn start() -> Self {
        let profile = TempDir::new().expect("a directory");
        // The ends of the pipe are the file descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 >&2",
                "sh",
                "--headless=new",
                "--remote-debugging-pipe",
            ])
            // Tests run as root and in containers, where Chromium's own sandbox does not work.
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
        this.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true }));
        this
    }

    /// Opens an address and waits until it is loaded.
    pub(super) fn open(&mut self, url: &str) {
        self.console.clear();
        self.events.clear();
        let loader = self.call("Page.navigate", json!({ "url": url }))["loaderId"].take();
        // Pages that reload themselves have other load events.
        self.wait_for(|event| {
            let of = &event["params"];
            event["method"] == "Page.lifecycleEvent"
                && of["name"] == "load"
                && of["loaderId"] == loader
        });
    }

    /// Turns JavaScript on or off.
    pub(super) fn set_scripts(&mut self, are_on: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !are_on }));
    }

    /// Sets the colour scheme and the size of the screen.
    pub(super) fn set_screen(&mut self, scheme: &str, width: u32, is_phone: bool) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// The current document as HTML.
    pub(super) fn dom(&mut self) -> String {
        let end = Instant::now() + DEADLINE;
        let html = json!({
            "expression": "document.documentElement.outerHTML",
            "returnByValue": true,
        });
        loop {
            let answer = self.try_call("Runtime.evaluate", html.clone());
            if let Ok(Some(text)) = answer.as_ref().map(|answer| answer["result"]["value"].as_str())
            {
                return text.to_owned();
            }
            // A page that reloads itself has no document for a moment.
            assert!(Instant::now() < end, "{answer:?}");
        }
    }

    /// Evaluates an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let mut answer = self
            .call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        answer["result"]["value"].take()
    }

    /// Evaluates an expression that gives a promise, and waits for its value.
    pub(super) fn evaluate_promise(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", params);
        answer["result"]["value"].take()
    }

    /// Waits until the document contains a text.
    pub(super) fn wait_for_text(&mut self, text: &str) {
        let end = Instant::now() + DEADLINE;
        loop {
            let dom = self.dom();
            if dom.contains(text) {
                return;
            }
            assert!(Instant::now() < end, "{text} does not come: {dom}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A screenshot of the whole page.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        let png = self.call(
            "Page.captureScreenshot",
            json!({ "format": "png", "captureBeyondViewport": true }),
        );
        Base64::decode_vec(png["data"].as_str().expect("a text")).expect("base64")
    }

    /// Console messages and errors since the page was opened.
    pub(super) fn console(&mut self) -> &[String] {
        // Earlier messages arrive before an answer.
        self.call("Runtime.getIsolateId", json!({}));
        &self.console
    }

    /// Waits for a console message or an error with these words since the page was opened.
    pub(super) fn wait_for_console(&mut self, words: &str) {
        while !self.console.iter().any(|entry| entry.contains(words)) {
            let message = self.output.recv_timeout(DEADLINE);
            let message = message.unwrap_or_else(|_| panic!("{words}: {:?}", self.console));
            self.note(message);
        }
    }

    /// Sends a command and returns the answer.
    fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.try_call(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command and returns the answer or the error.
    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("written");
        loop {
            let mut message = self.output.recv_timeout(DEADLINE).expect("it answers");
            if message["id"] == self.number {
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
            self.note(message);
        }
    }

    /// Waits for an event.
    fn wait_for(&mut self, is_it: impl Fn(&Value) -> bool) {
        while !self.events.iter().any(&is_it) {
            let message = self.output.recv_timeout(DEADLINE).expect("it goes on");
            self.note(message);
        }
    }

    /// Keeps an event.
    fn note(&mut self, event: Value) {
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.console.push(event["params"].to_string());
            }
            _ => self.events.push(event),
        }
    }
}
