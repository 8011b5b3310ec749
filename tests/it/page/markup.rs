//! What a message, its error or its queue contains is shown as it is, and never becomes part of the page.

use serde_json::json;

use crate::harness::World;

use super::{browser::Browser, watched};

const KEY: &str = "<img src=x onerror=\"document.title='ran'\">";
const ERROR: &str = "<script>document.title='ran'</script><svg onload=\"document.title='ran'\">";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_message_contains_is_shown_and_never_runs() {
    let world = World::new("page.<b onclick=1>bold</b>").await;
    std::fs::write(world.path("why"), ERROR).unwrap();
    let (worker, port) = watched(&world, &[], &["--exec", &world.handler("cat why >&2; exit 65", "")]).await;
    world.publish(KEY, b"x").await;
    world.until_state("dead", 1).await;
    let browser = Browser::open(&world, "markup").await;
    browser.goto(&format!("http://localhost:{port}/")).await;
    assert!(browser.until_text("#workers h3", "page.").await.contains(&world.queue));

    let failures = browser.until_text("#failures tbody", "<img").await;
    assert!(failures.contains(KEY) && failures.contains(ERROR), "{failures}");
    browser.tab_to("#failures button").await;
    browser.enter().await;
    let story = browser.until_text("#story article", "dead").await;
    assert!(story.contains(KEY) && story.contains(ERROR), "{story}");
    browser.tab_to("#letters-look").await;
    browser.enter().await;
    let letters = browser.until_text("#letters tbody", "<img").await;
    assert!(letters.contains(KEY) && letters.contains(ERROR), "{letters}");
    browser.until_text("#letters-says", &format!("One letter in {}.dead.", world.queue)).await;
    browser.picture("shown").await;

    let made = "return [document.title, document.images.length, document.scripts.length, document.querySelectorAll('svg, b').length]";
    assert_eq!(browser.js(made).await, json!(["ackonce", 0, 2, 0]));
    assert_eq!(browser.complaints().await, Vec::<String>::new());

    // If the page did set it as markup, the browser would refuse.
    let set = format!(
        "try {{ document.body.innerHTML = {}; return 'set' }} catch (error) {{ return error.name }}",
        json!(KEY)
    );
    assert_eq!(browser.js(&set).await, json!("TypeError"));
    let inline = "const script = document.createElement('script'); try { script.text = 'document.title = 1'; document.body.append(script) } \
        catch (error) { return error.name } return document.title";
    assert_eq!(browser.js(inline).await, json!("TypeError"));
    browser.close().await;
    worker.terminate().await.expect_exit(0);
}
