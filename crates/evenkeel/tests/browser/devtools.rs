//! [`Browser`]: headless Chromium, driven by the Chrome DevTools Protocol over a pipe. Messages are
//! JSON and end with a zero byte. Chromium reads them from descriptor 3, and writes them to
//! descriptor 4.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time limit of a command, and of an expected event.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which Chromium closes by itself.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// The names of Chromium's program, in the order in which they are tried, after `CHROMIUM`.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Chromium with one tab. Dropping it ends Chromium.
pub struct Browser {
    chromium: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Events that no caller has waited for yet.
    events: VecDeque<Value>,
    next_id: u64,
    session: String,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end, too, if it closes by itself.
        drop(self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0"));
        let deadline = Instant::now() + CLOSE_TIME;
        while Instant::now() < deadline && matches!(self.chromium.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.chromium.kill());
        drop(self.chromium.wait());
    }
}

/// Returns the path of Chromium's program.
fn program() -> PathBuf {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).flat_map(|dir| PROGRAMS.map(|name| dir.join(name)));
    let mut found = named.into_iter().chain(in_path.filter(|path| path.is_file()));
    found.next().expect("Chromium is not installed: install it, or set CHROMIUM to its path")
}

impl Browser {
    /// Starts Chromium with an empty tab.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().expect("a temporary directory");
        let mut chromium = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2"])
            .arg(program())
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let commands = chromium.stdin.take().expect("piped");
        let mut output = BufReader::new(chromium.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
                let parsed = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
                let Ok(parsed) = parsed else { return };
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (events, session) = (VecDeque::new(), String::new());
        let mut browser =
            Self { chromium, commands, messages, events, next_id: 0, session, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command, and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// As [`Browser::call`]; returns Chromium's error.
    fn try_call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.next_id += 1;
        let mut command = json!({ "id": self.next_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("Chromium runs");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let message = self.message(deadline).unwrap_or_else(|| panic!("{method} has no result"));
            if message["id"] != self.next_id {
                self.events.push_back(message);
                continue;
            }
            return match &message["error"] {
                Value::Null => Ok(message["result"].clone()),
                error => Err(error.to_string()),
            };
        }
    }

    fn message(&mut self, deadline: Instant) -> Option<Value> {
        match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("Chromium has ended"),
        }
    }

    /// Opens a page, and waits until it is loaded. Returns the errors that it reported.
    pub fn open(&mut self, address: &str) -> Vec<String> {
        drop(self.errors());
        let outcome = self.call("Page.navigate", json!({ "url": address }));
        assert!(outcome["errorText"].is_null(), "{address}: {outcome}");
        self.until("the page is loaded", |browser| browser.eval("document.readyState") == "complete");
        self.errors()
    }

    /// Returns the errors that pages reported since the last call: exceptions, messages of the
    /// console, and those of the browser, such as a file that is missing or a blocked script.
    pub fn errors(&mut self) -> Vec<String> {
        while let Ok(message) = self.messages.try_recv() {
            self.events.push_back(message);
        }
        let is_error = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => true,
                "Runtime.consoleAPICalled" => {
                    ["error", "warning"].iter().any(|kind| parameters["type"] == **kind)
                }
                "Log.entryAdded" => parameters["entry"]["level"] == "error",
                _ => false,
            }
        };
        let errors = self.events.iter().filter(|event| is_error(event)).map(Value::to_string).collect();
        self.events.clear();
        errors
    }

    /// Returns the value of a JavaScript expression, which may be a promise; null between two
    /// pages.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        // Chromium evaluates nothing while it replaces the page by another one.
        let Ok(result) = self.try_call("Runtime.evaluate", parameters) else { return Value::Null };
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Returns the text of an expression.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}, no text")).to_owned()
    }

    /// Returns the number of an expression.
    pub fn number(&mut self, expression: &str) -> f64 {
        let value = self.eval(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}, no number"))
    }

    /// Waits until a condition holds.
    pub fn until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what}: {}", self.eval("document.body.innerText"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Moves the pointer to the middle of the first element that a selector finds.
    pub fn point_at(&mut self, selector: &str) {
        let (x, y) = self.middle_of(selector);
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// Clicks on it.
    pub fn click(&mut self, selector: &str) {
        let (x, y) = self.middle_of(selector);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    fn middle_of(&mut self, selector: &str) -> (f64, f64) {
        let middle = self.eval(&format!(
            "(() => {{ const of = document.querySelector({selector:?}); if (!of) return null; \
             of.scrollIntoView({{ block: 'center' }}); const box = of.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        match (middle[0].as_f64(), middle[1].as_f64()) {
            (Some(x), Some(y)) => (x, y),
            _ => panic!("{selector} is not on the page"),
        }
    }

    /// Types a character.
    pub fn press(&mut self, key: &str) {
        let code = key.to_uppercase().bytes().next().unwrap_or_default();
        let event = |kind| json!({ "type": kind, "key": key, "text": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", event("keyDown"));
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Sets the size of the window in pixels, and the colour scheme: `light` or `dark`.
    pub fn look(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Writes a picture of the window to a file.
    pub fn screenshot(&mut self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = decoded(picture["data"].as_str().expect("a picture"));
        assert!(bytes.starts_with(b"\x89PNG"), "a picture");
        std::fs::write(file, bytes).expect("the picture is written");
    }
}

/// Decodes base64 (RFC 4648, section 4).
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |of: u8| DIGITS.iter().position(|digit| *digit == of).expect("base64") as u32;
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0, |bits, of| bits << 6 | digit(*of)) << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
