//! Tests of the page in headless Chromium. `FF_TEST_SCREENSHOTS` names a directory for screenshots
//! of all pages.
//!
//! These tests need Debian's package `chromium`; `.ci/run` installs it and runs them.

use std::path::PathBuf;
use std::sync::Arc;

use super::chromium::Chromium;
use super::http::{get, paths};
use super::served::Served;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's package chromium; .ci/run runs it"]
async fn every_page_loads_without_a_word_on_the_console() {
    let served = Served::new(60).await;
    let mut chromium = Chromium::start();
    for path in paths() {
        chromium.open(&format!("http://{}{path}", served.addr));
        let dom = chromium.dom();
        assert!(dom.contains("<h1>") && dom.contains("</footer>"), "{path}: {dom}");
        assert_eq!(chromium.console(), [""; 0], "{path}");
        let styles = "[...document.styleSheets].map(sheet => sheet.cssRules.length > 50).join()";
        assert_eq!(chromium.evaluate(styles), "true", "{path} has its styles");
        assert_ne!(chromium.evaluate("document.title"), "owned", "a name has become a script");
        let wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
        for width in [320, 1280] {
            chromium.set_screen("light", width, width < 600);
            assert_eq!(chromium.evaluate(wide), true, "{path} is wider than a screen of {width}");
            // A rotated text has its scale in both values of the matrix's column.
            let small = "[...document.querySelectorAll('svg text')].map(text => parseFloat(getComputedStyle(text).fontSize) \
                         * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)).filter(size => size < 10.99).join()";
            assert_eq!(chromium.evaluate(small), "", "{path} has small texts at {width}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's package chromium and axe-core; .ci/run runs it"]
async fn axe_finds_nothing_serious_on_any_page() {
    /// Violations of accessibility rules, of level serious or critical, with the elements.
    const FIND: &str = "axe.run({ preload: false }).then(found => found.violations
        .filter(rule => ['serious', 'critical'].includes(rule.impact))
        .map(rule => rule.id + ': ' + rule.nodes.map(node => node.html + ' ' + node.failureSummary).join('; ')).join('\\n'))";
    let axe = std::env::var_os("FF_TEST_AXE").expect("the path of axe.min.js, as .ci/test sets it");
    let axe = std::fs::read_to_string(axe).expect("axe-core");
    let served = Served::new(60).await;
    let mut chromium = Chromium::start();
    for path in paths() {
        for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400)] {
            served.renew();
            chromium.set_screen(scheme, width, width < 600);
            chromium.open(&format!("http://{}{path}", served.addr));
            chromium.evaluate(&axe);
            let found = chromium.evaluate_promise(FIND);
            assert_eq!(found, "", "{path}, {scheme}, {width} pixels wide");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's package chromium; .ci/run runs it"]
async fn the_policy_holds_in_the_browser() {
    let served = Served::new(1).await;
    let mut chromium = Chromium::start();
    chromium.open(&format!("http://{}/team", served.addr));
    for (injected, forbidden) in [
        (
            "document.body.append(Object.assign(document.createElement('script'), { textContent: 'document.title = 1' }))",
            "script-src",
        ),
        (
            "document.body.append(Object.assign(document.createElement('img'), { src: 'http://192.0.2.1/x.png' }))",
            "img-src",
        ),
        ("document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\">')", "style-src"),
        ("fetch('http://192.0.2.1/').catch(() => 0)", "connect-src"),
    ] {
        assert!(!chromium.console().iter().any(|entry| entry.contains(forbidden)), "{forbidden}");
        chromium.evaluate(injected);
        chromium.wait_for_console(forbidden);
    }
    assert_eq!(chromium.evaluate("document.title"), "Team · FlashFlow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's package chromium; .ci/run runs it"]
async fn events_renew_the_page_and_without_javascript_it_is_whole() {
    let served = Served::new(30).await;
    let url = format!("http://{}/", served.addr);
    let change = |name: &str| {
        let mut status = (**served.status.borrow().as_ref().expect("a status")).clone();
        status.running[0].nickname = name.to_owned();
        served.status.send_replace(Some(Arc::new(status)));
    };
    let mut chromium = Chromium::start();
    chromium.open(&url);
    change("newcomer");
    chromium.wait_for_text(">newcomer</a>");
    assert_eq!(chromium.evaluate("typeof news"), "object", "a script renews it");
    // The keyboard focus stays on its link.
    chromium.evaluate("document.querySelector('a[href^=\"/relay/\"]').focus()");
    change("another");
    chromium.wait_for_text(">another</a>");
    assert_eq!(chromium.evaluate("document.activeElement.textContent"), "another");
    assert_eq!(chromium.console(), [""; 0]);

    chromium.set_scripts(false);
    chromium.open(&url);
    assert_eq!(chromium.evaluate("typeof news"), "undefined", "only loading it again renews it");
    let dom = chromium.dom();
    for whole in ["Slots of the period", "Being measured now", "12 of 30", "s-done", ">another</a>"]
    {
        assert!(dom.contains(whole), "it lacks {whole}");
    }
    change("third");
    chromium.open(&url);
    assert!(chromium.dom().contains(">third</a>"));
    assert_eq!(chromium.console(), [""; 0]);
    assert!(get(served.addr, "/").await.contains("<noscript><meta http-equiv=\"refresh\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's package chromium; .ci/run runs it"]
async fn every_page_has_a_picture_in_light_and_dark() {
    let served = Served::new(400).await;
    let kept = std::env::var_os("FF_TEST_SCREENSHOTS").map(PathBuf::from);
    let mut chromium = Chromium::start();
    for path in paths() {
        let name = path.split('/').nth(1).unwrap_or_default().replace("?find=", "-found-");
        let name = if name.is_empty() { "overview" } else { &name };
        let mut pictures = Vec::new();
        for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)] {
            served.renew();
            chromium.set_screen(scheme, width, width < 600);
            chromium.open(&format!("http://{}{path}", served.addr));
            let picture = chromium.picture();
            if let Some(dir) = &kept {
                std::fs::write(dir.join(format!("{name}-{scheme}-{width}.png")), &picture)
                    .expect("written");
            }
            assert!(picture.len() > 10_000, "{name}, {scheme}, has {} bytes", picture.len());
            pictures.push(picture);
        }
        assert_ne!(pictures[0], pictures[1], "the dark has other colours");
    }
}
