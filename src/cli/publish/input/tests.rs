use clap::Parser;

use super::*;

#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: PublishArgs,
}

async fn items(args: &[&str]) -> Vec<Item> {
    let cli = Cli::parse_from([&["x", "--queue", "q"], args].concat());
    let mut input = Input::open(&cli.args).unwrap();
    let total = input.total();
    let mut items = Vec::new();
    while let Some(item) = input.next().await {
        items.push(item.unwrap());
    }
    if let Some(total) = total {
        assert_eq!(items.len() as u64, total);
    }
    items
}

fn shown(items: &[Item]) -> Vec<String> {
    let text = |item: &Item| {
        let body = String::from_utf8_lossy(&item.body);
        format!("{:?} {} {body:?} {}", item.place, item.id, item.copy)
    };
    items.iter().map(text).collect()
}

#[tokio::test]
async fn one_body_is_one_message_with_a_fresh_uuid() {
    let one = items(&["hello"]).await;
    assert_eq!((one.len(), one[0].place, one[0].copy), (1, Place::Only, 0));
    assert_eq!(Uuid::parse_str(&one[0].id).unwrap().get_version_num(), 7);
    assert_eq!(shown(&items(&["", "--message-id", "a"]).await), [r#"Only a "" 0"#]);
}

#[tokio::test]
async fn counted_and_repeated_messages() {
    let counted = items(&["--count", "2", "--repeat", "2", "--id-prefix", "p"]).await;
    assert_eq!(
        shown(&counted),
        [r#"Index(1) p-1 "1" 1"#, r#"Index(1) p-1 "1" 2"#, r#"Index(2) p-2 "2" 1"#, r#"Index(2) p-2 "2" 2"#]
    );
    let fresh = items(&["b", "--count", "3"]).await;
    let ids: std::collections::BTreeSet<_> = fresh.iter().map(|item| item.id.clone()).collect();
    assert_eq!(ids.len(), 3, "each message has an id of its own");
    assert!(fresh.iter().all(|item| &*item.body == b"b"));
}

#[tokio::test]
async fn skipped_messages_keep_the_others_numbers() {
    let rest = items(&["--count", "3", "--repeat", "2", "--id-prefix", "p", "--skip", "2"]).await;
    assert_eq!(shown(&rest), [r#"Index(3) p-3 "3" 1"#, r#"Index(3) p-3 "3" 2"#]);
    assert_eq!(items(&["--count", "3", "--skip", "9"]).await, []);
}

#[tokio::test]
async fn each_line_is_a_message_with_its_number_and_bytes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"a\r\n\n\xff\nlast").unwrap();
    let path = file.path().to_str().unwrap();
    let lines = items(&["--lines", path, "--id-prefix", "p"]).await;
    let bodies: Vec<&[u8]> = lines.iter().map(|item| &*item.body).collect();
    assert_eq!(bodies, [&b"a"[..], b"", b"\xff", b"last"]);
    assert_eq!((lines[3].place, &*lines[3].id), (Place::Line(4), "p-4"));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_order_of_everything() {
    let args = ["--count", "50", "--repeat", "2", "--id-prefix", "p", "--shuffle", "--seed", "7"];
    let first = items(&args).await;
    assert_eq!(first, items(&args).await);
    let mut sorted = shown(&first);
    let mut in_order = shown(&items(&args[..6]).await);
    assert_ne!(sorted, in_order);
    sorted.sort();
    in_order.sort();
    assert_eq!(sorted, in_order);
}

#[test]
fn nothing_to_publish_or_read_is_wrong_usage() {
    let open = |args: &[&str]| {
        let cli = Cli::parse_from([&["x", "--queue", "q"], args].concat());
        Input::open(&cli.args).map(|_| ()).unwrap_err()
    };
    for (args, words) in [
        (&[][..], "nothing to publish"),
        (&["--file", "/nonexistent"], "cannot read /nonexistent"),
        (&["--lines", "/nonexistent"], "cannot read /nonexistent"),
        (&["--lines", "/"], "it is a directory"),
    ] {
        let failure = open(args);
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains(words), "{failure}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]

    /// Whatever a file holds, its lines are its messages: as many, in order, byte for byte.
    #[test]
    fn any_bytes_are_lines(
        bytes in proptest::collection::vec(proptest::prop_oneof![
            proptest::prelude::any::<u8>(),
            proptest::prelude::Just(b'\n'),
            proptest::prelude::Just(b'\r'),
        ], 0..200),
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let items = runtime.block_on(items(&["--lines", file.path().to_str().unwrap()]));
        let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // What follows the last line's end is no line.
        if expected.last().is_some_and(|rest| rest.is_empty()) {
            expected.pop();
        }
        let ends_in_newline = bytes.last() == Some(&b'\n');
        let last = expected.len();
        for (n, line) in expected.iter_mut().enumerate() {
            if (n + 1 < last || ends_in_newline) && line.last() == Some(&b'\r') {
                *line = &line[..line.len() - 1];
            }
        }
        let bodies: Vec<&[u8]> = items.iter().map(|item| &*item.body).collect();
        proptest::prop_assert_eq!(bodies, expected);
        let places: Vec<_> = items.iter().map(|item| item.place).collect();
        proptest::prop_assert_eq!(places, (1..=items.len() as u64).map(Place::Line).collect::<Vec<_>>());
    }
}
