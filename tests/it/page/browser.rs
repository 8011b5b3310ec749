//! A real Chromium without a window, steered by its driver.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use fantoccini::{
    Client, ClientBuilder,
    actions::{InputSource, KeyAction, KeyActions},
    key::Key,
    wd::WebDriverCompatibleCommand,
};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value as Json, json};

use crate::harness::{LIMIT, Process, World, until};

/// So many presses of the tab key lead around any page of ours.
const TABS_MAX: usize = 60;

/// See the module. It ends with its driver.
pub(super) struct Browser {
    client: Client,
    name: &'static str,
    _driver: Process,
}

impl Browser {
    /// With an empty profile in the test's folder. `name` is that of its pictures.
    pub(super) async fn open(world: &World, name: &'static str) -> Self {
        let installed = |program: &str| Command::new(program).arg("--version").output().is_ok();
        assert!(
            installed("chromedriver") && installed("chromium"),
            "chromium and chromedriver are missing: run the tests through scripts/test, which installs them"
        );
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").env("HOME", world.folder.path()).env("TMPDIR", world.folder.path());
        let driver = Process::start(command, world.folder.path());
        let mut port = None;
        until("the driver listens", LIMIT, async || {
            let printed = driver.printed();
            let started = printed.split_once("started successfully on port ");
            port = started.and_then(|(_, rest)| rest.split_once('.')).map(|(port, _)| port.to_owned());
            port.is_some()
        })
        .await;
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(world))
            .connect(&format!("http://127.0.0.1:{}", port.expect("a port")))
            .await
            .expect("a browser");
        let browser = Self { client, name, _driver: driver };
        browser.size(1200, 900).await;
        browser
    }

    pub(super) async fn goto(&self, url: &str) {
        self.client.goto(url).await.expect("a page");
    }

    /// What a script returns.
    pub(super) async fn js(&self, script: &str) -> Json {
        self.client.execute(script, Vec::new()).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The text of the first element that is meant; empty if there is none.
    pub(super) async fn text(&self, css: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.textContent ?? ''";
        let text = self.client.execute(script, vec![json!(css)]).await.expect("a text");
        text.as_str().expect("a text").to_owned()
    }

    /// Waits until that text holds another.
    pub(super) async fn until_text(&self, css: &str, expected: &str) -> String {
        let start = Instant::now();
        loop {
            let text = self.text(css).await;
            if text.contains(expected) {
                return text;
            }
            if start.elapsed() > LIMIT {
                let complaints = self.complaints().await;
                panic!("after {LIMIT:?} {css} does not say '{expected}', but '{text}'; {complaints:#?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Presses keys, one after the other, on what has the focus.
    pub(super) async fn press(&self, keys: &str) {
        let mut actions = KeyActions::new("keyboard".to_owned());
        for value in keys.chars() {
            actions = actions.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        }
        self.client.perform_actions(actions).await.expect("pressed");
    }

    pub(super) async fn enter(&self) {
        self.press(&char::from(Key::Enter).to_string()).await;
    }

    /// Presses the tab key until an element has the focus; each one on the way shows that it has it.
    pub(super) async fn tab_to(&self, css: &str) {
        let focused = "const on = document.activeElement; const style = getComputedStyle(on);
            return [on.matches(arguments[0]), on.outerHTML.slice(0, 200), on === document.body || style.outlineStyle !== 'none']";
        let mut passed = Vec::new();
        for _ in 0..TABS_MAX {
            self.press(&char::from(Key::Tab).to_string()).await;
            let on = self.client.execute(focused, vec![json!(css)]).await.expect("a focus");
            assert_eq!(on[2], json!(true), "nobody sees that this has the focus: {}", on[1]);
            if on[0] == json!(true) {
                return;
            }
            passed.push(on[1].to_string());
        }
        panic!("the tab key does not lead to {css}, but to {passed:#?}");
    }

    /// As a phone, if it is narrow.
    pub(super) async fn size(&self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// What the person prefers: `dark` or `light`.
    pub(super) async fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Takes a picture of the whole page, for people: `target/tmp/page-….png`.
    pub(super) async fn picture(&self, of: &str) {
        let taken = self.devtools("Page.captureScreenshot", json!({ "captureBeyondViewport": true })).await;
        let bytes = STANDARD.decode(taken["data"].as_str().expect("a picture")).expect("base64");
        assert!(bytes.starts_with(b"\x89PNG"), "no picture");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{}-{of}.png", self.name));
        fs::write(path, bytes).expect("a file");
    }

    /// What the browser complained of since it was asked last: scripts that failed, policies that were violated.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let entries = self.vendor("se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().expect("a list").iter();
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(super) async fn close(self) {
        self.client.close().await.expect("closed");
    }

    async fn devtools(&self, command: &str, parameters: Json) -> Json {
        self.vendor("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    async fn vendor(&self, path: &'static str, body: Json) -> Json {
        self.client.issue_cmd(Vendor { path, body }).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

fn capabilities(world: &World) -> fantoccini::wd::Capabilities {
    let profile = format!("--user-data-dir={}", world.path("profile").display());
    // By a pipe: when the driver is gone, so is the browser.
    let mut arguments =
        vec!["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"];
    arguments.push(&profile);
    if rustix::process::geteuid().is_root() {
        arguments.push("--no-sandbox");
    }
    let capabilities = json!({
        "goog:chromeOptions": { "args": arguments },
        "goog:loggingPrefs": { "browser": "ALL" },
        "unhandledPromptBehavior": "ignore",
    });
    capabilities.as_object().expect("an object").clone()
}

/// A command of Chromium's driver that the standard has not.
#[derive(Debug)]
struct Vendor {
    path: &'static str,
    body: Json,
}

impl WebDriverCompatibleCommand for Vendor {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}
