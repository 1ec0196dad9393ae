//! A real Chromium for a test, driven through chromedriver by W3C WebDriver: JSON over HTTP on a loopback port, which takes
//! fewer lines than a dependency would. Browser and driver are ended by their process IDs, even when a test panics.

use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Error of a test step.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The browser must make no requests of its own, so that any request seen is the page's.
const BROWSER_FLAGS: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,900",
    "--hide-scrollbars",
];
/// The key under which WebDriver names an element.
const ELEMENT_KEY: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Far longer than any step of a test; a hung browser must not hang the test run.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns Chromium and chromedriver, or why the test cannot run.
pub fn find_browser() -> std::result::Result<(PathBuf, PathBuf), String> {
    let find = |names: &[&str]| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .flat_map(|dir| names.iter().map(move |name| dir.join(name)))
            .find(|file| file.is_file())
    };
    let browser = find(&["chromium", "chromium-browser", "google-chrome"]).ok_or("no chromium is installed")?;
    let driver = find(&["chromedriver"]).ok_or("no chromedriver is installed (Debian: chromium-driver)")?;
    Ok((browser, driver))
}

/// A browser with one empty tab.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Chromium's own process, as reported by the driver.
    process: Option<i32>,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts both with a fresh profile.
    pub fn start() -> Result<Self> {
        let (browser, program) = find_browser()?;
        let profile = tempfile::tempdir()?;
        // chromedriver chooses a port for IPv4 and wants the same for IPv6: if another process has that one, it exits.
        let mut tried = start_driver(&program, &profile);
        for _ in 0..4 {
            if tried.is_ok() {
                break;
            }
            tried = start_driver(&program, &profile);
        }
        let (driver, port) = tried?;
        let mut started = Self { driver, port, session: String::new(), process: None, profile };
        let mut flags: Vec<String> = BROWSER_FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        flags.push(format!("--user-data-dir={}", started.profile.path().display()));
        let answer = started.call(
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "binary": browser, "args": flags },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } }),
        )?;
        started.session = answer["sessionId"].as_str().ok_or("the driver gave no session")?.to_owned();
        started.process = answer["capabilities"]["goog:processID"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        // The browser's own start page makes requests; what is logged from here on belongs to the page under test.
        started.open("about:blank")?;
        started.requests()?;
        Ok(started)
    }

    /// Replaces the tab by a new one: nothing of the old page is left, not its size, touch screen or messages.
    pub fn renew(&self) -> Result<()> {
        let tab = self.post("/window/new", &json!({ "type": "tab" }))?;
        self.call("DELETE", &format!("/session/{}/window", self.session), &Value::Null)?;
        self.post("/window", &json!({ "handle": tab["handle"] }))?;
        self.open("about:blank")?;
        self.console()?;
        self.requests().map(drop)
    }

    /// Opens an address and waits until it is loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Runs the body of a function in the page and returns its result; `arguments` are its arguments.
    pub fn run(&self, body: &str, arguments: &[Value]) -> Result<Value> {
        self.post("/execute/sync", &json!({ "script": body, "args": arguments }))
    }

    /// Returns an attribute of the first element that matches a selector.
    pub fn attribute(&self, selector: &str, name: &str) -> Result<String> {
        let value = self.run(
            "return document.querySelector(arguments[0]).getAttribute(arguments[1]);",
            &[json!(selector), json!(name)],
        )?;
        Ok(value.as_str().ok_or_else(|| format!("{selector} has no {name}"))?.to_owned())
    }

    /// Returns the visible text of the first element that matches a selector.
    pub fn text(&self, selector: &str) -> Result<String> {
        let element = self.find(selector)?;
        let value = self.call("GET", &format!("/session/{}/element/{element}/text", self.session), &Value::Null)?;
        Ok(value.as_str().unwrap_or_default().to_owned())
    }

    /// Clicks in the middle of an element, which must be visible and not covered.
    pub fn click(&self, selector: &str) -> Result<()> {
        let element = self.find(selector)?;
        self.run(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'});",
            &[json!({ ELEMENT_KEY: element })],
        )?;
        self.post(&format!("/element/{element}/click"), &json!({})).map(drop)
    }

    /// Clicks at a point of an element, in CSS pixels from its top left corner.
    pub fn click_at(&self, selector: &str, x: f64, y: f64) -> Result<()> {
        self.drag(selector, (x, y), (x, y))
    }

    /// Presses the pointer at one point of an element and releases it at another.
    pub fn drag(&self, selector: &str, from: (f64, f64), to: (f64, f64)) -> Result<()> {
        let (from, to) = (self.place(selector, from)?, self.place(selector, to)?);
        let go =
            |(x, y): (i64, i64)| json!({ "type": "pointerMove", "duration": 0, "origin": "viewport", "x": x, "y": y });
        let actions =
            json!([go(from), { "type": "pointerDown", "button": 0 }, go(to), { "type": "pointerUp", "button": 0 }]);
        self.post("/actions", &json!({ "actions": [{ "type": "pointer", "id": "mouse", "actions": actions }] }))
            .map(drop)
    }

    /// Turns the wheel over a point of an element.
    pub fn wheel(&self, selector: &str, at: (f64, f64), pixels: i64) -> Result<()> {
        let (x, y) = self.place(selector, at)?;
        let turn = json!({ "type": "scroll", "duration": 0, "origin": "viewport", "x": x, "y": y, "deltaX": 0, "deltaY": pixels });
        self.post("/actions", &json!({ "actions": [{ "type": "wheel", "id": "wheel", "actions": [turn] }] })).map(drop)
    }

    /// Returns the window position of a point of an element, after scrolling the element into view.
    fn place(&self, selector: &str, (x, y): (f64, f64)) -> Result<(i64, i64)> {
        let corner = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center', behavior: 'instant'}); \
             const b = e.getBoundingClientRect(); return [b.left, b.top];",
            &[json!(selector)],
        )?;
        let pixel = |i: usize, by: f64| (corner[i].as_f64().unwrap_or_default() + by).round() as i64;
        Ok((pixel(0, x), pixel(1, y)))
    }

    /// Types keys into an element (WebDriver's code points for special keys: Escape is U+E00C).
    pub fn keys(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.find(selector)?;
        self.post(&format!("/element/{element}/value"), &json!({ "text": text })).map(drop)
    }

    /// Returns console messages not read before: `[level, message]`.
    pub fn console(&self) -> Result<Vec<(String, String)>> {
        let log = self.post("/se/log", &json!({ "type": "browser" }))?;
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        Ok(log.as_array().into_iter().flatten().map(|entry| (text(entry, "level"), text(entry, "message"))).collect())
    }

    /// Returns every address requested since the last call, whatever had to answer.
    pub fn requests(&self) -> Result<Vec<String>> {
        let log = self.post("/se/log", &json!({ "type": "performance" }))?;
        let mut urls = Vec::new();
        for entry in log.as_array().into_iter().flatten() {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap_or("null"))?;
            if message["message"]["method"] == "Network.requestWillBeSent" {
                urls.push(message["message"]["params"]["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
        }
        Ok(urls)
    }

    fn find(&self, selector: &str) -> Result<String> {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }))?;
        Ok(found[ELEMENT_KEY].as_str().ok_or_else(|| format!("nothing is {selector}"))?.to_owned())
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Resizes the window to that of a phone or a desktop, in CSS pixels, regardless of the browser's own minimum width.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": screen });
        self.post("/goog/cdp/execute", &command).map(drop)
    }

    /// Turns the window into a touch screen, or back.
    pub fn touchable(&self, so: bool) -> Result<()> {
        let params = json!({ "enabled": so, "maxTouchPoints": 5 });
        let command = json!({ "cmd": "Emulation.setTouchEmulationEnabled", "params": params });
        self.post("/goog/cdp/execute", &command).map(drop)
    }

    /// Moves fingers over an element: at each step, the place of each finger.
    pub fn fingers(&self, selector: &str, steps: &[Vec<(f64, f64)>]) -> Result<()> {
        let corner = self.place(selector, (0.0, 0.0))?;
        let touch = |kind: &str, places: &[(f64, f64)]| {
            let points: Vec<Value> = places
                .iter()
                .enumerate()
                .map(|(id, (x, y))| json!({ "id": id, "x": corner.0 as f64 + x, "y": corner.1 as f64 + y }))
                .collect();
            let params = json!({ "type": kind, "touchPoints": points });
            self.post("/goog/cdp/execute", &json!({ "cmd": "Input.dispatchTouchEvent", "params": params })).map(drop)
        };
        for (at, places) in steps.iter().enumerate() {
            touch(if at == 0 { "touchStart" } else { "touchMove" }, places)?;
        }
        touch("touchEnd", &[])
    }

    /// Makes one request; the driver closes the connection after it.
    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        connection.set_read_timeout(Some(STEP_TIMEOUT))?;
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        )?;
        let mut reader = BufReader::new(connection);
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err("the driver closed the connection".into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => {
                Err(format!("{method} {path}: {error}: {}", value["message"].as_str().unwrap_or_default()).into())
            }
            None => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.call("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let Some(process) = self.process else { return };
        // A process ID is reused after its process has ended: the profile's name shows that it is still ours.
        let profile = self.profile.path().to_string_lossy().into_owned();
        let ours = std::fs::read(format!("/proc/{process}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&profile));
        if ours {
            // SAFETY: kill takes two numbers and touches no memory of ours.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    }
}

/// Starts chromedriver, and returns its port.
fn start_driver(program: &Path, profile: &tempfile::TempDir) -> Result<(Child, u16)> {
    let mut driver = Command::new(program)
        .arg("--port=0")
        // Their temporary files are removed with the profile.
        .env("TMPDIR", profile.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    match port_of(&mut driver) {
        Ok(port) => Ok((driver, port)),
        Err(error) => {
            let _ = driver.kill();
            let _ = driver.wait();
            Err(error)
        }
    }
}

/// Returns the port that chromedriver chose, from its output when it is ready.
fn port_of(driver: &mut Child) -> Result<u16> {
    let output = driver.stdout.take().ok_or("chromedriver has no output")?;
    for line in BufReader::new(output).lines() {
        if let Some((_, port)) = line?.split_once("started successfully on port ") {
            return Ok(port.trim_end_matches('.').parse()?);
        }
    }
    Err("chromedriver ended before it was ready".into())
}
