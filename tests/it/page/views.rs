//! How the page looks: on a phone, in the dark, from outside, and when the worker is away or not well.

use serde_json::{Value as Json, json};

use crate::harness::{LIMIT, World, until};

use super::{TOKEN, browser::Browser, fussy, watched};

/// The least contrast of any text with what is behind it (WCAG 2: at least 4.5), and where.
const CONTRAST: &str = "const parse = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
      .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
      .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = parse(getComputedStyle(at).backgroundColor);
        if (colour.length === 3 || colour[3] === 1) return colour;
      }
      return [255, 255, 255];
    };
    let least = [99, 'nothing'];
    for (const element of document.querySelectorAll('body *')) {
      const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      if (!says || element.disabled || element.closest('noscript') || !element.checkVisibility()) continue;
      const [text, ground] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
      const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
      if (ratio < least[0]) least = [ratio, element.outerHTML.slice(0, 200)];
    }
    return least;";

/// What would have to be scrolled for sideways; what has no name for a screen reader; what a finger misses.
const FAULTS: &str = "const faults = [];
    if (document.documentElement.scrollWidth > innerWidth) faults.push(`wider than ${innerWidth}`);
    for (const field of document.querySelectorAll('input, select')) {
      if (field.labels.length === 0) faults.push(`no label: ${field.id}`);
    }
    for (const button of document.querySelectorAll('button, summary')) {
      if (!(button.getAttribute('aria-label') ?? button.textContent).trim()) faults.push('a button without a name');
    }
    for (const button of document.querySelectorAll('button:not(.key), input, select')) {
      if (button.checkVisibility() && button.getBoundingClientRect().height < 40) faults.push(`small: ${button.outerHTML}`);
    }
    return faults;";

/// Everything is to be seen on a phone, in the dark and in the light, however long the words are.
#[tokio::test(flavor = "multi_thread")]
async fn it_fits_a_phone_and_can_be_read_in_the_dark() {
    let world = World::new("page.views").await;
    std::fs::write(world.path("why"), "declined ".repeat(40) + &"x".repeat(300)).unwrap();
    let (worker, port) = watched(&world, &[], &["--exec", &fussy(&world, "why")]).await;
    let long = format!("bad-{}", "k".repeat(200));
    for id in ["a", "a", "bad", &long] {
        world.publish(id, b"x").await;
    }
    world.until_state("dead", 2).await;
    let browser = Browser::open(&world, "views").await;
    browser.goto(&format!("http://127.0.0.1:{port}/")).await;
    browser.until_text("#failures", &long).await;
    browser.tab_to("#lookup-key").await;
    browser.press("bad").await;
    browser.enter().await;
    browser.until_text("#story", "declined").await;
    browser.tab_to("#letters-look").await;
    browser.enter().await;
    browser.until_text("#letters", &long).await;
    browser.until_text("[data-total=handled]", "1").await;

    let ground = "return getComputedStyle(document.body).backgroundColor";
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        grounds.push(browser.js(ground).await);
        for (width, height) in [(1200, 900), (390, 844), (320, 640)] {
            browser.size(width, height).await;
            let plot =
                "return document.querySelector('#plot canvas').getBoundingClientRect().right <= innerWidth";
            until("the plot fits", LIMIT, async || browser.js(plot).await == json!(true)).await;
            let least = browser.js(CONTRAST).await;
            assert!(least[0].as_f64() >= Some(4.5), "{scheme}, {width}: {least}");
            if width < 600 {
                assert_eq!(browser.js(FAULTS).await, json!([]), "{scheme}, {width}");
            }
            browser.picture(&format!("{scheme}-{width}")).await;
        }
        browser.size(1200, 900).await;
    }
    assert_ne!(grounds[0], grounds[1], "the dark is as the light");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
    worker.terminate().await.expect_exit(0);
}

/// By a name, nothing is shown until the token is given; under another site's name there is no page.
#[tokio::test(flavor = "multi_thread")]
async fn from_outside_it_shows_nothing_until_the_token_is_given() {
    let world = World::new("page.outside").await;
    // Browsers take every name below localhost for this host.
    let (worker, port) = watched(&world, &["--listen-host", "ours.localhost"], &["--log"]).await;
    let browser = Browser::open(&world, "outside").await;
    browser.goto(&format!("http://theirs.localhost:{port}/")).await;
    let refused = browser.text("body").await;
    assert!(refused.contains("this is not served under the name 'theirs.localhost'"), "{refused}");
    browser.complaints().await;

    browser.goto(&format!("http://ours.localhost:{port}/")).await;
    browser.until_text("#token-says", "Without the token this page shows nothing.").await;
    let seen = "return [...document.querySelectorAll('section')].filter((section) => section.checkVisibility()).map((section) => section.id)";
    assert_eq!(browser.js(seen).await, json!(["token-section"]));
    browser.picture("closed").await;
    browser.tab_to("#token").await;
    browser.press(TOKEN).await;
    browser.enter().await;
    browser.until_text("#workers", &world.queue).await;
    assert_eq!(browser.js(seen).await.as_array().map(Vec::len), Some(6));
    browser.close().await;
    worker.terminate().await.expect_exit(0);
}

/// A worker that cannot work says why; one that is gone is missed, and found again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_ill_or_gone_is_told_and_found_again() {
    let world = World::new("page.gone").await;
    let start = |address: &str| world.worker(&["--listen", address, "--declare", "passive", "--log"]);
    let worker = start("127.0.0.1:0");
    let port = crate::listen::client::port(&worker).await;
    let browser = Browser::open(&world, "gone").await;
    browser.goto(&format!("http://localhost:{port}/")).await;
    browser.until_text("#contact", "Consuming").await;
    browser
        .until_text("#letters-why", "Replaying is off: set a token to allow this: --listen-token-file FILE.")
        .await;
    let hidden = browser.js("return document.getElementById('token-section').hidden").await;
    assert_eq!(hidden, Json::Bool(true), "there is no token to be given");

    world.delete(&world.queue).await;
    browser.until_text("#contact", &format!("Not consuming: {}", world.queue)).await;
    browser.until_text("#workers", "no session with the broker for").await;
    browser.picture("ill").await;
    worker.terminate().await.expect_exit(0);
    browser.until_text("#contact", "No contact with the worker since").await;
    browser.until_text("#contact", "Trying again.").await;
    browser.picture("gone").await;

    world.declare(&world.queue, "quorum").await;
    let worker = start(&format!("127.0.0.1:{port}"));
    browser.until_text("#contact", "Consuming").await;
    browser.close().await;
    worker.terminate().await.expect_exit(0);
}
