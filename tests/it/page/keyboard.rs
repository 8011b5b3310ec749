//! What the page is for, done with a keyboard alone: the plot moves, a key's story is told, a dead letter is sent back.

use serde_json::json;

use crate::harness::{LIMIT, World, until};

use super::{TOKEN, browser::Browser, fussy, watched};

/// Points of the plot's canvas in the colour of what was handled, above the ground line.
const DRAWN: &str = "const canvas = document.querySelector('#plot canvas');
    if (!canvas) return -1;
    const { width, height } = canvas;
    const colour = getComputedStyle(document.documentElement).getPropertyValue('--handled').trim();
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    const copy = new OffscreenCanvas(width, height).getContext('2d');
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, width, height / 2).data;
    let drawn = 0;
    for (let at = 0; at < data.length; at += 4) {
      const near = (value, index) => Math.abs(data[at + index] - value) < 24;
      if (data[at + 3] > 200 && near(r, 0) && near(g, 1) && near(b, 2)) drawn += 1;
    }
    return drawn;";

#[tokio::test(flavor = "multi_thread")]
async fn somebody_watches_the_plot_looks_a_key_up_and_replays_by_keyboard() {
    let world = World::new("page.keyboard").await;
    std::fs::write(world.path("why"), "card declined").unwrap();
    let (worker, port) = watched(&world, &[], &["--exec", &fussy(&world, "why")]).await;
    let browser = Browser::open(&world, "keyboard").await;
    browser.goto(&format!("http://127.0.0.1:{port}/")).await;
    watch_the_plot(&world, &browser).await;
    browser.picture("plot").await;
    look_up(&browser).await;
    browser.picture("story").await;
    let mut complaints = browser.complaints().await;
    assert_eq!(complaints, Vec::<String>::new());

    replay(&world, &browser).await;
    browser.picture("replayed").await;
    // Asking with a wrong token is what it complains of.
    complaints = browser.complaints().await;
    complaints.retain(|complaint| !complaint.contains("401"));
    assert_eq!(complaints, Vec::<String>::new());
    browser.close().await;
    world.stop_and_find_nothing_left(worker).await;
}

async fn watch_the_plot(world: &World, browser: &Browser) {
    browser.until_text("#contact", "Consuming").await;
    browser.until_text("#workers article", &format!("{}consuming", world.queue)).await;
    until("there is a plot", LIMIT, async || browser.js(DRAWN).await == json!(0)).await;
    for number in 0..20 {
        for _ in 0..2 {
            world.publish(&format!("order-{number}"), b"x").await;
        }
    }
    world.publish("bad", b"x").await;
    world.until_state("done", 20).await;
    for (name, count) in [("handled", "20"), ("duplicates", "20"), ("retried", "0"), ("dead_lettered", "1")] {
        browser.until_text(&format!("[data-total={name}]"), count).await;
    }
    until("the plot has moved", LIMIT, async || browser.js(DRAWN).await.as_i64() > Some(20)).await;

    browser.tab_to("#hour-details summary").await;
    browser.enter().await;
    browser.until_text("#hour-table tbody", "20").await;
}

async fn look_up(browser: &Browser) {
    browser.tab_to("#lookup-key").await;
    browser.press("nobody").await;
    browser.enter().await;
    browser.until_text("#story", "The ledger has no row for the key “nobody”").await;
    let backspace = char::from(fantoccini::key::Key::Backspace).to_string();
    browser.press(&backspace.repeat("nobody".len())).await;
    browser.press("bad").await;
    browser.enter().await;
    let story = browser.until_text("#story", "given up and dead-lettered").await;
    assert!(story.contains("Attempt 1 failed at") && story.contains("card declined"), "{story}");
    let failures = browser.until_text("#failures", "card declined").await;
    assert!(failures.contains("bad") && failures.contains("dead"), "{failures}");
}

async fn replay(world: &World, browser: &Browser) {
    let button = "button[aria-label='Replay bad']";
    browser.tab_to("#letters-look").await;
    browser.enter().await;
    browser.until_text("#letters", "card declined").await;
    let disabled = format!("return document.querySelector(\"{button}\").disabled");
    assert_eq!(browser.js(&disabled).await, json!(true));
    browser.until_text("#letters-why", "Replaying is off: enter the token to allow this.").await;

    browser.tab_to("#token").await;
    browser.press("not-the-token-at-all").await;
    browser.enter().await;
    browser.until_text("#token-says", "That token is not right.").await;
    assert_eq!(browser.js(&disabled).await, json!(true));
    browser.press(TOKEN).await;
    browser.enter().await;
    browser.until_text("#token-says", "This tab has the token").await;
    until("it may be replayed", LIMIT, async || browser.js(&disabled).await == json!(false)).await;
    assert_eq!(
        browser.js("return localStorage.length + document.cookie").await,
        json!("0"),
        "it is kept for longer"
    );

    world.touch("repaired");
    browser.tab_to(button).await;
    browser.enter().await;
    browser.until_text("#letters-says", "bad: sent back: it runs again from attempt 1.").await;
    world.until_state("done", 21).await;
    assert_eq!(world.effects().iter().filter(|key| *key == "bad").count(), 1);

    // Where the button was, the focus went on; the page knows what has become of it.
    assert_eq!(browser.js("return document.activeElement.id").await, json!("letters-look"));
    browser.enter().await;
    browser.until_text("#letters-says", ".dead is empty.").await;
    browser.until_text("#failures-says", "Nothing has failed that is not done by now.").await;
    browser.until_text("[data-total=handled]", "21").await;
    browser.tab_to("#lookup-key").await;
    browser.enter().await;
    browser.until_text("#story", "handled: a further delivery is acked as a duplicate").await;
}
