//! What the README promises is tested: each line of its table names tests, and they exist.

use std::{fs, path::Path};

/// All test functions under `dir`.
fn tests_in(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for pair in lines.windows(2) {
                let is_test = pair[0] == "#[test]" || pair[0].starts_with("#[tokio::test");
                if let (true, Some((_, rest))) = (is_test, pair[1].split_once("fn ")) {
                    found.extend(rest.split_once('(').map(|(name, _)| name.to_owned()));
                }
            }
        }
    }
}

/// The table's lines with the tests that they name.
fn promises(readme: &str) -> Vec<(&str, Vec<&str>)> {
    let (_, section) = readme.split_once("\n## What happens when…\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("a section after it");
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|row| {
        let named = row.split_once("<!-- test: ").and_then(|(_, rest)| rest.split_once(" -->"));
        (row, named.map_or_else(Vec::new, |(names, _)| names.split(", ").collect()))
    })
    .collect()
}

#[test]
fn each_promise_of_the_readme_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("the README");
    let mut tests = Vec::new();
    tests_in(&root.join("tests"), &mut tests);
    tests_in(&root.join("src"), &mut tests);
    let promises = promises(&readme);
    assert!(promises.len() >= 25, "the table has {} lines", promises.len());
    for (row, named) in promises {
        assert!(!named.is_empty(), "no test is named in: {row}");
        for name in named {
            assert!(tests.iter().any(|test| test == name), "there is no test '{name}', named in: {row}");
        }
    }
}
