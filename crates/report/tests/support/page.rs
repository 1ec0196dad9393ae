//! A page in a browser, and a runner for tests that need one.

use super::webdriver::{Browser, Result, find_browser};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// Browsers that no test uses now: to start one takes longer than most tests.
static IDLE_BROWSERS: Mutex<Vec<Browser>> = Mutex::new(Vec::new());

fn idle_browsers() -> impl std::ops::DerefMut<Target = Vec<Browser>> {
    IDLE_BROWSERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A browser with one new tab, which the next test gets on drop.
pub struct BorrowedBrowser(Option<Browser>);

impl BorrowedBrowser {
    fn take() -> Result<Self> {
        let idle = idle_browsers().pop();
        idle.map_or_else(Browser::start, Ok).map(|browser| Self(Some(browser)))
    }
}

impl Deref for BorrowedBrowser {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for BorrowedBrowser {
    fn drop(&mut self) {
        // After a failed test, or with a tab that cannot be replaced, the browser ends.
        if let Some(browser) = self.0.take_if(|browser| !std::thread::panicking() && browser.renew().is_ok()) {
            idle_browsers().push(browser);
        }
    }
}

/// A browser that shows a page, which is removed on drop.
pub struct ShownPage {
    pub browser: BorrowedBrowser,
    pub url: String,
    _directory: TempDir,
}

impl ShownPage {
    /// Shows this text as a page at an address that ends with `hash`.
    pub fn page(text: &str, hash: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("page.html");
        std::fs::write(&file, text)?;
        let browser = BorrowedBrowser::take()?;
        let url = format!("file://{}", file.display());
        browser.open(&format!("{url}{hash}"))?;
        Ok(Self { browser, url, _directory: directory })
    }

    /// Asserts that the page wrote nothing to the console and requested nothing but itself.
    pub fn quiet(&self) -> Result<()> {
        let console = self.browser.console()?;
        assert!(console.is_empty(), "the console said {console:?}");
        let requests = self.browser.requests()?;
        assert!(!requests.is_empty(), "the page itself must be seen, or the log does not work");
        for request in requests {
            assert_eq!(request.split('#').next(), Some(self.url.as_str()), "the page asked for {request}");
        }
        Ok(())
    }
}

/// A test by its name.
pub type Case = (&'static str, fn() -> Result<()>);

/// Runs the tests, or, without a browser, counts them as ignored and prints the reason.
pub fn run(tests: &[Case]) {
    let arguments = Arguments::from_args();
    let missing = find_browser().err();
    let trials = tests.iter().map(|&(name, test)| {
        if let Some(reason) = &missing {
            println!("SKIP {name}: {reason}");
        }
        Trial::test(name, move || test().map_err(|error| Failed::from(error.to_string())))
            .with_ignored_flag(missing.is_some())
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Exiting drops nothing.
    idle_browsers().clear();
    conclusion.exit();
}

/// Evaluates `then`, such as `return [digits(0)];`, with these modules of the page: nothing in a page's script can be called from
/// outside.
pub fn of_modules(shown: &ShownPage, modules: &[&str], then: &str) -> Result<Value> {
    let lines = modules.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with("import "));
    let script: Vec<&str> = lines.map(|line| line.strip_prefix("export ").unwrap_or(line)).chain([then]).collect();
    shown.browser.run(&script.join("\n"), &[])
}
